// The key moves of a game, ranked as the service ranks them. A press leads there.

import { element } from "./dom.js";

const NONE = "No move of this game stands out.";
/** Without evaluations the service looks at rare moves alone (FEW_FIND in games/reports.py): a verdict may call another a mistake. */
const NONE_RARE = "None of the moves that at most 5\u00a0% would play changed the forecast by 10 points or more.";

/** The position that shows a key move, in moves from the start: before a move that was missed, after any other. */
export const placeOf = ({ kind, ply }) => (kind === "missed" ? ply - 1 : ply);

/** Shows them; `evaluated` says that the PGN has evaluations, `at` where the board is on their line, and `goTo` gets a place on it. */
export function showMoments(root, { moments, evaluated, at, goTo }) {
  const entries = moments.map((moment) => element("li", {}, element("button", {
    type: "button", onclick: () => goTo(placeOf(moment)), "aria-current": placeOf(moment) === at ? "true" : undefined,
  }, element("b", { className: moment.kind }, moment.kind), ` ${moment.text}`)));
  root.replaceChildren(entries.length ? element("ol", {}, ...entries) : element("p", { className: "quiet" }, evaluated ? NONE : NONE_RARE));
}

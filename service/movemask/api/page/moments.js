// The most telling moves of a game, ranked as the service ranks them. A press leads there.

import { element } from "./dom.js";

/** The position that shows a moment, in moves from the start: before a move that was missed, after any other. */
export const placeOf = ({ kind, ply }) => (kind === "missed" ? ply - 1 : ply);

/** `review` is what is known of the line: `{moments, evaluated}`; `loaded` says that its game was read from a PGN. */
export function showMoments(root, { review, loaded, at, goTo }) {
  root.hidden = !review || !(loaded || review.moments.length);
  if (root.hidden) return root.replaceChildren();
  const entries = review.moments.map((moment) => element("li", {}, element("button", {
    type: "button", onclick: () => goTo(placeOf(moment)), "aria-current": placeOf(moment) === at ? "true" : undefined,
  }, element("b", { className: moment.kind }, moment.kind), ` ${moment.text}`)));
  root.replaceChildren(
    element("h3", {}, "Moments"),
    entries.length ? element("ol", {}, ...entries) : element("p", { className: "quiet" }, "No move of this game stands out."),
    ...(loaded && !review.evaluated ? [unevaluated("This game has")] : []),
  );
}

/** That a PGN has no evaluations, what that means, and what writes them. */
export const unevaluated = (which) => element("p", { className: "quiet" },
  `${which} no evaluations ([%eval]), so the moments come from the network's forecasts and there are no traps or gems. `,
  element("code", {}, "movemask annotate --engine stockfish"), " adds evaluations.");

// The key moves of a game, ranked as the service ranks them. A press leads there.

import { element } from "./dom.js";

/** The position that shows a key move, in moves from the start: before a move that was missed, after any other. */
export const placeOf = ({ kind, ply }) => (kind === "missed" ? ply - 1 : ply);

/** `review` is what is known of the main line: `{moments}`; `loaded` says that its game has players. */
export function showMoments(root, { review, loaded, at, goTo }) {
  root.hidden = !review || !(loaded || review.moments.length);
  if (root.hidden) return root.replaceChildren();
  const entries = review.moments.map((moment) => element("li", {}, element("button", {
    type: "button", onclick: () => goTo(placeOf(moment)), "aria-current": placeOf(moment) === at ? "true" : undefined,
  }, element("b", { className: moment.kind }, moment.kind), ` ${moment.text}`)));
  root.replaceChildren(
    element("h3", {}, "Key moves"),
    entries.length ? element("ol", {}, ...entries) : element("p", { className: "quiet" }, "No move of this game stands out."),
  );
}

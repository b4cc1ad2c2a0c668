// The review of a game: what each move cost and how human it was, and the moves that cost most.

import { byId, element } from "./dom.js";
import { numbered } from "./tree.js";
import { counted } from "./verdicts.js";

/**
 * Shows the review. `verdicts` are those of `side`, or of both sides where it is "", by ply; undefined while they are on
 * their way. `sans` is the main line with its `first` ply; `at` is where the board is on it, or -1; `own` says that the
 * side is the player's; `moments` are the key moves; `goTo` gets a place on the line, `choose` a side.
 */
export function showReview({ shown, side, own, verdicts, sans, first, at, moments, goTo, choose }) {
  byId("verdict").hidden = !shown;
  if (!shown) return;
  byId("review-side").value = side;
  byId("review-side").onchange = ({ target }) => choose(target.value);
  const name = (ply) => `${numbered(first + ply)} ${sans[ply]}`,
    ply = [at - 1, at - 2].find((one) => verdicts?.has(one));
  const here = verdicts?.get(ply);
  byId("verdict").className = `verdict-here ${here?.kind ?? ""}`;
  byId("verdict").replaceChildren(
    ...(here
      ? [element("b", {}, `${name(ply)}${here.name && ` · ${here.name}`}. `), here.text]
      : [element("span", { className: "quiet" }, verdicts ? "Step through the game for the verdicts." : "The game is being read.")]),
  );
  const whose = own ? "Your moves: " : side ? `${side === "white" ? "White" : "Black"}'s moves: ` : "Both sides: ";
  byId("review-counts").textContent = verdicts ? `${whose}${counted([...verdicts.values()])}.` : "";
  const current = (place) => (place === at ? "true" : undefined);
  byId("review-moves").replaceChildren(
    ...[...(verdicts ?? [])].map(([ply, { kind, cost, human }]) =>
      element(
        "li",
        {},
        element(
          "button",
          { type: "button", onclick: () => goTo(ply + 1), "aria-current": current(ply + 1) },
          element("b", {}, name(ply)),
          " ",
          element("span", { className: kind }, cost),
          " ",
          element("span", {}, human),
        ),
      ),
    ),
  );
  requestAnimationFrame(() => {
    // by then the browser has laid it out anyway
    const list = byId("review-moves"),
      button = list.querySelector("[aria-current]");
    if (button) list.scrollTop = button.offsetTop - list.clientHeight / 2;
  });
  const none = element("p", { className: "quiet" }, moments ? "No move lost 10 points or more." : "The game is being read.");
  const entries = (moments ?? []).map(({ kind, ply, text }) =>
    element(
      "li",
      {},
      element(
        "button",
        {
          type: "button",
          onclick: () => goTo(ply),
          "aria-current": current(ply),
        },
        element("b", { className: kind }, kind),
        ` ${text}`,
      ),
    ),
  );
  byId("moments").replaceChildren(entries.length ? element("ol", {}, ...entries) : none);
}

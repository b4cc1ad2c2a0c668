// Bars of the moves with their probabilities, and the forecast beside the board.

import { resultOf } from "./answer.js";
import { element, percent } from "./dom.js";

const SHOWN = 8;
const ENDED = {
  // White's value of a game that is over
  "1-0": { win: 1, draw: 0, loss: 0, score: 1 },
  "0-1": { win: 0, draw: 0, loss: 1, score: 0 },
  "1/2-1/2": { win: 0, draw: 1, loss: 0, score: 0.5 },
};

/** What stands in place of hints in a game against the network. */
export const HIDDEN = "Hidden while you play. \u201cShow hints\u201d shows it.";

let all = false;

/** A bar of a share, from 0 to 1. */
export function bar(share, kind = "") {
  const filled = element("span", { className: `fill ${kind}` });
  filled.style.width = `${(100 * Math.min(1, share)).toFixed(2)}%`;
  return element("span", { className: "bar", "aria-hidden": "true" }, filled);
}

/** The moves of an answer as buttons, most probable first; null for moves that are not to be seen. */
export function showBars(root, moves, { onMove, onLight, next }) {
  if (!moves) return root.replaceChildren(element("p", { className: "quiet" }, HIDDEN));
  if (!moves.length) return root.replaceChildren(element("p", { className: "quiet" }, "The game is over."));
  const rows = moves.slice(0, all ? undefined : SHOWN).map((move, index) => {
    const button = element(
      "button",
      {
        type: "button",
        className: "move",
        onclick: () => onMove(move.uci),
        onpointerenter: () => onLight(move.uci),
        onpointerleave: () => onLight(null),
        onfocus: () => onLight(move.uci),
        onblur: () => onLight(null),
      },
      element("span", { className: "rank" }, `${index + 1}.`),
      element("span", { className: "san" }, move.san),
      bar(move.probability),
      element("span", { className: "number" }, percent(move.probability)),
    );
    if (move.uci === next) button.setAttribute("aria-current", "true");
    return element("li", {}, button);
  });
  const list = element("ol", {}, ...rows);
  const rest = moves.slice(SHOWN);
  const more = rest.length
    ? [
        element(
          "button",
          {
            type: "button",
            className: "more",
            "aria-expanded": all,
            onclick: () => {
              all = !all;
              showBars(root, moves, { onMove, onLight, next });
            },
          },
          all ? "Fewer" : `${rest.length} more, ${percent(rest.reduce((sum, move) => sum + move.probability, 0))} in all`,
        ),
      ]
    : [];
  root.replaceChildren(list, ...more);
}

/** The forecast for White, Black and a draw as a bar whose White part is on White's side. The number is the leader's
 * expected score in percent, at its end. No answer, no bar. */
export function showValue(root, answer, flip) {
  const value = answer?.forecast ?? answer?.value ?? ENDED[answer && resultOf(answer)];
  root.replaceChildren();
  root.classList.toggle("flipped", flip);
  if (!value) {
    root.setAttribute("aria-label", answer ? "This network forecasts no result" : "No forecast");
    return;
  }
  const ours = answer.turn === "white" || !answer.value;
  const shares =
    value.win === null
      ? [
          ["white", ours ? value.score : 1 - value.score],
          ["black", ours ? 1 - value.score : value.score],
        ]
      : [
          ["white", ours ? value.win : value.loss],
          ["draw", value.draw],
          ["black", ours ? value.loss : value.win],
        ];
  for (const [kind, share] of shares) {
    const part = element("span", { className: kind, title: `${kind} ${percent(share)}` });
    part.style.flexGrow = share;
    root.append(part);
  }
  const white = ours ? value.score : 1 - value.score;
  root.append(element("b", { className: white < 0.5 ? "black" : "" }, String(Math.round(100 * Math.max(white, 1 - white)))));
  const said = shares.map(([kind, share]) =>
    kind === "draw" ? `draw ${percent(share)}` : `${kind === "white" ? "White" : "Black"} wins ${percent(share)}`,
  );
  root.setAttribute("aria-label", `Forecast: ${said.join(", ")}`);
}

// The lens: what the network would say without the mask, and with a wrong one, beside the right policy.

import { byId, element, percent, quiet, table } from "./dom.js";
import { bar } from "./moves.js";
import { question } from "./reports.js";
import { picture } from "./squares.js";
import { played } from "./state.js";

const OVER = "The game is over, so nothing can leak.";
const LEGAL = 5,
  ILLEGAL = 6,
  FEW = 3,
  ARROWS = 5;
const LEAST_ARROW = 0.0001;
const MASKED = "This network was trained with the mask, so its figures without the mask mean nothing.";
const UNDEFINED =
  "Without the mask the softmax is undefined here, because the network's score for an illegal move is not a finite number.";
const CONSTANT =
  "The figure of a multiplied mask changes when a constant is added to all scores, which changes no policy. " +
  "It cannot be compared between networks.";

export const CAUSES = {
  impossible_slot: "no piece moves like that",
  empty_square: "the square is empty",
  enemy_piece: "the piece is the opponent's",
  wrong_geometry: "the piece does not move like that",
  blocked: "the way is blocked",
  own_piece_on_target: "a piece of the same side is there",
  leaves_king_in_check: "it leaves the king in check",
  castling_right: "the right to castle is gone",
  castling_path: "the castling path is occupied or attacked",
  en_passant: "en passant is too late",
  promotion_form: "the promotion piece is wrong",
};

/** What is asked of the position on the board for its illegal moves, of this model. */
export const lensQuestion = (state, model = state.model) => ({
  ...question({ ...state, model }, played(state)),
  include: ["san", "forecast", "illegal"],
});

/** Shows what the mask removes of an answer: how much, and the likeliest illegal moves where the answer has them. */
export function showMask(root, answer) {
  if (!answer.moves.length) return root.replaceChildren(quiet(OVER));
  const { raw } = answer.leakage,
    leaked = element("p", { className: "leaked" }, element("b", {}, percent(raw)), " would go to illegal moves.");
  root.replaceChildren(
    raw === null ? quiet(UNDEFINED) : leaked,
    ...(answer.illegal ? [illegalMoves(answer.illegal.moves.slice(0, FEW))] : []),
    ...(answer.leakage.trained_with_mask ? [quiet(MASKED)] : []),
  );
}

/** Legal moves blue, illegal ones red and labelled, the heaviest of each square. */
export function lensArrows(answer, labelled = true) {
  const illegal = (answer.illegal?.moves ?? []).filter((move) => move.probability >= LEAST_ARROW).slice(0, ARROWS);
  const raw = answer.leakage?.raw ?? 0;
  const legal = answer.moves
    .filter((move) => move.probability >= 0.05)
    .slice(0, 3)
    .map((move) => ({ uci: move.uci, probability: move.probability * (1 - raw), kind: "legal" }));
  const heaviest = new Map(illegal.toReversed().map((move) => [move.uci.slice(2, 4), move])); // of each target
  const label = (move) => (labelled && heaviest.get(move.uci.slice(2, 4)) === move ? percent(move.probability) : undefined);
  return [...illegal.map((move) => ({ ...move, kind: "illegal", label: label(move) })), ...legal]; // the right ones on top
}

/** Shows the answers of one model, or of two beside each other; `recorded` is what the ledger has of the position, or 0. */
export function showLenses(answers, flip, recorded) {
  byId("recorded").textContent = recorded
    ? `The ledger recorded ${percent(recorded)} here. It keeps neither the moves before a position nor the opponent's rating, and the ` +
      "network may look at both, so the figure below may differ."
    : "";
  byId("lenses").classList.toggle("two", answers.length > 1);
  byId("lenses").replaceChildren(...answers.map((answer) => card(answer, flip, answers.length > 1)));
}

function card(answer, flip, withBoard) {
  const name = answer.model.name;
  if (!answer.illegal) {
    return element("article", { "aria-label": name }, element("h3", {}, name), quiet(OVER));
  }
  const { raw, multiplied, trained_with_mask: masked } = answer.leakage;
  const parts = [...(withBoard ? [element("h3", {}, name)] : []), ...sentences(answer)];
  if (withBoard) parts.push(picture(answer.fen, { flip, arrows: lensArrows(answer, false), label: `${name}: ${describe(answer)}` }));
  if (masked) parts.push(quiet(MASKED));
  parts.push(comparison(answer, raw, multiplied), quiet(CONSTANT), illegalList(answer));
  return element("article", { "aria-label": name }, ...parts);
}

/** What the reader looks at, in two sentences. */
function sentences(answer) {
  const { raw, multiplied } = answer.leakage;
  const heaviest = answer.illegal.moves[0];
  const worst = heaviest
    ? `. The likeliest of them is ${written(heaviest.uci)}, with ${percent(heaviest.probability)} ` +
      `(${CAUSES[heaviest.cause] ?? heaviest.cause})`
    : "";
  const first = raw === null ? UNDEFINED : `Without the mask, ${percent(raw)} of the probability goes to illegal moves${worst}.`;
  const second =
    "The correct policy gives them nothing. Multiplying the scores by the mask, a mistake that has been shipped, would give them " +
    `${percent(multiplied)}, spread evenly.`;
  const absent = answer.without_slot ? [`The network has no output for ${answer.without_slot.map(written).join(", ")}.`] : [];
  return [first, second, ...absent].map((text) => element("p", { className: "sentence" }, text));
}

/** The right policy and the two mistakes, side by side. Both mistakes keep the proportions of the legal moves. */
function comparison(answer, raw, multiplied) {
  const shown = answer.moves.slice(0, LEGAL);
  const rest = answer.moves.slice(LEGAL).reduce((sum, move) => sum + move.probability, 0);
  const cell = (share, kind) => element("span", {}, bar(share ?? 0, kind), element("span", {}, percent(share)));
  const row = (name, share) => [name, cell(share), cell(raw === null ? null : share * (1 - raw)), cell(share * (1 - multiplied))];
  const others = answer.moves.length > LEGAL ? [row(`${answer.moves.length - LEGAL} others`, rest)] : [];
  const made = table(
    "The correct policy, softmax without a mask, and softmax of scores multiplied by the mask",
    ["Move", "Correct", "No mask (raw)", "Multiplied"],
    [
      ...shown.map((move) => row(move.san, move.probability)),
      ...others,
      ["illegal", ...[0, raw, multiplied].map((share) => cell(share, "illegal"))],
    ],
  );
  made.className = "comparison";
  return made;
}

function illegalList(answer) {
  const { moves, slots } = answer.illegal;
  return element(
    "div",
    {},
    element("h3", {}, "Illegal moves without the mask"),
    illegalMoves(moves.slice(0, ILLEGAL)),
    quiet(`${answer.moves.length} of the network's ${answer.moves.length + slots} slots are legal moves here.`),
  );
}

const illegalMoves = (moves) =>
  element(
    "ol",
    { className: "illegal-moves" },
    ...moves.map((move) =>
      element(
        "li",
        {},
        element("strong", {}, written(move.uci)),
        ` ${percent(move.probability)} `,
        element("span", { className: "quiet" }, CAUSES[move.cause] ?? move.cause),
      ),
    ),
  );

const written = (uci) => `${uci.slice(0, 2)}–${uci.slice(2)}`;

const describe = (answer) =>
  `illegal moves ${answer.illegal.moves
    .slice(0, 3)
    .map((move) => `${written(move.uci)} ${percent(move.probability)}`)
    .join(", ")}`;

// Bars of the moves with their probabilities, White's chances beside the board, and the forecast in words.

import { SIDES } from "./match.js";
import { button, element, percent, quiet, refill } from "./dom.js";

const SHOWN = 8;

/** What stands in place of hints in a game against the network. */
export const HIDDEN = "Hidden while you play. \u201cShow hints\u201d shows it.";

let all = false;

/** A bar of a share, from 0 to 1. */
export function bar(share, kind = "") {
  const filled = element("span", { className: `fill ${kind}` });
  filled.style.width = `${(100 * Math.min(1, share)).toFixed(2)}%`;
  return element("span", { className: "bar", "aria-hidden": "true" }, filled);
}

/** The moves of an answer as buttons, most probable first; null for moves that are not to be seen, and `hidden` says why. */
export function showBars(root, moves, { onMove, onLight, next, hidden = HIDDEN }) {
  if (!moves) return refill(root, quiet(hidden));
  if (!moves.length) return refill(root, quiet("The game is over."));
  const rows = moves.slice(0, all ? undefined : SHOWN).map((move, index) => {
    const made = button(
      () => onMove(move.uci),
      {
        className: "move",
        "aria-current": move.uci === next ? "true" : undefined,
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
    return element("li", {}, made);
  });
  const rest = moves.slice(SHOWN),
    words = all ? "Fewer" : `${rest.length} more, ${percent(rest.reduce((sum, move) => sum + move.probability, 0))} in all`;
  const turn = () => {
    all = !all;
    showBars(root, moves, { onMove, onLight, next });
  };
  const more = rest.length ? [button(turn, { className: "more", "aria-expanded": all }, words)] : [];
  refill(root, element("ol", {}, ...rows), ...more);
}

/**
 * White's expected score as a bar whose white part is on White's side, with its number in percent at that end; hidden if
 * undefined, or empty where its place is kept. */
export function showChances(root, score, flip, keeps) {
  root.hidden = score === undefined && !keeps;
  root.classList.toggle("flipped", flip);
  if (score === undefined) return root.replaceChildren();
  const part = (kind, share) => {
    const made = element("span", { className: kind });
    made.style.flexGrow = share;
    return made;
  };
  root.replaceChildren(part("white", score), part("black", 1 - score), element("b", {}, String(Math.round(100 * score))));
  root.setAttribute("aria-label", `White's chances by the engine or the PGN: ${percent(score)}`);
}

/** What the network expects of a game between these players from here, as what it is; "" if it forecasts nothing. */
export function forecastIn(answer, ratings) {
  const value = answer.forecast ?? answer.value;
  if (!value) return "";
  const between = ratings ? `Between White rated ${ratings.white} and Black rated ${ratings.black}` : "Between people";
  if (value.win === null) return `${between}, the network expects ${SIDES[answer.turn]} to score ${percent(value.score)} from here.`;
  const white = answer.turn === "white" ? value.win : value.loss;
  const wins = Math.round(100 * white),
    draws = Math.round(100 * (white + value.draw)) - wins,
    losses = 100 - wins - draws; // rounded each by itself, the three might make 101
  return `${between}, the network expects of 100 games from here: White wins ${wins}, Black ${losses}, ${draws} drawn.`;
}

// The two players beside the board: names, ratings, what they have more of, their clocks; and how the game ended.

import { byId, element } from "./dom.js";
import { ratingOf } from "./split.js";
import { drawing, piecesOf } from "./squares.js";

const WORTH = { p: 1, n: 3, b: 3, r: 5, q: 9 };
const WIDE = matchMedia("(min-width: 56.01rem)"); // as in style.css

/**
 * Shows both players: in analysis above the board; in a game (`playing`) at its ends, or in the side where that is
 * beside the board. `headers` are the PGN's, `clocks` those of the game or null.
 */
export function showPlayers({ headers, fen, flip, playing, clocks }) {
  const [above, below] = flip ? ["white", "black"] : ["black", "white"];
  const strips = { white: strip("White", headers, fen, clocks), black: strip("Black", headers, fen, clocks) };
  const places = Object.fromEntries(["above", "below", "side-above", "side-below"].map((id) => [id, []]));
  if (playing) {
    places[WIDE.matches ? "side-above" : "above"].push(strips[above]);
    places[WIDE.matches ? "side-below" : "below"].push(strips[below]);
  } else places.above.push(strips.white, strips.black);
  for (const [id, all] of Object.entries(places)) byId(id).replaceChildren(...all);
}

/** Shows the clocks again, as time goes by. */
export function showClocks(clocks) {
  for (const clock of document.querySelectorAll(".clock")) {
    const { text, running, low } = clocks.face(clock.dataset.side);
    clock.textContent = text;
    clock.classList.toggle("running", running);
    clock.classList.toggle("low", low);
  }
}

function strip(name, headers, fen, clocks) {
  const side = name.toLowerCase(), rating = ratingOf(headers[`${name}Elo`]);
  const parts = [element("span", { className: `colour ${side}`, role: "img", "aria-label": name }),
    element("strong", {}, (headers[name] ?? "?") === "?" ? name : headers[name]), element("span", { className: "quiet" }, rating ?? ""), material(fen, side)];
  if (clocks) parts.push(element("span", { className: "clock", role: "timer", "aria-label": `${name}'s clock`, "data-side": side }));
  return element("div", { className: "player" }, ...parts);
}

/** What a side has taken more of, as on lichess: the pieces that the other side lacks, and by how many points it is ahead. */
function material(fen, side) {
  const counts = {};
  for (const piece of piecesOf(fen).values()) counts[piece] = (counts[piece] ?? 0) + 1;
  const [own, other] = side === "white" ? ["w", "b"] : ["b", "w"];
  const more = (kind) => (counts[own + kind] ?? 0) - (counts[other + kind] ?? 0);
  const pieces = Object.keys(WORTH).flatMap((kind) => Array(Math.max(0, more(kind))).fill(other + kind));
  const points = Object.entries(WORTH).reduce((sum, [kind, worth]) => sum + worth * more(kind), 0);
  const label = pieces.length ? `ahead by ${points} in material` : "";
  return element("span", { className: "material", ...(points > 0 ? { role: "img", "aria-label": label } : { "aria-hidden": "true" }) },
    ...pieces.map((piece) => drawing(piece)), points > 0 ? `+${points}` : "");
}

/** The card of a game that is over; null for one that is not. `human` is the side of the player. */
export function showResult(ending, human) {
  byId("result").hidden = !ending;
  if (!ending) return;
  const { result, why } = ending;
  const won = result === (human === "white" ? "1-0" : "0-1");
  byId("result-title").textContent = result === "1/2-1/2" ? "Draw" : won ? "You won" : "You lost";
  byId("result-why").textContent = `${result.replace("1/2-1/2", "½-½")} · ${why}`;
}

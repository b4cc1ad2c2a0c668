// The two players at the ends of the board: names, ratings, what they have more of, their clocks; and how the game ended.

import { face } from "./clock.js";
import { byId, element } from "./dom.js";
import { outcomeOf, whyOf } from "./match.js";
import { drawing, piecesOf } from "./squares.js";
import { ratingOf } from "./tree.js";

const WORTH = { p: 1, n: 3, b: 3, r: 5, q: 9 };

/** Shows each player at its end of the board. `headers` are the PGN's; `clocks` what each had left, in ms, "running" for the clocks of
 * the game against the network, or null for none. */
export function showPlayers({ headers, fen, flip, clocks }) {
  byId("above").replaceChildren(strip(flip ? "White" : "Black", headers, fen, clocks));
  byId("below").replaceChildren(strip(flip ? "Black" : "White", headers, fen, clocks));
}

function strip(name, headers, fen, clocks) {
  const side = name.toLowerCase(),
    rating = ratingOf(headers[`${name}Elo`]);
  const parts = [
    element("span", { className: `colour ${side}`, role: "img", "aria-label": name }),
    element("strong", {}, (headers[name] ?? "?") === "?" ? name : headers[name]),
    element("span", { className: "quiet" }, rating ?? ""),
    material(fen, side),
  ];
  if (clocks === "running")
    parts.push(element("span", { className: "clock", role: "timer", "aria-label": `${name}'s clock`, "data-side": side }));
  else if (clocks?.[side] !== undefined)
    parts.push(element("span", { className: "clock", "aria-label": `${name}'s clock` }, face(clocks[side])));
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
  return element(
    "span",
    { className: "material", ...(points > 0 ? { role: "img", "aria-label": label } : { "aria-hidden": "true" }) },
    ...pieces.map((piece) => drawing(piece)),
    points > 0 ? `+${points}` : "",
  );
}

/** The card of a game against the network that is over; null for none. */
export function showResult(match) {
  byId("result").hidden = !match;
  if (!match) return;
  byId("result-title").textContent = outcomeOf(match);
  byId("result-kept").hidden = match.kept !== "stored";
  byId("result-listed").hidden = match.kept !== "listed";
  byId("result-why").textContent = whyOf(match.ending);
}

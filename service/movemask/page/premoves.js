// Moves made ahead, while the network thinks: where a piece could go on an empty board. The service judges them later.

import { FILES } from "./squares.js";

const GOES = {
  // by the distance across and up; `up` counts from the player's side
  n: (x, y) => x * y === 2,
  b: (x, y) => x === y,
  r: (x, y) => x === 0 || y === 0,
  q: (x, y) => x === y || x === 0 || y === 0,
  k: (x, y) => Math.max(x, y) === 1,
};

/** The premoves of a colour ("w" or "b") by the square that they start from, as `{uci, text, premove: true}`. */
export function premovesOf(pieces, colour) {
  const own = [...pieces].filter(([, piece]) => piece[0] === colour);
  return new Map(
    own.map(([from, piece]) => [
      from,
      squares()
        .filter((to) => to !== from && goes(piece, from, to))
        .map((to) => ({ uci: from + to, text: named(piece[1], from, to), premove: true })),
    ]),
  );
}

const squares = () => [...FILES].flatMap((file) => [1, 2, 3, 4, 5, 6, 7, 8].map((rank) => file + rank));

/** A move in SAN, as far as it is known without the board that it will be played on. */
function named(kind, from, to) {
  const across = FILES.indexOf(to[0]) - FILES.indexOf(from[0]);
  if (kind === "p") return across ? `${from[0]}x${to}` : to;
  if (kind === "k" && Math.abs(across) === 2) return across > 0 ? "O-O" : "O-O-O";
  return kind.toUpperCase() + to;
}

function goes([colour, kind], from, to) {
  const x = Math.abs(FILES.indexOf(to[0]) - FILES.indexOf(from[0])),
    home = colour === "w" ? 1 : 8;
  const up = (Number(to[1]) - Number(from[1])) * (colour === "w" ? 1 : -1);
  if (kind === "p") return (up === 1 && x <= 1) || (up === 2 && x === 0 && Math.abs(Number(from[1]) - home) === 1);
  const castles = kind === "k" && up === 0 && x === 2 && from === `e${home}`;
  return castles || GOES[kind](x, Math.abs(up));
}

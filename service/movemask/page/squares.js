// Squares, pieces and arrows as they are drawn. Which moves there are, only the service says.

import { svg } from "./dom.js";

/** Where the drawings of the pieces are. */
const DRAWINGS = new URL("pieces.svg", import.meta.url).href;

const NAMES = { p: "pawn", n: "knight", b: "bishop", r: "rook", q: "queen", k: "king" };

export const FILES = "abcdefgh";

/** Column and row of a square, seen from White's side or from Black's. */
export function place(square, flip) {
  const column = FILES.indexOf(square[0]),
    row = 8 - Number(square[1]);
  return flip ? [7 - column, 7 - row] : [column, row];
}

/** The square in a column and a row; null beside the board. */
export function squareAt(column, row, flip) {
  if (Math.min(column, row) < 0 || Math.max(column, row) > 7) return null;
  return flip ? FILES[7 - column] + (row + 1) : FILES[column] + (8 - row);
}

/** The names of files and ranks at the edges of a board. */
export function coordinates(flip) {
  const along = [...Array(8).keys()],
    shade = (index) => (index % 2 ? "on-light" : "on-dark");
  return svg(
    "svg",
    { viewBox: "0 0 8 8", class: "coordinates", "aria-hidden": "true" },
    ...along.map((row) => svg("text", { x: 0.04, y: row + 0.23, class: shade(row + 1) }, squareAt(0, row, flip)[1])),
    ...along.map((column) =>
      svg("text", { x: column + 0.96, y: 7.94, "text-anchor": "end", class: shade(column) }, squareAt(column, 7, flip)[0]),
    ),
  );
}

/** The ranks of a FEN, the eighth first, with a blank for each empty square. */
export const ranksOf = (fen) =>
  fen
    .split(/\s/, 1)[0]
    .replace(/\d/g, (count) => " ".repeat(count))
    .split("/");

/** The pieces of a FEN by square, such as "wk". */
export function piecesOf(fen) {
  const pieces = ranksOf(fen).flatMap((rank, row) => [...rank].map((letter, column) => [FILES[column] + (8 - row), letter]));
  return new Map(
    pieces
      .filter(([, letter]) => letter.toLowerCase() in NAMES)
      .map(([square, letter]) => [square, (letter < "a" ? "w" : "b") + letter.toLowerCase()]),
  );
}

export const pieceName = (piece) => `${piece[0] === "w" ? "white" : "black"} ${NAMES[piece[1]]}`;

/** A piece as an image of size 1. */
export const drawing = (piece, attributes = {}) =>
  svg("svg", { viewBox: "0 0 45 45", "aria-hidden": "true", ...attributes }, svg("use", { href: `${DRAWINGS}#${piece}` }));

/** An arrow on a board of size 8, as wide as its probability, with a label; `kind` is "legal" or "illegal". */
export function arrow({ uci, probability, kind, label }, flip) {
  const [fromX, fromY] = place(uci.slice(0, 2), flip),
    [toX, toY] = place(uci.slice(2, 4), flip);
  const length = Math.hypot(toX - fromX, toY - fromY);
  if (!length) return svg("g");
  const width = 0.05 + 0.2 * Math.sqrt(probability),
    head = width + 0.22;
  const [alongX, alongY] = [(toX - fromX) / length, (toY - fromY) / length];
  const [endX, endY] = [toX + 0.5 - alongX * 0.1, toY + 0.5 - alongY * 0.1];
  const [neckX, neckY] = [endX - alongX * head, endY - alongY * head];
  const [acrossX, acrossY] = [(-alongY * head) / 2, (alongX * head) / 2];
  const [x, y] = [fromX + 0.5 + alongX * 0.2, fromY + 0.5 + alongY * 0.2];
  const point = (px, py) => `${px.toFixed(3)},${py.toFixed(3)}`;
  const half = 0.07 * (label?.length ?? 0); // of the label's width, so that it stays on the board
  const written = label
    ? [svg("text", { x: Math.min(8 - half, Math.max(half, toX + 0.5)), y: toY + 0.9, "text-anchor": "middle" }, label)]
    : [];
  return svg(
    "g",
    { class: `arrow ${kind}`, "data-uci": uci },
    svg(
      "g",
      { opacity: (0.5 + 0.45 * Math.min(1, 2 * probability)).toFixed(2) },
      svg("path", { d: `M${point(x, y)}L${point(neckX, neckY)}`, "stroke-width": width.toFixed(3) }),
      svg("path", {
        class: "head",
        d: `M${point(endX, endY)}L${point(neckX + acrossX, neckY + acrossY)}L${point(neckX - acrossX, neckY - acrossY)}Z`,
      }),
    ),
    ...written,
  );
}

/** The dark squares, as a dashed line along each row. */
const DARK = [...FILES].map((_, row) => `M${(row + 1) % 2},${row + 0.5}H8`).join("");

/** A whole position as one small image. */
export function picture(fen, { arrows = [], flip = false, label }) {
  const drawn = [...piecesOf(fen)].map(([square, piece]) => {
    const [x, y] = place(square, flip);
    return drawing(piece, { x, y, width: 1, height: 1 });
  });
  const shape = { viewBox: "0 0 8 8", class: "miniature", role: "img", "aria-label": label };
  return svg("svg", shape, svg("path", { class: "dark", d: DARK }), ...drawn, ...arrows.map((one) => arrow(one, flip)));
}

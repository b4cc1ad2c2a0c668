import assert from "node:assert/strict";
import { test } from "node:test";
import { percent, wrong } from "./modules.js";

/** What a player reads of an error of the service. */
const read = (detail) => wrong(Object.assign(new Error(detail), { name: "Problem", status: 422, title: "Invalid" }));

test("what a FEN lacks is said without its parser's terms", () => {
  for (const [detail, words] of [
    ["expected 8 columns per row in position part of fen: '9/8'", "This FEN cannot be read: each rank needs eight squares."],
    ["invalid castling part in fen: 'x'", "This FEN cannot be read: what may castle is written as K, Q, k and q, or as -."],
    ["'8/8 w' is cut short: no castling", "This FEN cannot be read: '8/8 w' is cut short: no castling."],
    ["'x' is not a valid position: EMPTY, NO_WHITE_KING", "This position cannot be: the board is empty."],
    [
      "'x' is not a valid position: NO_WHITE_KING, BAD_CASTLING_RIGHTS; valid as Chess960: ask with chess960 true",
      "This position cannot be: White has no king, and king and rook do not stand where that castling needs them.",
    ],
  ]) {
    assert.equal(read(`fen: ${detail}`), words);
  }
});

test("what a PGN's FEN lacks, and a pass, are said in the same words", () => {
  const about = "This PGN cannot be read:";
  assert.equal(read("pgn: game 1: 'x' is not a valid position: NO_WHITE_KING"), `${about} in its FEN, White has no king.`);
  assert.equal(
    read("pgn: game 1: expected 8 rows in position part of fen: 'x'"),
    `${about} in its FEN, the board needs eight ranks with a / between them.`,
  );
  assert.equal(
    read("pgn: game 1: '--' is a pass, which is not legal in 'x', at Black's move 1"),
    `${about} Black's move 1, --, is a pass, which is not legal.`,
  );
  assert.equal(read("pgn: there is no game"), "This is neither a FEN nor a PGN.");
});

test("a share has two digits that matter, three from ten percent on", () => {
  const shares = [0.6327, 0.0995, 0.0239, 0.004, 0.00031, 0.0000099, 0, 1, 0.99996, null];
  const texts = shares.map((share) => percent(share).replaceAll("\u00a0", " "));
  assert.deepEqual(texts, ["63.3 %", "10.0 %", "2.4 %", "0.40 %", "0.031 %", "< 0.001 %", "0 %", "100 %", "99.99 %", "–"]);
});

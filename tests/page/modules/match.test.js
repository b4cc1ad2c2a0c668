import assert from "node:assert/strict";
import { test } from "node:test";
import { match } from "./modules.js";

const begun = (more = {}) =>
  match.newMatch({
    id: "a",
    date: "2026.11.27",
    started: "2026-11-27T10:00:00Z",
    site: "here",
    model: "net",
    you: "white",
    rating: 1500,
    level: { strength: 0, rating: 1200, temperature: 1 },
    control: "",
    pace: "once",
    ...more,
  });
const played = (one, ...moves) => moves.reduce((game, uci) => match.moved(game, { uci, san: uci, now: 0, thought: 0 }), one);
const tags = (one) => match.treeOf(one).headers;

test("the first move of each side is free; then the mover's clock loses what was thought, and gains the increment", () => {
  let game = played(begun({ control: "3+2" }), "e2e4", "e7e5");
  assert.equal(game.running, null);
  game = match.judged(game, { fen: "x", now: 1000 });
  assert.equal(game.running, "white");
  game = match.moved(game, { uci: "g1f3", san: "Nf3", now: 11_000 });
  assert.equal(game.left.white, 180_000 - 10_000 + 2000);
  game = match.moved(game, { uci: "b8c6", san: "Nc6", now: 60_000, thought: 3000 }); // the answer was late
  assert.equal(game.left.black, 180_000 - 3000 + 2000);
});

test("a player's time runs out, and a network that has only its king wins nothing by it", () => {
  const game = match.judged(played(begun({ control: "1+0" }), "e2e4", "e7e5"), { fen: "4k3/8/8/8/8/8/8/4K2R w - - 0 1", now: 0 });
  assert.deepEqual(match.flagged(game, 61_000).ending, { result: "1/2-1/2", how: "time" });
  assert.equal(match.flagged(game, 59_000), game);
  const other = { ...game, standing: { fen: "4kq2/8/8/8/8/8/8/4K2R w - - 0 1" } };
  assert.deepEqual(match.flagged(other, 61_000).ending, { result: "0-1", how: "time" });
});

test("a move is taken back with its reply", () => {
  const game = match.takenBack(played(begun(), "e2e4", "e7e5", "g1f3", "b8c6"), 0);
  assert.deepEqual(game.moves, ["e2e4", "e7e5"]);
  const none = begun();
  assert.equal(match.takenBack(none, 0), none);
});

test("a draw is too early at the start of a game, and not in an endgame that is played from a position", () => {
  assert.match(match.drawOffered(begun(), 0).remark, /too early/);
  const endgame = match.judged(begun({ fen: "4k2r/8/8/8/8/8/8/4K2R w - - 0 1" }), { fen: "x", score: 0.5, now: 0 });
  assert.deepEqual(match.drawOffered(endgame, 0).ending, { result: "1/2-1/2", how: "agreement" });
  const better = match.judged(endgame, { fen: "x", score: 0.3, now: 0 });
  assert.match(match.drawOffered(better, 0).remark, /declines your draw/);
});

test("the PGN says what really plays: a rating, a strength, or neither for a network that knows no ratings", () => {
  assert.deepEqual([tags(begun()).Black, tags(begun()).BlackElo, tags(begun()).White], ["net", "1200", "You"]);
  assert.equal(tags(begun({ level: { strength: 1800, rating: 1400, temperature: 0.5 } })).BlackElo, "1800");
  const unrated = begun({ level: { strength: 0, rating: null, temperature: 1 } });
  assert.equal("BlackElo" in tags(unrated), false);
  assert.deepEqual(match.ratingsOf(unrated, "black"), { self: 1500, opponent: 1500 });
});

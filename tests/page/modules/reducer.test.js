import assert from "node:assert/strict";
import { test } from "node:test";
import { START, Tree, hashOf, match, readHash, reduce, trying, writeHash } from "./modules.js";

const after = (...events) => events.reduce((state, event) => reduce(state, { now: 0, ...event }), START);
const begun = (more) => ({
  type: "begin",
  match: match.newMatch({
    id: "a",
    model: "net",
    you: "black",
    rating: 1300,
    level: { strength: 0, rating: 1900, temperature: 1 },
    control: "",
    pace: "once",
    ...more,
  }),
});
const mine = { type: "load", tree: new Tree({ headers: { White: "You" } }).grown(["e2e4"]), you: "white", white: 1700 };
const reset = { type: "load", tree: new Tree() };

test("nothing of one game is left in the next", () => {
  const black = after(begun());
  assert.deepEqual([black.flip, black.you, black.black, black.white], [true, "black", 1300, 1900]);
  const white = reduce(black, { now: 0, ...mine });
  assert.deepEqual([white.flip, white.you, white.black, white.white, white.game], [false, "white", 1500, 1700, ""]);
  const empty = reduce(white, { now: 0, ...reset });
  assert.deepEqual([empty.flip, empty.you, empty.black, empty.white, empty.moves], [false, "", 1500, 1500, []]);
});

test("a game against the network goes on while the board shows another, and comes back as it was", () => {
  const back = reduce(after(begun(), mine), { type: "return", now: 0 });
  assert.deepEqual([back.game, back.flip, back.you, back.black], ["a", true, "black", 1300]);
});

test("a game that is given up at once leaves nothing", () => {
  const state = reduce(after(begun({ you: "black" })), { type: "abort", now: 0 });
  assert.deepEqual([state.match, state.flip, state.moves], [null, false, []]);
});

test("a look at one side's verdicts belongs to that game", () => {
  const looked = after(mine, { type: "set", name: "you", value: "black" });
  assert.equal(looked.you, "black");
  assert.equal(reduce(looked, { now: 0, ...mine }).you, "white");
});

test("a link keeps the line, the names, the result and the event", () => {
  const headers = { Event: "Club night", White: "Ann", Black: "You", WhiteElo: "1700", Result: "1-0", Round: "?" };
  const state = after({ type: "load", tree: new Tree({ headers }).grown(["e2e4", "e7e5"]), you: "black" });
  const read = readHash(hashOf(state));
  assert.deepEqual(read.headers, { Event: "Club night", White: "Ann", Black: "Player", WhiteElo: "1700", Result: "1-0" });
  const theirs = reduce(START, { now: 0, ...read });
  assert.deepEqual([theirs.moves, theirs.at, theirs.flip, theirs.you], [["e2e4", "e7e5"], 0, true, "black"]);
  assert.equal(theirs.tree.headers.Event, "Club night");
});

test("the address of the games names the player, and no other does", () => {
  const state = after({ type: "set", name: "player", value: "anna pupil" });
  const games = readHash(hashOf(state, { view: "games" }));
  assert.equal(reduce(START, { now: 0, ...games }).player, "anna pupil");
  const board = readHash(hashOf(state, { view: "position" }));
  assert.deepEqual([reduce(START, { now: 0, ...board }).player, reduce(state, { now: 0, ...board }).player], ["", "anna pupil"]);
});

test("a link to a line that is not the game's does not say how the game ended", () => {
  const headers = { White: "Ann", Result: "0-1", Termination: "Black won by resignation" };
  const ended = after({ type: "load", tree: new Tree({ headers }).grown(["e2e4", "e7e5"]) });
  assert.deepEqual(readHash(hashOf(ended)).headers, headers);
  const tried = reduce({ ...ended, at: 2 }, { type: "play", uci: "g1f3", san: "Nf3", after: "e2e4,e7e5", now: 0 });
  assert.deepEqual(readHash(hashOf(tried)).headers, { White: "Ann" });
});

test("a move along the line stays on it, and another one is a variation", () => {
  const made = (uci, from) => ({ type: "play", uci, san: uci, after: from.join() });
  const along = after(mine, made("e2e4", []));
  assert.deepEqual([along.moves, along.at], [["e2e4"], 1]);
  const other = after(mine, made("d2d4", []));
  assert.deepEqual([other.moves, other.tree.main], [["d2d4"], ["e2e4"]]);
  assert.deepEqual(reduce(other, { type: "undo", now: 0 }).tree.main, ["e2e4"]);
});

test("a better line takes the place of the move that was played, and the game stays beside it", () => {
  const line = [
    { uci: "d2d4", san: "d4" },
    { uci: "d7d5", san: "d5" },
  ];
  const better = after(mine, { type: "better", before: [], line });
  assert.deepEqual([better.moves, better.at, better.tree.main], [["d2d4", "d7d5"], 1, ["e2e4"]]);
  assert.deepEqual(
    better.tree.along(better.moves).map((index) => better.tree.nodes[index].san),
    [undefined, "d4", "d5"],
  );
});

test("who tries again stands before the move, until another is made", () => {
  const state = after(mine, { type: "step", at: 1 }, { type: "again" });
  assert.deepEqual([state.at, trying(state)], [0, true]);
  const made = reduce(state, { type: "play", uci: "d2d4", san: "d4", after: "", now: 0 });
  assert.equal(trying(made), false);
  assert.equal(trying(after(mine)), false);
});

test("another view of the same game is an address, and who tries again still does", () => {
  const state = after(mine, { type: "step", at: 1 }, { type: "again" });
  assert.equal(trying(reduce(state, { now: 0, ...readHash(hashOf(state, { view: "ratings" })) })), true);
});

test("a browser that takes no more addresses for now, as Safari after a hundred in 30 s, stops nothing", () => {
  globalThis.location = { hash: "" };
  globalThis.history = {
    replaceState() {
      throw new DOMException("too many", "SecurityError");
    },
  };
  assert.doesNotThrow(() => writeHash(after(mine), after(mine), { type: "step" }));
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { Tree, firstPly, numbered, turnAfter } from "./modules.js";

test("a tree grows by lines, and its first line stays the main one", () => {
  const tree = new Tree().grown(["e2e4", "e7e5"]).grown(["e2e4", "c7c5"], "c5", { added: true });
  assert.deepEqual(tree.main, ["e2e4", "e7e5"]);
  assert.deepEqual(tree.onwards(["e2e4", "c7c5"]), ["e2e4", "c7c5"]);
  const added = tree.at(["e2e4", "c7c5"]);
  assert.deepEqual(tree.nodes[added], { parent: 1, uci: "c7c5", san: "c5", added: true });
  assert.deepEqual(tree.path(added), ["e2e4", "c7c5"]);
  assert.equal(tree.at(["d2d4"]), undefined);
});

test("a move that is tried after the end of a game is none of it; without a game, the moves that are tried are the line", () => {
  const tried = (headers) => new Tree({ headers }).grown(["e2e4", "e7e5"]).grown(["e2e4", "e7e5", "g1f3"], "Nf3", { added: true });
  assert.deepEqual(tried({ White: "You", Result: "0-1" }).main, ["e2e4", "e7e5"]);
  assert.deepEqual(tried({}).main, ["e2e4", "e7e5", "g1f3"]);
});

test("what is pruned goes with all that follows, and the tree before is as it was", () => {
  const tree = new Tree().grown(["e2e4", "e7e5", "g1f3"]).grown(["d2d4"]);
  const cut = tree.pruned(tree.at(["e2e4"]));
  assert.deepEqual(cut.main, ["d2d4"]);
  assert.deepEqual(tree.main, ["e2e4", "e7e5", "g1f3"]);
});

test("moves get their names, and evaluations are known by their comments", () => {
  const tree = new Tree().grown(["e2e4"]).named(["e2e4"], ["e4"]);
  assert.equal(tree.nodes[1].san, "e4");
  const judged = new Tree({ nodes: [{}, { parent: 0, uci: "e2e4", san: "e4", comment: "good [%eval 0.3] move" }] });
  assert.equal(judged.evaluations, "[%eval 0.3]");
});

test("a FEN says who moves, and at which move it begins", () => {
  const fen = "8/8/8/8/8/2k5/8/K2r4 b - - 0 30";
  assert.equal(turnAfter(fen, 0), "black");
  assert.equal(turnAfter(fen, 1), "white");
  assert.equal(numbered(firstPly(fen)), "30…");
  assert.equal(numbered(firstPly("startpos")), "1.");
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { betterThan, countsOf, keyPlies, surprisingPlies, verdictOf } from "./modules.js";

const SHARES = [800, 1200, 1600, 2000, 2400].map((rating, place) => ({ rating, probability: (5 - place) / 10 }));
const said = (cost, report = {}, ...more) =>
  verdictOf(cost, { probability: 0.394, rank: 2, ...report }, ...more).text.replaceAll("\u00a0", " ");

test("what a move cost stands beside who plays it, at another rating too if it is a key move", () => {
  assert.equal(
    said({ lost: 0.31, mark: "blunder", source: "engine", nodes: 120000 }, {}, 1500, SHARES),
    "It cost 31 points, by the engine at 120,000 nodes. 39.4 % of players rated 1500 play it, at 2000 20.0 %.",
  );
  assert.match(said({ lost: 0.31 }, {}, 2300, SHARES), /rated 2300 play it, at 2000 20\.0 %\.$/); // nobody is that much stronger
  assert.match(said({ lost: 0.31 }, { rank: 1 }), /of players play it, more than any other move\.$/);
  const rare = SHARES.map(({ rating }) => ({ rating, probability: 0.00031 }));
  assert.match(said({ lost: 0.31 }, { probability: 0.0001 }, 1500, rare), /0\.010 % of players rated 1500 play it, at 2000 0\.031 %\.$/);
  assert.match(
    said({ lost: 0.01, source: "rules" }, { probability: 0.0001 }, 1500),
    /^It cost 1 point, by the rules\. 0\.010 % of players rated 1500 play it\.$/,
  );
});

test("points are rounded down, as marks begin at whole points", () => {
  assert.match(said({ lost: 0.0996, mark: "inaccuracy" }), /^It cost 9 points,/);
  assert.match(said({ lost: 0.29, mark: "blunder" }), /^It cost 29 points,/); // 100 times that is 28.999999999999996
});

test("a move is praised where it is clearly better than the one that was played, and no mistake itself", () => {
  assert.equal(betterThan("Nf3", 0.065, { lost: 0.004 }), "Better than Nf3, which cost 6 points. ");
  assert.equal(betterThan("Nf3", 0.05, { lost: 0.01 }), ""); // hardly better
  assert.equal(betterThan("Nxf5", 0.39, { lost: 0.3, mark: "blunder" }), ""); // another blunder
  assert.equal(betterThan(undefined, undefined, { lost: 0.1 }), "");
});

test("key moves are the costliest mistakes in the order of the game, or of none, the costliest inaccuracies", () => {
  const costs = [0.2, 0.06, undefined, 0.11, 0.3, 0.4, 0.5, 0.6].map((lost) => ({
    lost,
    mark: lost === undefined ? undefined : lost < 0.1 ? "inaccuracy" : "blunder",
  }));
  assert.deepEqual(keyPlies(costs, true), [0, 4, 5, 6, 7]);
  assert.deepEqual(keyPlies(costs.slice(1, 3), true), [0]);
  assert.deepEqual(keyPlies(costs.slice(1, 3), false), []); // a mistake may still be found
  assert.deepEqual(keyPlies([{ fact: "allows_mate" }, { fact: "draws" }], false), [0]);
});

test("surprising are the five rarest of the moves that few would play, in the order of the game", () => {
  const reports = [0.1, 0.5, 0.01, 0.19, 0.02, 0.03, 0.04, 0.2].map((probability) => ({ probability, rank: 2 }));
  assert.deepEqual(surprisingPlies(reports), [0, 2, 4, 5, 6]);
  assert.deepEqual(surprisingPlies([{}, { probability: 0.1, rank: 1 }]), []); // the likeliest move is none
});

test("what costs nothing is not praised", () => {
  assert.equal(said({ lost: 0.004, source: "evaluations" }), "It cost nothing, by the PGN's evaluations. 39.4 % of players play it.");
});

test("where nothing tells the cost, nothing is said of it, but what the rules know is", () => {
  const verdict = verdictOf({ fact: "allows_mate", reason: "allows mate in one" }, { probability: 0.2, rank: 2 });
  assert.deepEqual([verdict.kind, verdict.name, verdict.cost], ["fault", "", ""]);
  assert.match(verdict.text, /^It allows mate in one\. 20\.0.% of players play it\.$/);
  assert.equal(verdictOf({}, { probability: 0.2, rank: 2 }).kind, "");
});

test("a mate in one that is allowed in a lost game is no fault", () => {
  assert.equal(verdictOf({ lost: 0.01, fact: "allows_mate" }, { probability: 0.2, rank: 2 }).kind, "");
});

test("inaccuracies, mistakes and blunders are counted", () => {
  const kinds = ["mistake", "", "blunder", "blunder"].map((kind) => ({ kind }));
  assert.equal(countsOf(kinds), "0 inaccuracies, 1 mistake, 2 blunders");
});

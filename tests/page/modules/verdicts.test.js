import assert from "node:assert/strict";
import { test } from "node:test";
import { counted, verdictOf } from "./modules.js";

const said = (report, rating) => verdictOf({ probability: 0.394, rank: 1, ...report }, rating).text.replaceAll("\u00a0", " ");

test("a stalemate is a blunder, however many people play it", () => {
  const text = said({ lost: 0.47, mark: "blunder", fact: "stalemates", better: { san: "Kg6" } }, 1500);
  assert.equal(
    text,
    "It stalemates. It costs 47 points of 100. 39.4 % of players rated 1500 would play it, more than any other move. Kg6 costs less.",
  );
});

test("what costs nothing is not praised", () => {
  assert.equal(said({ lost: 0.004, rank: 2 }), "It costs nothing. 39.4 % of players would play it.");
  assert.match(said({ lost: 0.01 }), /^It costs 1 point of 100\./);
});

test("the network's judgement is called so, as it overlooks some", () => {
  assert.match(said({ lost: 0, source: "network" }), /^The network sees no cost\. /);
  assert.match(said({ lost: 0.07, source: "network" }), /^By the network's judgement, it costs 7 points of 100\. /);
  assert.match(said({ lost: 0.07, source: "evaluations" }), /^It costs 7 points of 100\. /);
});

test("where nothing tells the cost, it is unknown, and an avoidable mate in one is a mistake all the same", () => {
  const verdict = verdictOf({ probability: 0.0001, rank: 20, mark: "mistake", fact: "allows_mate" });
  assert.equal(verdict.cost, "Mistake, unknown");
  assert.match(verdict.text, /^It allows mate in one\. What it cost is unknown.* Hardly any players would play it\.$/);
});

test("mistakes and blunders are counted", () => {
  const kinds = ["mistake", "", "blunder", "blunder"].map((kind) => ({ kind }));
  assert.equal(counted(kinds), "1 mistake, 2 blunders");
});

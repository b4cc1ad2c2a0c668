import assert from "node:assert/strict";
import { test } from "node:test";
import { clocksAfter, command, controlOf, face, inSeconds, remaining } from "./modules.js";

test("a control is minutes and seconds a move; without minutes a side begins with one increment", () => {
  assert.deepEqual(controlOf("3+2"), { base: 180_000, increment: 2000 });
  assert.deepEqual(controlOf("0+5"), { base: 5000, increment: 5000 });
  assert.equal(inSeconds("0.25+0"), "15+0");
});

test("only the clock that runs loses time, and none goes below nothing", () => {
  const clocks = { left: { white: 5000, black: 5000 }, running: "white", since: 1000 };
  assert.equal(remaining(clocks, "white", 3000), 3000);
  assert.equal(remaining(clocks, "black", 3000), 5000);
  assert.equal(remaining(clocks, "white", 9000), 0);
});

test("a clock shows tenths in the last ten seconds, and PGN has whole seconds", () => {
  assert.equal(face(61_500), "1:01");
  assert.equal(face(9_940), "0:09.9");
  assert.equal(command(3_723_000), "[%clk 1:02:03]");
});

test("each side has what its last move left it, and before it what the control gives", () => {
  const nodes = ["[%clk 0:04:58]", "[%clk 0:05:01] good", undefined, "[%clk 1:00:00.5]"].map((comment) => ({ comment }));
  assert.deepEqual(clocksAfter([], 0, "300+3"), { white: 300_000, black: 300_000 });
  assert.deepEqual(clocksAfter(nodes.slice(0, 1), 0, "300+3"), { white: 298_000, black: 300_000 });
  assert.deepEqual(clocksAfter(nodes.slice(0, 3), 0, "40/7200:3600"), { white: 298_000, black: 301_000 });
  assert.deepEqual(clocksAfter(nodes, 1), { white: 3_600_500, black: 298_000 });
  assert.deepEqual(clocksAfter([{}], 0), { white: undefined, black: undefined });
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { forecastIn } from "./modules.js";

test("of 100 games that are forecast, 100 are told", () => {
  const told = (turn, win, draw, loss) => {
    const words = forecastIn({ turn, value: { win, draw, loss } }, null);
    return words
      .match(/White wins (\d+), Black (\d+), (\d+) drawn/)
      .slice(1)
      .map(Number);
  };
  assert.deepEqual(told("white", 0.3353, 0.3294, 0.3353), [34, 34, 32]);
  assert.deepEqual(told("black", 0.25, 0.25, 0.5), [50, 25, 25]);
  for (let win = 0; win <= 1; win += 0.005) {
    for (let draw = 0; draw <= 1 - win; draw += 0.005) {
      const [wins, losses, draws] = told("white", win, draw, 1 - win - draw);
      assert.equal(wins + losses + draws, 100);
      assert.ok([wins - 100 * win, losses - 100 * (1 - win - draw), draws - 100 * draw].every((error) => Math.abs(error) <= 1 + 1e-9));
    }
  }
});

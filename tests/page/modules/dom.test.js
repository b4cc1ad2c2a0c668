import assert from "node:assert/strict";
import { test } from "node:test";
import { lasting } from "./modules.js";

test("a time to wait is said in round numbers", () => {
  const said = {
    0.5: "less than a minute",
    1.2: "about 1 minute",
    7.6: "about 8 minutes",
    18.6: "about 20 minutes",
    200: "about 3 hours",
  };
  for (const [minutes, words] of Object.entries(said)) assert.equal(lasting(60_000 * Number(minutes)), words);
});

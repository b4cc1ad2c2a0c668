import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fenIn, isPosition, read } from "./modules.js";

const field = new URL("../../data/field/fen-cases.jsonl", import.meta.url);
const cases = readFileSync(field, "utf8").trim().split("\n").map(JSON.parse);

test("a FEN is found in addresses, in quotation marks and behind a label", () => {
  const wrapped = cases.filter(({ text, line }) => line && !/^[1-8]|[\n[,]/.test(text));
  assert(wrapped.length > 9);
  for (const { text, line } of wrapped) {
    assert.equal(fenIn(text).split(" ").slice(0, 6).join(" "), line, text);
    assert(isPosition(text));
  }
});

test("an EPD stays whole for the service", () => {
  const epd = "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - bm e5; hmvc 3;";
  assert.equal(fenIn(epd), epd);
});

test("an address of another variant or without a FEN, and a PGN, are no positions", () => {
  assert.throws(() => fenIn(cases.find(({ line_error }) => line_error).text), /atomic, which has other rules/);
  for (const text of ["https://lichess.org/AbCdEfGh", '[FEN "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1"] 1. e4 *', "1. e4 e5 1/2-1/2"]) {
    assert.equal(fenIn(text), undefined);
  }
});

test("the address of a game gets the steps to copy its PGN", async () => {
  for (const [address, words] of [
    ["https://lichess.org/AbCdEfGh", "“Share & export” and copy the PGN. Then paste it here."],
    ["www.chess.com/game/live/1234", "press “Share”, open “PGN” and copy it. Then paste it here."],
    ["https://notlichess.org/x", "notlichess.org. Copy its PGN there and paste it here."],
  ]) {
    await assert.rejects(read(address), ({ message }) => message.endsWith(words), address);
  }
});

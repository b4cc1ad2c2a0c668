import assert from "node:assert/strict";
import { test } from "node:test";
import { Costs, START, Tree, game, reduce, useKey } from "./modules.js";

Object.assign(globalThis, { document: { baseURI: "http://page/" }, sessionStorage: { getItem: () => null, removeItem() {} } });

// An engine that has stopped is asked again in a minute, which no test waits for.
const { setTimeout } = globalThis;
Object.assign(globalThis, { setTimeout: (...given) => (given[1] < 60_000 ? setTimeout(...given) : setTimeout(...given).unref()) });

const ignored = () => {};

const of = (...moves) => ({ ...START, ...game({ tree: new Tree({ headers: { White: "Ann" } }).grown(moves) }) });
const A = of("e2e4", "f7f6"),
  B = of("e2e4", "e7e5");

/** The lines of an answer: at first nothing is known, then a position is evaluated at a time, from the end, as far as the engine comes. */
function answer(moves, comes = moves + 1) {
  const engine = (done) => comes !== null && { done, of: moves + 1 };
  const cost = (ply) => ({ ply, lost: ply / 10, mark: "blunder" });
  const first = { games: [{ moves: [...Array(moves).keys()].map((ply) => ({ ply: ply + 1 })), scores: [null, null, null], moments: [] }] };
  const lines = [{ ...first, engine: engine(0) || null }];
  for (let done = 1; done <= (comes ?? 0); done++) {
    const position = moves + 1 - done;
    const costs = [...(position ? [{ ply: position }] : []), ...(done > 1 ? [cost(position + 1)] : [])];
    lines.push({ position, score: 0.5, costs, engine: engine(done) });
  }
  return [...lines, ...(comes ? [{ moments: [{ ply: moves }] }] : [])];
}

/** Reads games one after the other, each with what the service answers; undefined where it is not to be asked. */
async function read(costs, ...games) {
  for (const [state, lines] of games) {
    let asked = false;
    globalThis.fetch = async () => {
      asked = true;
      return new Response(lines?.map((line) => `${JSON.stringify(line)}\n`).join(""));
    };
    costs.leave(state);
    await costs.readMain(state);
    assert.equal(asked, lines !== undefined);
  }
}

const marks = (costs, state) => [1, 2].map((index) => costs.of(state, index).mark);

test("what a move cost is still known after another game with the same first moves has been looked at", async () => {
  const costs = new Costs(ignored);
  await read(costs, [A, answer(2)], [B, answer(2).slice(0, 2)], [A, undefined]);
  assert.deepEqual(marks(costs, A), ["blunder", "blunder"]);
});

test("an engine that has failed is asked again when the game comes back, and not at every step", async () => {
  const costs = new Costs(ignored);
  await read(costs, [A, answer(2, 2)], [A, undefined], [B, answer(2, null)], [B, undefined]);
  assert.deepEqual(marks(costs, A), [undefined, "blunder"]);
  assert.deepEqual(costs.review(B), {
    engine: null,
    moments: [],
    accuracy: { white: undefined, black: undefined },
    summary: null,
    finished: true,
  });
  await read(costs, [A, answer(2, null)]);
  assert.deepEqual(marks(costs, A), [undefined, "blunder"]);
  await read(costs, [B, answer(2)], [A, answer(2)], [B, undefined], [A, undefined]);
  assert.deepEqual([marks(costs, A), marks(costs, B)], [Array(2).fill("blunder"), Array(2).fill("blunder")]);
});

test("what was judged stays where an engine that rests is asked again", async () => {
  const costs = new Costs(ignored);
  await read(costs, [A, answer(2, 2)]);
  costs.leave();
  await read(costs, [A, answer(2, 0)]);
  assert.deepEqual(costs.review(A).engine, { done: 2, of: 3, rests: true });
  assert.deepEqual(marks(costs, A), [undefined, "blunder"]);
});

test("a move that the engine could not judge is judged when it can", async () => {
  const costs = new Costs(ignored),
    tried = reduce({ ...A, at: 2 }, { type: "play", uci: "d2d4", san: "d4", after: "e2e4,f7f6", now: 0 });
  const answers = [{ fen: "8/8/8/8/8/8/8/8 w - - 0 3" }, { games: [{ moves: [{ ply: 1 }], scores: [null, null] }] }];
  globalThis.fetch = async () => new Response(JSON.stringify(answers.shift()));
  await costs.judge(tried);
  assert.equal(costs.scores(tried, tried.moves).at(-1), undefined);
  useKey(""); // forgets the answers, as a minute does
  answers.push({ fen: "8/8/8/8/8/8/8/8 w - - 0 3" }, { games: [{ moves: [{ ply: 1, lost: 0 }], scores: [0.5, 0.5] }] });
  await costs.judge(tried);
  assert.equal(costs.scores(tried, tried.moves).at(-1), 0.5);
});

test("costs of a deeper search stay when the same game is asked for again", async () => {
  const costs = new Costs(ignored),
    line = (lost, nodes) => ({ position: 1, score: 0.5, costs: [{ ply: 1, lost, nodes }], engine: { done: 1, of: 3 } });
  await read(costs, [A, [answer(2)[0], line(0.1, 5000), line(0.2, 120000)]]);
  assert.equal(costs.of(A, 1).lost, 0.2);
  costs.leave();
  await read(costs, [A, [answer(2)[0], line(0.1, 5000)]]);
  assert.equal(costs.of(A, 1).lost, 0.2);
});

test("what the engine finds is drawn at once at first and at the end, and between at most five times a second", async () => {
  let drawn = 0;
  await read(new Costs(() => drawn++), [A, answer(2)]);
  assert.equal(drawn, 2);
});

test("the report on a game is handed on before the engine has looked at it", async () => {
  const order = [],
    costs = new Costs(ignored, (state, found) => order.push([state, found.moves.length]));
  globalThis.fetch = async () =>
    new Response(
      answer(2)
        .map((line) => `${JSON.stringify(line)}\n`)
        .join(""),
    );
  const done = costs.readMain(A).then(() => order.push("done"));
  await costs.until("reported", A);
  assert.deepEqual(order, [[A, 2]]);
  await costs.until("searched", A);
  await costs.until("reported", B); // which nobody has asked for
  await done;
});

// What the moves of games cost, by the service's engine or the PGN's evaluations, kept by the moves that lead there.

import { remembered, stream } from "./api.js";
import { keyOf, plainPgn, question } from "./reports.js";
import { named, played } from "./state.js";
import { Tree, evaluationOf } from "./tree.js";

const GAMES = 6; // whose costs are kept
const REDRAW = 200; // ms between two drawings of what the engine finds
const PAUSE = 60_000; // ms that the service leaves an engine alone that has failed

/** A game, as far as costs depend on it; its key moves' likelihoods depend on the network. */
const gameOf = ({ model, tree }) => JSON.stringify([model, tree.fen, tree.chess960, tree.evaluations]);

/** Notes what a move cost, unless it is known from a deeper search. */
function learn({ moves }, key, cost) {
  const before = moves.get(key);
  const deeper = cost.lost !== undefined && (cost.nodes ?? Infinity) >= (before?.nodes ?? Infinity);
  if (before?.lost === undefined || deeper) moves.set(key, cost);
}

/** Whether a pointer is held down: what is drawn again meanwhile would not get its click. */
let pressed = false;
for (const type of ["pointerdown", "pointerup", "pointercancel"])
  globalThis.addEventListener?.(type, () => (pressed = type === "pointerdown"), true);

/** Whether the engine has stopped before it was done with a review. */
export const isCut = ({ finished, engine }) => finished && engine && engine.done < engine.of;

/** Whether the engine has done all that it was asked for. */
const isDone = (review) => Boolean(review?.finished && review.engine && !isCut(review));

/** A promise, and what resolves it. */
function moment() {
  let resolve = () => {};
  const promise = new Promise((done) => (resolve = () => done(undefined)));
  return { promise, resolve };
}

export class Costs {
  #known = new Map(); // by game: `{moves, scores, lines}`, each a Map by the key of a node
  #changed;
  #reported;
  #drawing; // the timer of the next drawing
  #drawn = 0; // when that was, or the one before
  #asked = null; // the main line that the engine was asked to look at last, `{key, abort, reported, searched}`, while it is on the board

  /** `changed` is called when something new is to be shown; `reported` gets the service's report on a state's main line. */
  constructor(changed, reported = (_state, _found) => {}) {
    this.#changed = changed;
    this.#reported = reported;
  }

  /** What a move cost: `{lost, source, nodes, mark, fact, reason, line}`, as far as it is known. */
  of(state, index) {
    return this.#of(state).moves.get(state.tree.key(index)) ?? {};
  }

  /** White's expected score after each move of a line, and before the first; undefined where unknown. */
  scores(state, line) {
    const { tree } = state,
      { scores } = this.#of(state);
    return tree.along(line).map((index) => scores.get(tree.key(index)));
  }

  /**
   * How far the main line is read: `{engine, moments, accuracy, summary, finished}`; undefined before it is. `engine` is the
   * service's `{done, of, deeper, of_deeper}`, or null, and `rests` if it has looked at nothing this time; `moments` have the
   * shares of the key moves, and `accuracy` is that of each side.
   */
  review(state) {
    return this.#of(state).lines.get(keyOf(state.tree, state.tree.main));
  }

  /**
   * Resolves once the service has "reported" on the main line, or the engine has "searched" each position of it or has ended; at
   * once if the service is not asked.
   */
  async until(event, state) {
    if (this.#looksAt(state)) await this.#asked[event].promise;
  }

  /** Whether the engine was asked to look at the main line last. */
  #looksAt(state) {
    return this.#asked?.key === gameOf(state) + keyOf(state.tree, state.tree.main);
  }

  /**
   * Has the engine look at the main line; one that it looks at already goes on. What it has not done, it is asked for again after
   * a pause, and when the game comes to the board again. Throws what the service says.
   */
  async readMain(state) {
    const { tree } = state,
      key = gameOf(state) + keyOf(tree, tree.main),
      before = this.review(state);
    if (this.#looksAt(state) || isDone(before)) return;
    this.leave();
    const asked = { key, abort: new AbortController(), reported: moment(), searched: moment() },
      known = this.#of(state),
      nodes = tree.along(tree.main).map((index) => tree.key(index));
    const review = { engine: null, moments: [], accuracy: {}, summary: null, ...before, finished: false };
    this.#asked = asked;
    const take = (line) => {
      const [found] = line.games ?? [];
      if (line.games) {
        if (found.error) throw Object.assign(new Error(found.error.detail), found.error);
        found.moves.forEach((move) => learn(known, nodes[move.ply], move));
        found.scores.forEach((score, ply) => score !== null && known.scores.set(nodes[ply], score));
        known.lines.set(nodes.at(-1), review);
        this.#reported(state, found);
        asked.reported.resolve();
      }
      for (const cost of line.costs ?? []) learn(known, nodes[cost.ply], cost);
      if (line.position !== undefined) known.scores.set(nodes[line.position], line.score);
      // What was judged before stays, also if the engine looks at nothing this time.
      if (line.engine)
        review.engine = { ...line.engine, done: Math.max(line.engine.done, before?.engine?.done ?? 0), rests: !line.engine.done };
      else if (line.games) review.engine = null;
      if (review.engine && review.engine.done === review.engine.of) asked.searched.resolve();
      const { moments, summary } = found ?? line;
      if (moments?.length || !review.moments.length) review.moments = moments ?? [];
      review.summary = summary ?? review.summary;
      review.accuracy = line.accuracy ?? (found ? { white: found.white?.accuracy, black: found.black?.accuracy } : review.accuracy);
      if (line.games) {
        this.#drawn = performance.now();
        this.#changed();
      } else this.#draw();
    };
    const body = { pgn: plainPgn(state, tree.main, evaluationOf), ...named(state), include: ["evaluations", "reasons"] };
    try {
      await stream("v1/games", body, take, asked.abort.signal);
      review.finished = true;
      if (isCut(review)) setTimeout(() => this.#asked === asked && this.again(state).catch(() => {}), PAUSE);
    } catch (error) {
      if (this.#asked === asked) this.#asked = null;
      if (error.name !== "AbortError") throw error;
    } finally {
      asked.reported.resolve();
      asked.searched.resolve();
    }
    clearTimeout(this.#drawing);
    this.#drawing = undefined;
    this.#changed();
  }

  /** Draws what is new, at most five times in a second, and not while a pointer is held down. */
  #draw() {
    this.#drawing ??= setTimeout(
      () => {
        this.#drawing = undefined;
        this.#drawn = performance.now();
        if (pressed) this.#draw();
        else this.#changed();
      },
      this.#drawn + REDRAW - performance.now(),
    );
  }

  /** Has the engine look at the main line again, for what it has not done. */
  again(state) {
    this.leave();
    return this.readMain(state);
  }

  /** Has the engine judge the move that led to the board, whatever came before it. */
  async judge(state) {
    const { tree } = state,
      line = played(state),
      index = tree.at(line),
      known = this.#of(state);
    if (known.scores.has(tree.key(index))) return;
    const { fen } = await remembered("v1/policy", question(state, line.slice(0, -1)));
    const move = { tree: new Tree({ fen, chess960: tree.chess960 }).grown([line.at(-1)]), white: state.white, black: state.black };
    const asked = { pgn: plainPgn(move, [line.at(-1)]), ...named(state), include: ["evaluations", "reasons"] };
    const [{ moves, scores }] = (await remembered("v1/games", asked)).games;
    learn(known, tree.key(index), moves[0]);
    if (scores[1] !== null) known.scores.set(tree.key(index), scores[1]);
    this.#changed();
  }

  /** Stops the engine, unless it looks at the game of a state. */
  leave(state = null) {
    if (state && this.#looksAt(state)) return;
    this.#asked?.abort.abort();
    this.#asked = null;
  }

  #of(state) {
    const game = gameOf(state);
    if (!this.#known.has(game)) this.#known.set(game, { moves: new Map(), scores: new Map(), lines: new Map() });
    if (this.#known.size > GAMES) this.#known.delete(this.#known.keys().next().value);
    return this.#known.get(game);
  }
}

// What the moves of games cost, by the service's engine or the PGN's evaluations, kept by the moves that lead there.

import { remembered, stream } from "./api.js";
import { keyOf, plainPgn, question } from "./reports.js";
import { named, played } from "./state.js";
import { Tree, evaluationOf } from "./tree.js";

const GAMES = 6; // whose costs are kept
const PAUSE = 60_000; // ms that the service leaves an engine alone that has failed

/** A game, as far as costs depend on it; its key moves' likelihoods depend on the network. */
const gameOf = ({ model, tree }) => JSON.stringify([model, tree.fen, tree.chess960, tree.evaluations]);

/** Notes what a move cost; what is known of it already stays, unless the better line comes with it. True if its mark is new. */
function learn({ moves }, key, cost) {
  const before = moves.get(key);
  if (before?.lost === undefined || cost.line) moves.set(key, cost);
  return moves.get(key).mark !== before?.mark;
}

/** Whether the engine has stopped before it was done. */
const isCut = ({ finished, engine }) => finished && engine && engine.done < engine.of;

/** Whether the engine has done all that it was asked for. */
const isDone = (review) => Boolean(review?.finished && review.engine && !isCut(review));

export class Costs {
  #known = new Map(); // by game: `{moves, scores, lines}`, each a Map by the key of a node
  #changed;
  #progressed;
  #asked = null; // the main line that the engine was asked to look at last, `{key, abort}`, while it is on the board

  /** `changed` is called when something new is to be shown, `progressed` when the engine has come further and has marked nothing. */
  constructor(changed, progressed) {
    this.#changed = changed;
    this.#progressed = progressed;
  }

  /** What a move cost: `{lost, source, mark, fact, line}`, as far as it is known. */
  of(state, index) {
    return this.#of(state).moves.get(state.tree.key(index)) ?? {};
  }

  /** White's expected score after each move of a line, and before the first; undefined where unknown. */
  scores(state, line) {
    const { tree } = state,
      { scores } = this.#of(state);
    return tree.along(line).map((index) => scores.get(tree.key(index)));
  }

  /** How far the main line is read: `{engine: {done, of} or null, moments, finished}`; undefined before it is. */
  review(state) {
    return this.#of(state).lines.get(keyOf(state.tree, state.tree.main));
  }

  /**
   * Has the engine look at the main line; one that it looks at already goes on. What it has not done, it is asked for again after
   * a pause, and when the game comes to the board again. Throws what the service says.
   */
  async readMain(state) {
    const { tree } = state,
      key = gameOf(state) + keyOf(tree, tree.main),
      before = this.review(state);
    if (this.#asked?.key === key || isDone(before)) return;
    this.leave();
    const asked = { key, abort: new AbortController() },
      known = this.#of(state),
      nodes = tree.along(tree.main).map((index) => tree.key(index));
    const review = { engine: null, moments: before?.moments ?? [], finished: false };
    this.#asked = asked;
    const take = (line) => {
      if (line.games) {
        const [found] = line.games;
        if (found.error) throw Object.assign(new Error(found.error.detail), found.error);
        found.moves.forEach((move) => learn(known, nodes[move.ply], move));
        found.scores.forEach((score, ply) => score !== null && known.scores.set(nodes[ply], score));
        known.lines.set(nodes.at(-1), review);
      }
      const marked = (line.costs ?? []).filter((cost) => learn(known, nodes[cost.ply], cost));
      if (line.position !== undefined) known.scores.set(nodes[line.position], line.score);
      review.engine = line.engine ?? review.engine;
      review.moments = line.moments ?? (review.moments.length ? review.moments : (line.games?.[0].moments ?? []));
      if (line.games || marked.length) this.#changed();
      else this.#progressed();
    };
    const body = { pgn: plainPgn(state, tree.main, evaluationOf), ...named(state), include: ["evaluations"] };
    try {
      await stream("v1/games", body, take, asked.abort.signal);
      review.finished = true;
      if (isCut(review)) setTimeout(() => this.#asked === asked && this.again(state).catch(() => {}), PAUSE);
    } catch (error) {
      if (this.#asked === asked) this.#asked = null;
      if (error.name !== "AbortError") throw error;
    }
    this.#changed();
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
    const asked = { pgn: plainPgn(move, [line.at(-1)]), ...named(state), include: ["evaluations"] };
    const [{ moves, scores }] = (await remembered("v1/games", asked)).games;
    learn(known, tree.key(index), moves[0]);
    if (scores[1] !== null) known.scores.set(tree.key(index), scores[1]);
    this.#changed();
  }

  /** Stops the engine, unless it looks at the game of a state. */
  leave(state = null) {
    if (state && this.#asked?.key === gameOf(state) + keyOf(state.tree, state.tree.main)) return;
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

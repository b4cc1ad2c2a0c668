// How likely the model finds the moves of games, kept by the moves that lead there and by the ratings.

import { resultOf } from "./answer.js";
import { call, know, remembered } from "./api.js";
import { elo, named, position } from "./state.js";
import { turnAfter } from "./tree.js";

const SETTINGS = 6; // models and ratings whose reports are kept
const AT_ONCE = 64; // positions of a request

/** Everything that reports depend on, besides the moves. */
const settingOf = ({ model, white, black, tree }) => JSON.stringify([model, white, black, tree.fen, tree.chess960]);

export class Reports {
  #known = new Map(); // by setting: what is known of moves and ends by the key of a node, and the keys of the lines that were read
  #openings = new Map(); // by first position and line

  /** What is known of a move: `{probability, rank, surprise}`; else empty. */
  of(state, index) {
    return this.#of(state).moves.get(state.tree.key(index)) ?? {};
  }

  /** The moves of the line on the board with their reports. */
  along(state) {
    const { tree, moves } = state;
    return tree
      .along(moves)
      .slice(1)
      .map((index) => ({ uci: tree.nodes[index].uci, san: tree.nodes[index].san, ...this.of(state, index) }));
  }

  /** The result of the main line, if it has one on the board. */
  result(state) {
    return this.#end(state, state.tree.main)?.result;
  }

  /** Whether the main line was read. */
  isRead(state) {
    return this.#of(state).read.has(keyOf(state.tree, state.tree.main));
  }

  /** The opening of the main line; undefined if it is not known. */
  opening(state) {
    return this.#openings.get(state.tree.fen + keyOf(state.tree, state.tree.main)) ?? undefined;
  }

  /** Notes what an answer says of the position after a line, and of the move that comes next in the tree. */
  note(state, line, answer) {
    const known = this.#of(state),
      { tree } = state,
      index = tree.at(line);
    known.ends.set(tree.key(index), { result: resultOf(answer) });
    for (const child of tree.children(index)) {
      const rank = answer.moves.findIndex(({ uci }) => uci === tree.nodes[child].uci);
      if (rank < 0) continue;
      const { probability } = answer.moves[rank];
      const key = tree.key(child);
      known.moves.set(key, { ...known.moves.get(key), probability, rank: rank + 1, surprise: -Math.log(probability) });
    }
  }

  /** Whether all is known of the line on the board. */
  complete(state) {
    return this.along(state).every(({ rank }) => rank) && (!state.moves.length || Boolean(this.#end(state, state.moves)));
  }

  /** Takes the service's report on the moves of a line. */
  take(state, line, { moves, opening }) {
    const { tree } = state,
      known = this.#of(state),
      indices = tree.along(line);
    known.read.add(keyOf(tree, line));
    this.#openings.set(tree.fen + keyOf(tree, line), opening);
    moves.forEach(({ san, probability, rank, surprise }, ply) => {
      known.moves.set(tree.key(indices[ply + 1]), { san, probability, rank, surprise });
    });
  }

  /** Asks for what is missing of a line: the report on its moves, and the end. Returns the names of the moves. */
  async ask(state, line) {
    const { tree } = state,
      known = this.#of(state),
      key = keyOf(tree, line);
    if (!known.read.has(key)) this.take(state, line, await reportOn(state, line));
    known.ends.set(key, { result: resultOf(await remembered("v1/policy", question(state, line))) });
    return tree
      .along(line)
      .slice(1)
      .map((index) => this.of(state, index).san);
  }

  /** Asks for the positions of the main line together, so that stepping through it asks for nothing. */
  async askAll(state) {
    const { tree } = state,
      known = this.#of(state),
      line = tree.main;
    if (known.whole === keyOf(tree, line)) return;
    known.whole = keyOf(tree, line);
    const { moves } = await reportOn(state, line, ["forecast"]);
    for (let start = 0; start < line.length; start += AT_ONCE) {
      const bodies = line.slice(start, start + AT_ONCE).map((_, place) => question(state, line.slice(0, start + place)));
      const positions = bodies.map(({ model: _model, include: _include, ...position }) => position);
      const { results } = await call("v1/policy/batch", { positions, ...named(state), include: ["san"] });
      results.forEach((result, place) => {
        if (!result.error) know("v1/policy", bodies[place], { ...result, forecast: moves[start + place].forecast });
      });
    }
    know("v1/policy", question(state, line), await remembered("v1/policy", question(state, line)));
  }

  #end(state, line) {
    return this.#of(state).ends.get(keyOf(state.tree, line));
  }

  #of(state) {
    const setting = settingOf(state);
    if (!this.#known.has(setting)) this.#known.set(setting, { moves: new Map(), ends: new Map(), read: new Set() });
    if (this.#known.size > SETTINGS) this.#known.delete(this.#known.keys().next().value);
    return this.#known.get(setting);
  }
}

/** The service's report on a line. Throws what it says. */
async function reportOn(state, line, include = []) {
  const [found] = (await remembered("v1/games", { pgn: plainPgn(state, line), ...named(state), include })).games;
  if (found.error) throw Object.assign(new Error(found.error.detail), found.error);
  return found;
}

/** What is asked of the position after a line, whoever asks: the same question is not sent twice. */
export const question = (state, line) => ({
  ...position(state, line),
  ...named(state),
  elo: elo(state, turnAfter(state.tree.fen, line.length)),
  include: ["san", "forecast"],
});

/** A line as a PGN with the ratings, for the service to report on; `note` gives the comment of a node. */
export function plainPgn({ tree, white, black }, line, note = (_node) => "") {
  const headers = { WhiteElo: Math.round(white), BlackElo: Math.round(black) };
  if (tree.fen !== "startpos") Object.assign(headers, { SetUp: "1", FEN: tree.fen });
  if (tree.chess960) headers.Variant = "Chess960";
  const tags = Object.entries(headers).map(([name, value]) => `[${name} "${value}"]`);
  const words = tree.along(line).map((index) => `${tree.nodes[index].uci ?? ""} {${note(tree.nodes[index])}}`);
  return `${tags.join("\n")}\n\n${words.join(" ")} *\n`;
}

export const keyOf = (tree, line) => tree.key(tree.at(line));

// What a stronger player would play in the positions of a game, by the same model.

import { remembered } from "./api.js";
import { elo, named, position } from "./state.js";
import { turnAfter } from "./tree.js";

const ABOVE = 400; // rating points
const LEAST = 50; // fewer points above, at the end of the model's range, tell nothing
const AT_ONCE = 64; // positions of a request
const GAMES = 12; // whose answers are kept

const known = new Map(); // by all that an answer depends on: a promise of Maps of plies

/** The rating of the stronger player beside a player's; undefined if the model knows none. */
export function strongerThan(rating, model) {
  const { inputs, elo: range } = model.contract;
  const stronger = Math.min(rating + ABOVE, range.maximum);
  return inputs.elo_self && stronger >= rating + LEAST ? stronger : undefined;
}

/** For each ply of the main line where `side` moves: `{best, ofPlayed}`, the likeliest move of a player of this rating and how likely the played one was. */
export function strongerMoves(state, side, rating) {
  const { tree } = state, line = tree.main, other = elo(state, side).opponent;
  const key = JSON.stringify([tree.fen, tree.chess960, line, side, rating, other, state.model]);
  if (!known.has(key)) {
    const asked = answers(state, { line, side, elo: { self: rating, opponent: other } });
    asked.catch(() => known.delete(key));
    known.set(key, asked);
    if (known.size > GAMES) known.delete(known.keys().next().value);
  }
  return known.get(key);
}

async function answers(state, { line, side, elo }) {
  const plies = line.map((_, ply) => ply).filter((ply) => turnAfter(state.tree.fen, ply) === side), found = new Map();
  for (let start = 0; start < plies.length; start += AT_ONCE) {
    const part = plies.slice(start, start + AT_ONCE);
    const positions = part.map((ply) => position(state, line.slice(0, ply)));
    const { results } = await remembered("v1/policy/batch", { positions, elo, ...named(state), include: ["san"] });
    part.forEach((ply, index) => {
      const { error, moves } = results[index];
      if (error) throw Object.assign(new Error(error.detail), error);
      const [best] = moves;
      found.set(ply, { best, ofPlayed: moves.find(({ uci }) => uci === line[ply])?.probability ?? 0 });
    });
  }
  return found;
}

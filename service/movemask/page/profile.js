// One player over many games: whose games they are, and what their reports say of the player.

import { between } from "./interpolation.js";

const PHASES = ["opening", "middlegame", "endgame"];
const LEAST = 5; // games, below which no rating is guessed
const WITHIN = 1.645; // standard errors on both sides of a rating: 9 of 10 times
const COSTLIEST = 10; // positions that are shown
const DIFFERENCES = 5; // and moves that stronger players make less often
const STRONGER = 200; // Elo points that those have more
const USUAL = 0.05; // least probability of a move whose difference is shown

/** What is kept of the service's report on a game. Of each move: `[uci, san, phase, lost, mark, surprises at the ratings]`. */
export function kept({ white, black, moves, moments, ratings }, model) {
  const ruled = moves.every(({ source }) => !source || source === "rules"); // then a move that costs nothing had no alternative
  return {
    model,
    ratings,
    accuracy: { white: white?.accuracy ?? null, black: black?.accuracy ?? null },
    first: moves[0]?.turn,
    moves: moves.map(({ uci, san, phase, lost, mark = "", at_ratings: shares }) => [
      uci,
      san,
      PHASES.indexOf(phase),
      (ruled && lost === 0) || lost === undefined ? null : lost,
      mark,
      shares?.map((share) => Number(-Math.log(Math.max(share, 1e-9)).toFixed(3))) ?? null,
    ]),
    moments: moments.map(({ ply, lost, mark, text, fen }) => ({ ply, lost, mark, text, fen, better: moves[ply - 1].line?.[0] })),
  };
}

/** By which a name is recognised, however it is spelt: "Müller, Anna" is "anna muller". */
export const keyOf = (name = "") =>
  name
    .normalize("NFD")
    .replace(/\p{M}/gu, "")
    .toLowerCase()
    .split(/[^\p{L}\p{N}]+/u)
    .filter(Boolean)
    .sort()
    .join(" ");

/** How much of the shorter of two keys is in the other, by pairs of letters: 1 if all is, 0 if less than half. */
export function likeness(one, other) {
  const [short, long] = [one, other]
    .map((key) => [...key.replaceAll(" ", "")])
    .map((letters) => new Set(letters.slice(1).map((letter, place) => letters[place] + letter)))
    .sort((a, b) => a.size - b.size);
  const share = [...short].filter((pair) => long.has(pair)).length / (short.size || 1);
  return share < 0.5 ? 0 : share;
}

/**
 * The players of games, those with most games first: `{key, names, games}`, the usual name first. `merged` has, by the key of a
 * name, that of the player whose other name it is.
 */
export function playersOf(games, merged = {}) {
  const found = new Map();
  for (const { tags } of games) {
    for (const name of [tags?.White, tags?.Black]) {
      const own = keyOf(name),
        key = merged[own] ?? own;
      if (!key) continue;
      const player = found.get(key) ?? { key, names: new Map(), games: 0 };
      player.names.set(name, (player.names.get(name) ?? 0) + 1);
      player.games++;
      found.set(key, player);
    }
  }
  return [...found.values()]
    .map((player) => ({ ...player, names: [...player.names.keys()].sort((a, b) => player.names.get(b) - player.names.get(a)) }))
    .sort((a, b) => b.games - a.games);
}

/** The games of a player with the side that the player had. */
export const gamesOf = (games, key, merged = {}) =>
  games.flatMap((game) => {
    const side = ["White", "Black"].find((one) => {
      const own = keyOf(game.tags?.[one]);
      return (merged[own] ?? own) === key;
    });
    return side ? [{ game, side: side.toLowerCase() }] : [];
  });

/**
 * What the reports on a player's games say: numbers of games and moves, accuracy, marks by phase and opening, costliest moves,
 * resembled ratings, and moves that stronger players make less often. `calibrationOf` gives a network's, by phase and of the `whole`.
 */
export function profileOf(own, calibrationOf = (_model) => ({})) {
  const read = own.filter(({ game }) => game.report),
    accurate = read.flatMap(({ game, side }) => game.report.accuracy[side] ?? []);
  const model = mostFrequent(read.flatMap(({ game }) => (game.report.ratings ? [game.report.model] : [])));
  const moves = read.flatMap(({ game, side }) => movesOf(game, side));
  const calibration = calibrationOf(model) ?? {};
  const compared = read
    .filter(({ game }) => game.report.ratings && game.report.model === model)
    .map(({ game, side }) => ({
      game,
      side,
      ratings: game.report.ratings,
      moves: movesOf(game, side).filter(({ surprises }) => surprises),
    }))
    .filter((one) => one.moves.length);
  const like = (phase) =>
    resembled(
      compared.map((one) => summed(one.moves.filter((move) => phase === undefined || move.phase === phase))).filter(Boolean),
      compared[0]?.ratings,
      calibration[phase === undefined ? "whole" : PHASES[phase]],
    );
  const whole = like();
  return {
    games: own.length,
    read: read.length,
    judged: read.filter(({ game }) => game.judged).length,
    accuracy: mean(accurate),
    accurate: accurate.length,
    model,
    whole,
    phases: PHASES.map((name, phase) => ({ name, ...tallied(moves.filter((move) => move.phase === phase)), like: like(phase) })),
    all: tallied(moves),
    openings: openingsOf(read),
    costliest: read
      .flatMap(({ game, side }) =>
        game.report.moments.filter(({ ply, lost }) => lost && sideOf(game, ply - 1) === side).map((moment) => ({ ...moment, game, side })),
      )
      .sort((a, b) => b.lost - a.lost)
      .slice(0, COSTLIEST),
    differences: whole ? differencesOf(compared, whole) : [],
  };
}

/** Who makes the move after a number of plies of a game. */
function sideOf({ report }, ply) {
  return (report.first === "white") === (ply % 2 === 0) ? "white" : "black";
}

/** The moves of a side. */
const movesOf = (game, side) =>
  game.report.moves
    .map(([uci, san, phase, lost, mark, surprises], ply) => ({ uci, san, phase, lost, mark, surprises, ply }))
    .filter(({ ply }) => sideOf(game, ply) === side);

/** How many moves there are, how many are judged, what they cost on average, and how many have each mark. */
function tallied(moves) {
  const judged = moves.filter(({ lost }) => lost !== null),
    count = (wanted) => judged.filter(({ mark }) => mark === wanted).length;
  return {
    moves: moves.length,
    judged: judged.length,
    lost: mean(judged.map(({ lost }) => lost)),
    inaccuracies: count("inaccuracy"),
    mistakes: count("mistake"),
    blunders: count("blunder"),
  };
}

/** A player's openings with each colour, those played most first. */
function openingsOf(read) {
  const found = new Map();
  for (const { game, side } of read) {
    const name = `${(game.opening?.name ?? "Unknown").split(":")[0]}, ${side === "white" ? "White" : "Black"}`;
    found.set(name, [...(found.get(name) ?? []), { game, side }]);
  }
  return [...found]
    .map(([name, played]) => ({
      name,
      games: played.length,
      score: mean(played.flatMap(({ game, side }) => scoreOf(game.tags?.Result, side) ?? [])),
      accuracy: mean(played.flatMap(({ game, side }) => game.report.accuracy[side] ?? [])),
      ...tallied(played.flatMap(({ game, side }) => movesOf(game, side))),
    }))
    .sort((a, b) => b.games - a.games);
}

/** The points of a result for a side; undefined for none. */
const scoreOf = (result, side) => ({ "1-0": side === "white" ? 1 : 0, "0-1": side === "black" ? 1 : 0, "1/2-1/2": 0.5 })[result];

const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);

const mostFrequent = (values) => {
  const count = (wanted) => values.filter((value) => value === wanted).length;
  return [...new Set(values)].sort((a, b) => count(b) - count(a))[0];
};

/** The surprises of moves at each rating, summed; undefined for no moves. */
const summed = (moves) =>
  moves.map(({ surprises }) => surprises).reduce((sum, one) => sum?.map((value, place) => value + one[place]) ?? one, undefined);

/**
 * The rating at which games are likeliest, `{rating, within, end}`, by the surprises of each game at some ratings; null for fewer than
 * five. `within` is half of the interval that holds it 9 of 10 times: by leaving out each game in turn, and the error that is left of
 * the calibration. `end` says that it lies beyond the ratings: "low" or "high".
 */
export function resembled(games, ratings, { slope = 1, intercept = 0, error = 0 } = {}) {
  if (games.length < LEAST) return null;
  const total = games.reduce((sum, one) => sum.map((value, place) => value + one[place])),
    raw = lowest(total, ratings);
  const others = games.map((one) =>
      lowest(
        total.map((value, place) => value - one[place]),
        ratings,
      ),
    ),
    middle = mean(others);
  const variance = ((games.length - 1) / games.length) * others.reduce((sum, value) => sum + (value - middle) ** 2, 0);
  const end = raw <= ratings[0] ? "low" : raw >= ratings.at(-1) ? "high" : "";
  return { rating: intercept + slope * raw, within: WITHIN * Math.sqrt(slope ** 2 * variance + error ** 2), end };
}

/** Where values at even steps are lowest: at the vertex of the parabola through the lowest and its neighbours. */
function lowest(values, steps) {
  const place = values.indexOf(Math.min(...values));
  if (!place || place === values.length - 1) return steps[place];
  const [before, here, after] = values.slice(place - 1, place + 2),
    step = steps[place + 1] - steps[place];
  return steps[place] + (step * (before - after)) / (2 * (before - 2 * here + after) || 1);
}

/** The moves that players 200 points stronger than the resembled rating make less often, those that differ most first. */
function differencesOf(compared, { rating, end }) {
  const [{ ratings }] = compared;
  if (end || rating + STRONGER > ratings.at(-1)) return [];
  const found = compared.flatMap(({ game, side, moves }) =>
    moves.map((move) => {
      const [own, stronger] = [rating, rating + STRONGER].map((at) => Math.exp(-between(move.surprises, ratings, at)));
      return { ...move, game, side, own, stronger, rating };
    }),
  );
  return found
    .filter(({ own }) => own >= USUAL)
    .sort((a, b) => b.own / b.stronger - a.own / a.stronger)
    .slice(0, DIFFERENCES);
}

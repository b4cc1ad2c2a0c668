// A verdict on a move in words: what was played, how likely it was, what a stronger player would rather play, and what it cost.
//
// The limits were chosen on 60 online games of players rated 900 to 1900, evaluated by Stockfish 15.1 at 40,000 nodes, with
// movemask-5: of the moves called mistakes 76 % lost 10 points or more, of the doubtful ones 57 % lost 5 or more, of the
// good ones 10 %. A forecast does not calculate: half of the moves that lost 20 points or more are called good or fine.

import { percent } from "./dom.js";

const MISTAKE = 0.1, DOUBTFUL = 0.05; // lost of the expected score, 0 to 1
const OFTEN = 0.2; // of stronger players: what they play so often is no fault, whatever the forecast says
const HARDLY = 0.02; // of stronger players: a move that they do not play is doubtful

export const MARKS = { mistake: "?", doubtful: "?!" };
const NAMES = { good: "Good", fine: "Fine", doubtful: "Doubtful", mistake: "Mistake" };
const POINTS = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/**
 * The verdict `{kind, name, text}` on a move. `report` is what is known of it, `before` and `after` the mover's expected
 * scores or undefined, `stronger` what a player of `strongerRating` would play, or undefined; `rating` is the mover's.
 */
export function verdictOf({ report, before, after, rating, stronger, strongerRating }) {
  const { uci, san, probability, rank, lost: evaluated } = report;
  const forecast = before === undefined || after === undefined ? undefined : before - after;
  const same = stronger?.best.uci === uci, often = stronger && stronger.ofPlayed >= OFTEN;
  const lost = evaluated ?? (same || often ? 0 : forecast ?? 0);
  const kind = lost >= MISTAKE ? "mistake" : lost >= DOUBTFUL || (stronger && evaluated === undefined && stronger.ofPlayed < HARDLY) ? "doubtful" : same || (!stronger && rank === 1) ? "good" : "fine";
  return { kind, name: NAMES[kind], text: [likely(probability, rating, rank), ...better(san, stronger, strongerRating, same), ...cost(evaluated, before, after)].join(" ") };
}

function likely(probability, rating, rank) {
  const who = rating ? `players rated ${rating}` : "players";
  const share = probability < 0.001 ? `Hardly any ${who} would play it` : `${percent(probability)} of ${who} would play it`;
  return rank === 1 ? `${share}, more than any other move.` : `${share}.`;
}

function better(san, stronger, rating, same) {
  if (!stronger) return [];
  if (same) return [`So would players rated ${rating} (${percent(stronger.best.probability)}).`];
  return [`Players rated ${rating} would rather play ${stronger.best.san} (${percent(stronger.best.probability)}; ${san} ${percent(stronger.ofPlayed)}).`];
}

function cost(evaluated, before, after) {
  if (evaluated !== undefined) return [evaluated >= 0.005 ? `By the evaluations it lost ${POINTS.format(100 * evaluated)} points of 100.` : "By the evaluations it lost nothing."];
  if (before === undefined || after === undefined) return [];
  const [from, to] = [before, after].map((score) => POINTS.format(100 * score));
  if (from === to) return [`The forecast stayed at ${to} %.`];
  return [`The forecast ${after < before ? "fell" : "rose"} from ${from} to ${to} %.`];
}

// A game against the network as data: whose turn it is, what a move does to the clocks, how it ends.
// It goes on whatever the board shows meanwhile. Nothing here changes what it is given.

import { command, controlOf, inSeconds, remaining } from "./clock.js";
import { piecesOf } from "./squares.js";
import { Tree, turnAfter } from "./tree.js";

const DRAWS_FROM = 40; // half-moves from the start of a game: people do not agree to a draw before
const EVEN = 0.5; // the network agrees where it expects no more

export const SIDES = { white: "White", black: "Black" };
export const other = (side) => (side === "white" ? "black" : "white");
const wins = (side) => (side === "white" ? "1-0" : "0-1");

/** How a game can end, in words after the winner's name, or after "Draw". */
const WON = { checkmate: "won by checkmate", resignation: "won by resignation", time: "won on time" };
const DRAWN = {
  stalemate: "by stalemate",
  insufficient_material: "by insufficient material",
  threefold_repetition: "by threefold repetition",
  fivefold_repetition: "by fivefold repetition",
  fifty_moves: "by the fifty-move rule",
  seventyfive_moves: "by the 75-move rule",
  agreement: "by agreement",
  time: "because time is up and the other side cannot mate",
};

/** Why a game is over, in a sentence without its full stop. */
export const whyOf = ({ result, how }) =>
  result === "1/2-1/2" ? `Draw ${DRAWN[how] ?? `by ${how.replaceAll("_", " ")}`}` : `${result === "1-0" ? "White" : "Black"} ${WON[how]}`;

/** The ending that headers tell, if it is one of these. */
export function endingOf({ Result: result, Termination }) {
  const ways = { "1-0": WON, "0-1": WON, "1/2-1/2": DRAWN }[result] ?? {};
  const how = Object.keys(ways).find((one) => whyOf({ result, how: one }) === Termination);
  return how ? { result, how } : null;
}

/**
 * A new game of an `id`, begun on a `date` at a `site` with a `model`. `you` is the player's side and `rating` the
 * player's; `level` is the network's `{rating, temperature, strength}`, with a strength of 0 for one that plays as people
 * do; `control` is a clock such as "3+2", or ""; `pace` is "human" or "once"; `started` is when it began, in UTC and ISO's
 * form.
 */
export function newMatch({ control, fen = "startpos", chess960 = false, ...given }) {
  const base = control ? controlOf(control).base : 0;
  return {
    ...given,
    control,
    fen,
    chess960,
    moves: [],
    sans: [],
    clocks: [],
    left: { white: base, black: base },
    running: null,
    since: null,
    premove: null,
    remark: "",
    standing: null,
    ending: null,
    kept: "",
  };
}

export const turnOf = (match) => turnAfter(match.fen, match.moves.length);
export const isYours = (match) => !match.ending && turnOf(match) === match.you;

/** What tells the positions of games apart: answers to an older one are too late. */
export const keyOf = (match) => `${match.id}:${match.moves.join(".")}`;

/** The ratings as the service takes them, of the side to move and of its opponent. A strength was measured between equals. */
export function ratingsOf({ you, rating, level }, side) {
  const network = level.rating ?? rating; // a network that takes no ratings is told the player's, and ignores it
  if (side === you) return { self: rating, opponent: network };
  return { self: network, opponent: level.strength ? network : rating };
}

/** The game as what the board shows. */
export function treeOf(match) {
  const nodes = match.moves.map((uci, ply) => ({
    parent: ply,
    uci,
    san: match.sans[ply],
    ...(match.control ? { comment: command(match.clocks[ply]) } : {}),
  }));
  return new Tree({ fen: match.fen, chess960: match.chess960, headers: headersOf(match), nodes: [{}, ...nodes] });
}

function headersOf({ date, started, site, model, you, rating, level, control, ending }) {
  const [person, network] = [SIDES[you], SIDES[other(you)]];
  return {
    Event: "Casual game",
    Site: site,
    Date: date,
    [person]: "You",
    [network]: model,
    [`${person}Elo`]: String(rating),
    ...(level.strength || level.rating ? { [`${network}Elo`]: String(level.strength || level.rating) } : {}),
    ...(started ? { UTCDate: started.slice(0, 10).replaceAll("-", "."), UTCTime: started.slice(11, 19) } : {}),
    ...(control ? { TimeControl: inSeconds(control) } : {}),
    ...(ending ? { Result: ending.result, Termination: whyOf(ending) } : {}),
  };
}

/** The clocks stopped; time is taken from the player alone: the network's is taken when it has moved. */
const stopped = (match, now) => ({
  ...match,
  left: match.running === match.you ? { ...match.left, [match.you]: remaining(match, match.you, now) } : match.left,
  running: null,
  since: null,
});

/**
 * After a move. `thought` is how long the network meant to think, in ms: a late answer or a sleeping tab costs it
 * nothing. The first move of each side is free. The player's clock starts when the answer has its legal moves.
 * @type {(match: any, made: any) => any}
 */
export function moved(match, { uci, san, now, thought }) {
  const mover = turnOf(match),
    plies = match.moves.length + 1;
  if (mover === match.you && isOver(match, now)) return outOfTime(match, now);
  let { left } = match;
  if (match.running === mover) {
    const spent = mover === match.you ? now - match.since : Math.min(thought, left[mover]);
    left = { ...left, [mover]: left[mover] - spent + controlOf(match.control).increment };
  }
  const next = {
    ...match,
    moves: [...match.moves, uci],
    sans: [...match.sans, san],
    clocks: [...match.clocks, left[mover]],
    left,
    running: null,
    since: null,
    premove: mover === match.you ? null : match.premove,
    remark: "",
  };
  return next.control && plies > 1 && mover === match.you ? { ...next, running: other(mover), since: now } : next;
}

/**
 * After an answer to the present position: `{fen, score, draw, ending}`, with White's expected score. It may be over.
 * @type {(match: any, found: any) => any}
 */
export function judged(match, { fen, score, draw, ending, now }) {
  if (ending) return ended(match, ending, now);
  const starts = match.control && !match.running && match.moves.length > 1;
  return { ...match, standing: { fen, score, draw }, ...(starts ? { running: turnOf(match), since: now } : {}) };
}

/** Without the player's last move and what the network replied to it; the same game if there is none. */
export function takenBack(match, now) {
  const plies = match.moves.findLastIndex((_, ply) => turnAfter(match.fen, ply) === match.you);
  if (plies < 0 || match.ending) return match;
  const cut = (list) => list.slice(0, plies);
  return {
    ...stopped(match, now),
    moves: cut(match.moves),
    sans: cut(match.sans),
    clocks: cut(match.clocks),
    premove: null,
    remark: "",
    standing: null,
  };
}

/** While nobody looks after the clocks, they stop; the time up to then counts. */
export const paused = (match, now) => (match.ending ? match : stopped(match, now));

/** Whether the player's time is up. */
const isOver = (match, now) => match.running === match.you && remaining(match, match.you, now) <= 0;

export const flagged = (match, now) => (!match.ending && isOver(match, now) ? outOfTime(match, now) : match);

/** A draw if the network has nothing but its king. */
function outOfTime(match, now) {
  const pieces = match.standing ? [...piecesOf(match.standing.fen).values()] : [];
  const alone = pieces.filter((piece) => piece[0] === other(match.you)[0]).length === 1;
  return ended(match, { result: alone ? "1/2-1/2" : wins(other(match.you)), how: "time" }, now);
}

export const ended = (match, ending, now) =>
  match.ending ? match : { ...stopped(match, now), ending: { result: ending.result, how: ending.how }, premove: null, remark: "" };

export const resigned = (match, now) => ended(match, { result: wins(other(match.you)), how: "resignation" }, now);

/** Claims a draw, or offers one: the game is over, or remarks why not. */
export function drawOffered(match, now) {
  const { draw, score } = match.standing ?? {};
  if (draw && isYours(match)) return ended(match, { result: "1/2-1/2", how: draw }, now);
  const expects = match.you === "black" ? score : 1 - score;
  if (match.fen === "startpos" && match.moves.length < DRAWS_FROM)
    return { ...match, remark: "The network declines: it is too early for a draw." };
  if (!(expects <= EVEN)) return { ...match, remark: "The network declines your draw." };
  return ended(match, { result: "1/2-1/2", how: "agreement" }, now);
}

/** How a game that is over went for the player, in words. */
export const outcomeOf = ({ you, ending }) =>
  ending.result === "1/2-1/2" ? "Draw" : ending.result === wins(you) ? "You won" : "You lost";

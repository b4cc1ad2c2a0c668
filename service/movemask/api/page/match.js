// A game against the network: who plays, how it ends, and what the network says to a draw.

import { game, keep, whiteScore } from "./line.js";
import { state } from "./state.js";
import { piecesOf } from "./squares.js";
import { resultOf } from "./words.js";

const DRAWS_FROM = 40; // half-moves: people do not agree to a draw before
const EVEN = 0.5; // the network agrees where it expects no more

const SIDES = { white: "White", black: "Black" };
const other = (side) => (side === "white" ? "black" : "white");
const wins = (side) => (side === "white" ? "1-0" : "0-1");

/** The player's side, or undefined where there is no game against the network. */
export const human = () => (state.opponent ? other(state.opponent) : undefined);

/** Gives the game the names, ratings and date that its PGN has, if it is new. */
export function enter(model) {
  const { headers } = game();
  if (!state.opponent || headers.White) return;
  const [network, person] = [SIDES[state.opponent], SIDES[human()]];
  Object.assign(headers, {
    Event: "Casual game", Site: location.origin, Date: new Intl.DateTimeFormat("sv").format().replaceAll("-", "."),
    [person]: "You", [network]: model, [`${network}Elo`]: String(state.strength || Math.round(state[state.opponent])),
    ...(state.clock ? { TimeControl: inSeconds(state.clock) } : {}),
  });
}

const inSeconds = (clock) => `${60 * clock.split("+")[0]}+${clock.split("+")[1]}`;

/** How the game against the network ended: `{result, why}`, or null. */
export function ending() {
  const { Result, Termination } = game().headers;
  return state.opponent && Termination ? { result: Result, why: Termination } : null;
}

function end(result, why) {
  Object.assign(game().headers, { Result: result, Termination: why });
  keep();
}

/** Ends the game if it is over on the board. */
export function endedBy(answer) {
  const result = resultOf(answer);
  if (!result || !state.opponent || ending()) return;
  const reason = answer.status === "stalemate" ? "stalemate" : answer.draw?.reason.replaceAll("_", " ");
  end(result, result === "1/2-1/2" ? `Draw by ${reason}` : `${SIDES[other(answer.turn)]} won by checkmate`);
}

export const resign = () => end(wins(state.opponent), `${SIDES[state.opponent]} won by resignation`);

/** A side's time is up: a draw if the other has nothing but its king. */
export function outOfTime(side, fen) {
  const left = [...piecesOf(fen).values()].filter((piece) => piece[0] === other(side)[0]);
  if (left.length > 1) end(wins(other(side)), `${SIDES[other(side)]} won on time`);
  else end("1/2-1/2", `Draw: time is up, and ${SIDES[other(side)]} cannot mate`);
}

/** Claims or offers a draw; what the network says to it, if the game goes on. */
export function offerDraw(answer) {
  if (answer.draw) return end("1/2-1/2", `Draw by ${answer.draw.reason.replaceAll("_", " ")}`);
  const white = whiteScore(answer);
  const expects = state.opponent === "white" ? white : 1 - white;
  if (state.moves.length < DRAWS_FROM) return "The network declines: it is too early for a draw.";
  if (!(expects <= EVEN)) return "The network declines your draw.";
  return end("1/2-1/2", "Draw by agreement");
}

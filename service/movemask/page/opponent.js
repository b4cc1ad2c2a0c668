// The network's part in a game: its moves, and the word of the service on every position. It does not mind what the board shows.

import { endingBy, whiteScore } from "./answer.js";
import { call, remembered } from "./api.js";
import { controlOf, remaining } from "./clock.js";
import { isYours, keyOf, ratingsOf, turnOf } from "./match.js";
import { position } from "./state.js";
import { matching } from "./typed.js";

const PAUSE = 0.5; // s before the network moves in a game without clocks

/**
 * Keeps the game of a store going: the player's clock starts once there are legal moves. `notice` is told of errors. Returns
 * what asks again for the present position.
 */
export function keepPlaying(store, notice) {
  let asked = null, // the position that is being asked for
    legal = null; // its moves, where the player is to move and they are known

  async function look() {
    const { match } = store.state,
      key = match && !match.ending ? keyOf(match) : null;
    if (key === asked) return legal && match?.premove && queueMicrotask(ahead);
    [asked, legal] = [key, null];
    notice.clear("match");
    if (!key) return;
    const current = () => asked === key;
    try {
      if (!isYours(match)) return await networksTurn(store, match, key, current);
      const answer = await remembered("v1/policy", { ...question(match), include: ["san", "forecast"] });
      if (!current()) return;
      store.dispatch(judgement(key, answer));
      legal = answer.moves;
      ahead();
    } catch (error) {
      if (current()) notice.tell("match", error, again);
    }
  }

  /** Plays the move that was made ahead, which may be after its legal moves are known: the board shows them a moment later. */
  function ahead() {
    const { match } = store.state;
    if (!match?.premove || keyOf(match) !== asked || !legal) return;
    const { uci, text } = match.premove;
    const made = uci ? legal.find((move) => move.uci === uci || move.uci === `${uci}q`) : matching(legal, text);
    if (made) store.dispatch({ type: "move", key: asked, uci: made.uci, san: made.san });
    else store.dispatch({ type: "premove", premove: null, remark: "The move that you made ahead is not legal here." });
  }

  function again() {
    asked = null;
    look();
  }

  store.subscribe(look);
  return again;
}

const question = (match) => ({
  ...position({ tree: match }, match.moves),
  model: match.model,
  elo: ratingsOf(match, turnOf(match)),
});

/** What an answer says of its position, as an event. */
const judgement = (key, answer) => ({
  type: "judged",
  key,
  fen: answer.fen,
  draw: answer.draw?.reason,
  ending: endingBy(answer),
  score: whiteScore(answer),
});

/** The network moves as soon as a person would have. */
async function networksTurn(store, match, key, current) {
  const since = performance.now(),
    { control, level, pace } = match;
  const how = level.temperature > 0 ? { method: "sample", temperature: level.temperature } : { method: "greedy" };
  const clock = control
    ? { remaining: remaining(match, turnOf(match), since) / 1000, increment: controlOf(control).increment / 1000 }
    : undefined;
  const answer = await call("v1/move", { ...question(match), ...how, include: ["san"], clock });
  if (!current()) return;
  store.dispatch(judgement(key, answer));
  if (!current()) return;
  const thought = pace === "once" ? 0 : 1000 * (answer.seconds ?? PAUSE);
  await new Promise((done) => setTimeout(done, thought - (performance.now() - since)));
  store.dispatch({ type: "move", key, uci: answer.move.uci, san: answer.move.san, thought });
}

// The reminder of a game against the network while the board shows something else, or of one that another tab has left;
// and what the window's title says of it.

import { byId } from "./dom.js";
import { isYours, outcomeOf, whyOf } from "./match.js";
import { following, hasBoard, live } from "./state.js";

const OVER = { won: "You won", lost: "You lost", drawn: "Draw" };

/** Shows it for a state. */
export function showGoing(state) {
  const { match, view } = state,
    away = match && !match.seen && !(following(state) && hasBoard(view));
  const words = !match ? "" : match.ending ? `${OVER[outcomeOf(match)]}: ${whyOf(match.ending)}.` : isYours(match) ? "Your turn" : "";
  const offered = !away && !live(state) && Boolean(state.offered);
  byId("going").hidden = !away && !offered;
  byId("return").hidden = !away;
  byId("resume").hidden = byId("discard").hidden = !offered;
  byId("going-words").textContent = offered
    ? "You have an unfinished game, here or in another tab."
    : match?.ending
      ? words
      : `Your game goes on. ${isYours(match ?? { ending: {} }) ? "It is your turn." : ""}`;
  byId("going-clock").dataset.side = match?.you ?? "";
  byId("going-clock").hidden = offered || !match?.control;
  document.title = [match?.ending ? (match.seen ? "" : OVER[outcomeOf(match)]) : words, "movemask"].filter(Boolean).join(" · ");
}

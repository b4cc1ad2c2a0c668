// The reminder of a game against the network while the board shows something else, or of one that another tab has left;
// and the window's title, which has that and the view.

import { byId } from "./dom.js";
import { isYours, outcomeOf, whyOf } from "./match.js";
import { following, hasBoard, live } from "./state.js";

/** Shows it for a state. */
export function showGoing(state) {
  const { match, view } = state,
    away = match && !match.seen && !(following(state) && hasBoard(view)),
    offered = !away && !live(state) && Boolean(state.offered);
  const outcome = match?.ending ? outcomeOf(match) : "",
    yours = Boolean(match) && isYours(match);
  byId("going").hidden = !away && !offered;
  byId("return").hidden = !away;
  byId("resume").hidden = byId("discard").hidden = !offered;
  byId("going-words").textContent = offered
    ? "You have an unfinished game, here or in another tab."
    : outcome
      ? `${outcome}: ${whyOf(match.ending)}.`
      : `Your game goes on. ${yours ? "It is your turn." : ""}`;
  byId("going-clock").dataset.side = match?.you ?? "";
  byId("going-clock").hidden = offered || !match?.control;
  const news = match?.seen ? "" : outcome || (yours && "Your turn");
  const place = view !== "start" && document.querySelector(`a[data-view="${view === "new" ? "play" : view}"]`).textContent;
  document.title = [news, place, "movemask"].filter(Boolean).join(" · ");
}

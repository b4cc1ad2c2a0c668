// The game that goes on, kept by the browser: closing the tab does not lose it, and another tab can continue it.
// It is played in one tab, the last that began or continued it. Without a tab its clocks stand still.

import { paused } from "./match.js";
import { live } from "./state.js";
import { readStored, writeStored } from "./storage.js";

const KEPT = "movemask-game-"; // in the browser, with the game's id
const EVERY = 1000; // ms; time that a tab gives back if another takes over its game, or if it crashes

/** Tells this page from others, also from the one before a reload. */
export const PAGE = Date.now().toString(36) + Math.random().toString(36).slice(2);

/** The game with this id as it was last written, `{page, match}`; null if there is none. */
export const unfinished = (id) => readStored(KEPT + id);

/** Whether another page than `page` plays the game now. */
export function isElsewhere(match, page) {
  const found = unfinished(match.id);
  return Boolean(found) && found.page !== page;
}

/**
 * Keeps the store's game while it goes on, lets go of it if another tab continues it or gives it up, and offers games that
 * other tabs have left. Returns what looks for such games again.
 */
export function keepsUnfinished(store) {
  let written = ""; // the id of the game that this page has written, and not taken away itself
  const isGone = (match) => match.id === written && !unfinished(match.id);
  const write = () => {
    const { match } = store.state;
    if (live(store.state) && match.moves.length && !isGone(match)) written = keep(match) ? match.id : "";
  };
  const look = () => {
    const { match } = store.state;
    if (live(store.state) && (isElsewhere(match, PAGE) || isGone(match))) store.dispatch({ type: "released" });
    store.dispatch({ type: "offered", offered: latest(store.state) });
  };
  store.subscribe((state, before, event) => {
    if (state.match === before.match) return;
    if (before.match && !["released", "begin"].includes(event.type) && !(live(state) && state.match.moves.length)) {
      forget(before.match.id);
      written = "";
    }
    write();
    queueMicrotask(look); // once everybody has heard of this change
  });
  setInterval(() => store.state.match?.running && write(), EVERY);
  addEventListener("storage", ({ key }) => (key ?? KEPT).startsWith(KEPT) && look());
  addEventListener("pageshow", look); // a page that was frozen has missed what happened
  document.addEventListener("visibilitychange", () => document.hidden || look());
  write(); // so that a copy of this tab takes over its game
  look();
  return look;
}

/** What is offered: the id of the latest game that another page has written; "" if there is none. */
const latest = ({ match }) =>
  Object.keys(localStorage)
    .filter((key) => key.startsWith(KEPT))
    .map((key) => key.slice(KEPT.length))
    .filter((id) => id !== match?.id)
    .toSorted()
    .at(-1) ?? "";

/** Gives a game up that has not been finished. */
export const forget = (id) => localStorage.removeItem(KEPT + id);

/** True if the browser has written it; where it is full, the game lasts as long as its tab. */
function keep(match) {
  return writeStored(KEPT + match.id, { page: PAGE, match: paused(match, performance.now()) });
}

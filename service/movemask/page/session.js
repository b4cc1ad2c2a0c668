// The state kept in the tab over a reload: comments, variations and the game that goes on, which an address does not hold.

import { paused } from "./match.js";
import { readStored, writeStored } from "./storage.js";
import { Tree } from "./tree.js";
import { PAGE, isElsewhere } from "./unfinished.js";

const KEPT = "movemask-session";

/** The state as it was kept, over these defaults. */
export function restored(state) {
  const kept = readStored(KEPT, sessionStorage);
  if (!kept) return state;
  const { page, ...all } = kept,
    gone = all.match && !all.match.ending && isElsewhere(all.match, page);
  return { ...state, ...all, tree: new Tree(all.tree), ...(gone ? { match: null, game: "" } : {}) };
}

/** Keeps a state, its clocks stopped: the next page counts time from a start of its own. */
export function keep(state) {
  const match = state.match && paused(state.match, performance.now());
  writeStored(KEPT, { ...state, match, page: PAGE }, sessionStorage); // without room, a reload shows the line alone
}

// The state kept in the tab over a reload: comments, variations and the game that goes on, which an address does not hold.

import { paused } from "./match.js";
import { Tree } from "./tree.js";

const KEPT = "movemask-session";

/** The state as it was kept, over these defaults. */
export function restored(state) {
  const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "null");
  return kept ? { ...state, ...kept, tree: new Tree(kept.tree) } : state;
}

/** Keeps a state, its clocks stopped: the next page counts time from a start of its own. */
export function keep(state) {
  const match = state.match && paused(state.match, performance.now());
  try {
    sessionStorage.setItem(KEPT, JSON.stringify({ ...state, match }));
  } catch {
    // full: then a reload shows the line alone
  }
}

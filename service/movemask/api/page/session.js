// The state kept in the tab over a reload: comments, variations and the game that goes on, which an address does not hold.

import { Tree } from "./tree.js";

const KEPT = "movemask-session";

/** The state as it was kept, over these defaults. */
export function restored(state) {
  const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "null");
  return kept ? { ...state, ...kept, tree: new Tree(kept.tree) } : state;
}

/** Keeps a state. */
export function keep(state) {
  try {
    sessionStorage.setItem(KEPT, JSON.stringify(state));
  } catch {
    // full: then a reload shows the line alone
  }
}

// Every game against the network goes to the list of games when it is over.

import * as library from "./library.js";
import { treeOf } from "./match.js";

/** Keeps the finished games of a store. */
export function keepsGames(store) {
  let keeping = "";
  store.subscribe(async ({ match }) => {
    if (!match?.ending || match.kept || !match.moves.length || keeping === match.id) return;
    keeping = match.id;
    const stored = await library.addPlayed(treeOf(match));
    store.dispatch({ type: "kept", id: match.id, kept: stored ? "stored" : "listed" });
  });
}

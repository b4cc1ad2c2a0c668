// The two doors of the first screen: a game against the network, and the review of a game.

import { challenge } from "./challenge.js";
import { byId, element } from "./dom.js";
import { cellsOf } from "./library.js";
import { latest } from "./shelf.js";
import { begins, turn } from "./state.js";

const LAST = 3; // games that are offered

let filled = ""; // what the form was filled for

/**
 * Shows the doors of a state, its form filled for a model; without one only the review of a game can be begun. `start` gets
 * the choice of a game against the network, `open` the PGN of a game that was chosen.
 */
export function showDoors(state, { model, start, open }) {
  const shown = begins(state),
    from = state.doors ? turn(state) : null,
    key = shown && model?.served ? [model.name, from].join() : "";
  if (shown && byId("doors").hidden) offerLast(open);
  byId("doors").hidden = !shown;
  byId("paste-form").hidden = state.doors;
  byId("challenge").classList.toggle("unseen", !key);
  if (key && key !== filled) challenge({ model, from, start });
  filled = key;
}

/** Offers the games that were added last. */
async function offerLast(open) {
  const games = await latest(LAST).catch(() => []); // a browser that keeps nothing
  byId("last-games").replaceChildren(
    ...games.map((game) => {
      const [players, result] = cellsOf(game);
      return element("button", { type: "button", onclick: () => open(game.pgn) }, `${players} ${result}`);
    }),
  );
}

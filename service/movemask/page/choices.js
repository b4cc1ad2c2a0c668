// The choices of the first screen: a position, a game against the network, the review of games.

import { challenge } from "./challenge.js";
import { button, byId } from "./dom.js";
import { cellsOf } from "./library.js";
import { latest } from "./shelf.js";
import { begins, blank, live, turn } from "./state.js";

const LAST = 3; // games that are offered

let filled = ""; // what the form was filled for

/**
 * Shows the choices of a state, the form of a game filled for a model; without one a game cannot be begun. `start` gets the
 * choice of a game against the network, `open` the PGN of a game that was chosen.
 */
export function showChoices(state, { model, start, open }) {
  const shown = begins(state),
    from = blank(state) ? null : turn(state),
    key = shown && model?.served ? [model.name, from].join() : "",
    first = state.view === "start";
  if (first && byId("paste-form").hidden) offerLast(open);
  byId("doors").hidden = !shown;
  byId("look").hidden = byId("paste-form").hidden = !first;
  byId("challenge").hidden = live(state);
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
      return button(() => open(game.pgn), {}, `${players} ${result}`);
    }),
  );
}

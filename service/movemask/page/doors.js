// The two doors of the first screen: a game against the network, and the review of a game.

import { challenge } from "./challenge.js";
import { byId, element } from "./dom.js";
import { cellsOf } from "./library.js";
import { latest } from "./shelf.js";
import { begins } from "./state.js";

const LAST = 3; // games that are offered

let filled = ""; // what the form was filled for

/** Shows the doors of a state, before anything is known of its position. */
export function showDoors(state) {
  byId("doors").hidden = !begins(state);
  byId("paste-form").hidden = state.doors;
}

/**
 * Fills them for a model, and for the answer of the position that is to be played from; `start` gets the choice of a game
 * against the network, `open` the PGN of a game that was chosen. What has been entered stays.
 */
export async function fillDoors(state, { model, answer = null, start, open }) {
  const key = begins(state) && model?.served ? [model.name, answer?.turn].join() : "";
  if (key === filled) return;
  filled = key;
  if (!key) return;
  challenge({ model, from: answer, start });
  const games = await latest(LAST).catch(() => []); // a browser that keeps nothing
  byId("last-games").replaceChildren(
    ...games.map((game) => {
      const [players, result] = cellsOf(game);
      return element("button", { type: "button", onclick: () => open(game.pgn) }, `${players} ${result}`);
    }),
  );
}

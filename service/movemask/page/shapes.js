// Arrows and circles that the player draws with the right button, as on lichess. A click takes them away.

import { svg } from "./dom.js";
import { arrow, place } from "./squares.js";

const WIDTH = 0.3; // of an arrow, as a probability

/** Lets the player draw on `layer`, over `root`; `at` gives the square of an event. Returns what clears the layer and what turns it. */
export function drawsOn(root, layer, at) {
  let shapes = new Map(),
    from = null,
    flip = false; // by where they go: their colour
  const show = () => layer.replaceChildren(...[...shapes].map(([uci, colour]) => shape(uci, colour, flip)));
  root.addEventListener("contextmenu", (event) => event.preventDefault());
  root.addEventListener("pointerdown", (event) => {
    if (event.button !== 2) return;
    from = at(event);
    root.setPointerCapture(event.pointerId);
  });
  root.addEventListener("pointerup", (event) => {
    const to = event.button === 2 && from ? at(event) : null;
    if (!to) return;
    const drawn = from + to,
      colour = colourOf(event);
    from = null;
    if (shapes.get(drawn) === colour) shapes.delete(drawn);
    else shapes.set(drawn, colour);
    show();
  });
  return {
    clear() {
      shapes = new Map();
      show();
    },
    turn(flipped) {
      flip = flipped;
      show();
    },
  };
}

const colourOf = (event) => ["green", "red", "blue", "yellow"][(event.shiftKey || event.ctrlKey ? 1 : 0) + (event.altKey ? 2 : 0)];

function shape(uci, colour, flip) {
  if (uci.slice(0, 2) !== uci.slice(2)) return arrow({ uci, probability: WIDTH, kind: `drawn ${colour}`, label: undefined }, flip);
  const [x, y] = place(uci, flip);
  return svg("circle", { class: `circle drawn ${colour}`, cx: x + 0.5, cy: y + 0.5, r: 0.45 });
}

// Arrows and circles: those of a study, and those that the player draws with the right button, as on lichess. A click takes them away.

import { svg } from "./dom.js";
import { arrow, place } from "./squares.js";

const WIDTH = 0.3; // of an arrow, as a probability

const COLOURS = { G: "green", R: "red", B: "blue", Y: "yellow" };

/** The shapes that a comment has, as lichess writes them: `[%cal Gd1h5]` are arrows, `[%csl Rg4]` circles. Colours by where they go. */
export function shapesIn(comment = "") {
  const lists = [...comment.matchAll(/\[%c[as]l ([^\]]*)\]/g)].flatMap(([, list]) => list.split(","));
  const found = lists.map((one) => /^\s*([GRBY])([a-h][1-8])([a-h][1-8])?\s*$/.exec(one)).filter(Boolean);
  return new Map(found.map(([, colour, from, to = from]) => [from + to, COLOURS[colour]]));
}

/**
 * Lets the player draw on `layer`, over `root`; `at` gives the square of an event. Returns what shows other shapes, or none,
 * and what turns the layer.
 */
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
    show(given = new Map()) {
      shapes = new Map(given);
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

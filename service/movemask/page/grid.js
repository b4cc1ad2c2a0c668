// A grid of 64 squares with their pieces, over which the arrow keys move the focus: of the board, and of the board editor.

import { button, element } from "./dom.js";
import { FILES, coordinates, drawing, place, squareAt } from "./squares.js";

const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const EIGHT = [...FILES].map((_, index) => index);

export class Grid {
  #root;
  #layers;
  squares = new Map(); // name → button
  flip = false;
  focus = "e2"; // the square that has the focus, or gets it

  /** Fills `root`, once it is turned; `layers` lie over the squares. */
  constructor(root, ...layers) {
    this.#root = root;
    this.#layers = layers;
  }

  /** Lays the squares without pieces, seen from White's side or from Black's. */
  turn(flip) {
    this.flip = flip;
    const ranks = EIGHT.map((row) =>
      element("div", { role: "row", className: "rank" }, ...EIGHT.map((column) => this.#square(squareAt(column, row, flip)))),
    );
    this.#root.replaceChildren(...ranks, coordinates(flip), ...this.#layers);
  }

  #square(name) {
    const shade = (FILES.indexOf(name[0]) + Number(name[1])) % 2 ? "dark" : "light",
      tabIndex = name === this.focus ? 0 : -1;
    const square = button(undefined, { role: "gridcell", className: `square ${shade}`, tabIndex, "data-square": name });
    square.dataset.piece = "";
    this.squares.set(name, square);
    return square;
  }

  /** Draws a piece on its square, or none. */
  draw(name, piece = "") {
    const square = this.squares.get(name);
    if (square.dataset.piece !== piece || square.childElementCount !== (piece ? 1 : 0)) {
      square.replaceChildren(...(piece ? [drawing(piece, { class: "piece" })] : []));
      square.dataset.piece = piece;
    } else if (piece) square.firstElementChild.removeAttribute("style");
  }

  /** The name of the square under the pointer; null beside the board. */
  at({ clientX, clientY }) {
    const { left, top, width, height } = this.#root.getBoundingClientRect();
    return squareAt(Math.floor((8 * (clientX - left)) / width), Math.floor((8 * (clientY - top)) / height), this.flip);
  }

  /** Gives the focus to a square, at once or when it comes to the board. */
  focusOn(name, now) {
    this.squares.get(this.focus).tabIndex = -1;
    this.focus = name;
    this.squares.get(name).tabIndex = 0;
    if (now) this.squares.get(name).focus();
  }

  /** Has an arrow key move the focus. True if it was one. */
  walk(event) {
    const step = STEPS[event.key];
    if (!step) return false;
    event.preventDefault();
    const [column, row] = place(this.focus, this.flip),
      next = squareAt(column + step[0], row + step[1], this.flip);
    if (next) this.focusOn(next, true);
    return true;
  }
}

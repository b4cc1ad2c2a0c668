// The board that one plays on: by clicks, by dragging, and by the keyboard. It offers the moves it is given, no others.

import { svg } from "./dom.js";
import { Grid } from "./grid.js";
import { premovesOf } from "./premoves.js";
import { promoted } from "./promotion.js";
import { drawsOn } from "./shapes.js";
import { arrow, pieceName, piecesOf, place } from "./squares.js";

const DRAG_FROM = 5; // pixels
const SLIDE = 160; // ms
const STILL = matchMedia("(prefers-reduced-motion: reduce)");

/** Where arrows and circles are drawn, over the squares. */
const layer = () => svg("svg", { viewBox: "0 0 8 8", class: "arrows", "aria-hidden": "true" });

export class Board {
  #root;
  #onMove;
  #onPremove;
  #pieces = new Map();
  #legal = new Map(); // from-square → moves of the answer
  #fen = "";
  #chosen = null;
  #press = null;
  #choosing = false; // squares, by the keyboard; otherwise its arrows walk through the game
  #player = ""; // "w" or "b" against the network, who may move ahead
  #premove = null; // UCI, as it is shown
  #dropped = false; // the piece of the move that is made was dragged there
  #arrows = layer();
  #grid;
  #shapes;
  #drawn = ""; // the position and the shapes that came with it

  /** Fills `root`; `onMove` gets the UCI of a move that the player has made, `onPremove` `{uci, text}` of one made ahead, or null. */
  constructor(root, { onMove, onPremove }) {
    this.#root = root;
    this.#onMove = onMove;
    this.#onPremove = onPremove;
    root.addEventListener("focusin", (event) => event.target.dataset.square && this.#focused(event.target.dataset.square));
    root.addEventListener("keydown", (event) => this.#key(event));
    root.addEventListener("click", ({ detail, target }) => detail === 0 && this.#choose(target.dataset.square)); // Enter and Space
    root.addEventListener("pointerdown", (event) => this.#pressed(event));
    root.addEventListener("pointermove", (event) => this.#dragged(event));
    root.addEventListener("pointerup", (event) => this.#released(event));
    root.addEventListener("pointercancel", () => this.#let());
    const drawn = layer();
    this.#grid = new Grid(root, this.#arrows, drawn);
    this.#shapes = drawsOn(root, drawn, (event) => this.#grid.at(event));
    this.#turn(false);
  }

  /**
   * Shows a position with its legal moves, the move that led to it, arrows, and `shapes` of a study. A `player` who is not to
   * move moves ahead: `premove`.
   */
  show({ fen, flip, moves, last, arrows, check, shapes, player = "", premove = null }) {
    const turned = flip !== this.#grid.flip;
    if (turned) this.#turn(flip);
    const before = this.#pieces;
    this.#player = player;
    this.#premove = premove;
    this.#pieces = piecesOf(fen);
    const drawn = fen + [...shapes].join();
    if (drawn !== this.#drawn) this.#shapes.show(shapes);
    this.#drawn = drawn;
    if (player && moves.length && fen.split(" ")[1] !== player) this.#legal = premovesOf(this.#pieces, player);
    else this.#legal = Map.groupBy(moves, (move) => move.uci.slice(0, 2));
    // A slider must not drop the piece, nor must an answer to a player who has picked one up meanwhile.
    const stays = fen === this.#fen || (player && before.get(this.#chosen) === this.#pieces.get(this.#chosen));
    if (!stays || !this.#legal.has(this.#chosen)) this.#chosen = null;
    this.#fen = fen;
    for (const [name, square] of this.#grid.squares) this.#draw(name, square, last, check);
    if (!turned) this.#slideFrom(before);
    this.draw(arrows);
    this.#mark();
  }

  /** Replaces the arrows. */
  draw(arrows) {
    const drawn = arrows.map((one) => arrow(one, this.#grid.flip));
    this.#arrows.replaceChildren(...drawn, ...drawn.flatMap((one) => [...one.querySelectorAll("text")])); // no arrow covers a label
  }

  /** Lights the arrow of a move up. */
  light(uci) {
    for (const one of this.#arrows.querySelectorAll(".arrow")) one.classList.toggle("lit", one.dataset.uci === uci);
  }

  /** Moves a piece at once, until the service's answer has the whole position. */
  nudge(uci) {
    const [from, to] = [uci.slice(0, 2), uci.slice(2, 4)],
      before = this.#pieces;
    if (!before.has(from) || from === to) return;
    this.#pieces = new Map(before).set(to, before.get(from));
    this.#pieces.delete(from);
    this.#legal = this.#player ? premovesOf(this.#pieces, this.#player) : new Map();
    if (!this.#legal.has(this.#chosen)) this.#chosen = null;
    for (const [name, square] of this.#grid.squares) this.#draw(name, square, uci);
    if (!this.#dropped) this.#slideFrom(before);
    this.#dropped = false;
    this.draw([]);
    this.#mark();
  }

  /** Lets pieces come from where they stood before. */
  #slideFrom(before) {
    const left = [...before].filter(([name, piece]) => this.#pieces.get(name) !== piece);
    const come = [...this.#pieces].filter(([name, piece]) => before.get(name) !== piece);
    if (come.length > 2) return; // another position, not a move
    for (const [name, piece] of come) {
      const from = left.find(([, one]) => one === piece);
      if (from) this.#slide(this.#grid.squares.get(name).querySelector("svg"), from[0], name);
    }
  }

  #slide(piece, from, to) {
    if (STILL.matches) return;
    const [[x, y], [toX, toY]] = [place(from, this.#grid.flip), place(to, this.#grid.flip)];
    const start = `translate(${100 * (x - toX)}%, ${100 * (y - toY)}%)`;
    piece.animate(
      [
        { transform: start, zIndex: 2 },
        { transform: "none", zIndex: 2 },
      ],
      { duration: SLIDE, easing: "ease-out" },
    );
  }

  /** Takes the moves away, until the next position is shown. */
  freeze() {
    this.#legal = new Map();
    this.#chosen = null;
    for (const square of this.#grid.squares.values()) square.classList.remove("movable");
    this.draw([]);
    this.#mark();
  }

  #turn(flip) {
    this.#shapes.turn(flip);
    this.#grid.turn(flip);
  }

  #draw(name, square, last, check) {
    const piece = this.#pieces.get(name);
    this.#grid.draw(name, piece);
    square.classList.toggle("moved", Boolean(last) && (last.startsWith(name) || last.slice(2, 4) === name));
    square.classList.toggle("check", check !== undefined && piece === check);
    square.classList.toggle("movable", this.#legal.has(name));
  }

  /** The moves of the chosen piece, by where it goes; castling also by its rook. */
  #targets() {
    const moves = this.#legal.get(this.#chosen) ?? [];
    const targets = Map.groupBy(moves, (move) => move.uci.slice(2, 4));
    for (const move of moves.filter(({ san }) => san?.startsWith("O-O"))) {
      const rook = (move.san.startsWith("O-O-O") ? "a" : "h") + move.uci[1];
      if (!targets.has(rook) && this.#pieces.get(rook)?.[1] === "r") targets.set(rook, [move]);
    }
    return targets;
  }

  #mark() {
    const targets = this.#targets();
    for (const [name, square] of this.#grid.squares) {
      const piece = this.#pieces.get(name);
      const chosen = name === this.#chosen,
        target = targets.has(name);
      square.classList.toggle("chosen", chosen);
      square.classList.toggle("target", target);
      square.classList.toggle("premove", Boolean(this.#premove) && (this.#premove.startsWith(name) || this.#premove.endsWith(name)));
      const words = [name, piece ? pieceName(piece) : "empty"];
      if (chosen) words.push("chosen");
      if (target)
        words.push(
          `move here: ${targets
            .get(name)
            .map((move) => move.san ?? "as soon as you can")
            .join(" or ")}`,
        );
      else if (this.#legal.has(name) && !this.#chosen) words.push("can move");
      const label = words.join(", ");
      if (square.ariaLabel !== label) square.ariaLabel = label; // most squares stay as they are
      if (square.ariaSelected !== String(chosen)) square.ariaSelected = String(chosen);
    }
  }

  async #choose(name) {
    const moves = this.#targets().get(name);
    if (this.#player) this.#setPremove(moves?.[0].premove ? moves[0] : null);
    if (this.#premove) {
      this.#chosen = null;
      this.#dropped = false;
      return this.#mark();
    }
    if (moves) {
      const move = moves.length > 1 ? await promoted(moves, this.#grid.squares.get(name)) : moves[0];
      this.#chosen = null;
      this.#mark();
      if (move) this.#onMove(move.uci);
      return;
    }
    this.#chosen = this.#chosen !== name && this.#legal.has(name) ? name : null;
    this.#mark();
  }

  #setPremove(move) {
    if ((move?.uci ?? null) === this.#premove) return;
    this.#premove = move?.uci ?? null;
    this.#mark();
    this.#onPremove(move && { uci: move.uci, text: move.text });
  }

  #pressed(event) {
    const name = event.button === 0 ? this.#grid.at(event) : null;
    if (event.button === 2) this.#setPremove(null);
    if (!name) return;
    this.#shapes.show();
    this.#choosing = null; // the focus that follows is not the keyboard's
    addEventListener("pointerup", () => (this.#choosing = false), { once: true });
    this.#grid.focusOn(name);
    const taken = this.#chosen === name;
    const target = this.#targets().has(name);
    if (!target && !taken) this.#choose(name);
    this.#press = { name, taken, target, x: event.clientX, y: event.clientY, moving: false };
    if (this.#legal.has(name)) this.#root.setPointerCapture(event.pointerId);
  }

  #dragged(event) {
    const press = this.#press;
    if (!press || press.target || !this.#legal.has(press.name)) return;
    const [x, y] = [event.clientX - press.x, event.clientY - press.y];
    if (!press.moving && Math.hypot(x, y) < DRAG_FROM) return;
    if (!press.moving && this.#chosen !== press.name) this.#choose(press.name);
    press.moving = true;
    const piece = this.#grid.squares.get(press.name).firstElementChild;
    piece?.classList.add("dragged");
    if (piece) piece.style.transform = `translate(${x}px, ${y}px)`;
    this.#hover(this.#grid.at(event));
  }

  /** Frames the square that a dragged piece would go to. */
  #hover(name) {
    const over = this.#targets().has(name) ? this.#grid.squares.get(name) : null;
    for (const square of this.#root.querySelectorAll(".over")) if (square !== over) square.classList.remove("over");
    over?.classList.add("over");
  }

  #released(event) {
    const press = this.#press,
      name = this.#grid.at(event);
    this.#let();
    if (!press) return;
    if (press.moving) {
      this.#dropped = Boolean(name) && this.#targets().has(name);
      if (this.#dropped) this.#choose(name);
    } else if (name === press.name && (press.target || press.taken)) this.#choose(name);
  }

  #let() {
    const piece = this.#press && this.#grid.squares.get(this.#press.name).firstElementChild;
    piece?.classList.remove("dragged");
    piece?.style.removeProperty("transform");
    this.#hover(null);
    this.#press = null;
  }

  #key(event) {
    if (event.key === "Escape" && this.#chosen) this.#choose(this.#chosen);
    if (this.#choosing && this.#grid.walk(event)) event.stopPropagation();
  }

  #focused(name) {
    this.#choosing = this.#choosing !== null; // by the keyboard, not by the pointer
    this.#grid.focusOn(name);
  }
}

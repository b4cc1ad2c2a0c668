// The board editor: a position set up by hand, piece by piece, or as a FEN.

import { byId, element } from "./dom.js";
import { Grid } from "./grid.js";
import { isChess960 } from "./reading.js";
import { FILES, drawing, pieceName, piecesOf } from "./squares.js";

const START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1",
  EMPTY = "8/8/8/8/8/8/8/8 w - - 0 1";
const TOOLS = ["move", ...[..."kqrbnp"].flatMap((kind) => [`w${kind}`, `b${kind}`]), "none"];
const RIGHTS = { K: ["e1", "h1", "w"], Q: ["e1", "a1", "w"], k: ["e8", "h8", "b"], q: ["e8", "a8", "b"] }; // where king and rook stand

const field = (name) => byId("editor-form").elements[name];

export class Editor {
  #pieces = new Map(); // by square, such as "wk"
  #grid = new Grid(byId("editor-board"));
  #tool = "move";
  #held = null; // the square that a piece is dragged from, or picked up by the keyboard
  #grip = null; // where the pointer took it
  #carried = null; // the drawing of a piece that is dragged from the box
  #chess960 = false; // as the position that was opened, until another is read
  #load;

  /** `load` gets a FEN, whether it is of Chess960, and "analyse" or "play"; the text that it throws is told in the editor. */
  constructor(load) {
    this.#load = load;
    byId("editor-tools").append(...TOOLS.map((tool) => this.#choice(tool)));
    byId("editor-form").addEventListener("input", ({ target }) => (target.name === "fen" ? this.#read(target.value) : this.#write()));
    byId("editor-form").addEventListener("submit", (event) => this.#submitted(event));
    for (const [id, fen] of [
      ["editor-start", START],
      ["editor-empty", EMPTY],
    ])
      byId(id).addEventListener("click", () => this.#read(fen));
    byId("editor-flip").addEventListener("click", () => this.#turn(!this.#grid.flip));
    byId("editor-cancel").addEventListener("click", () => byId("editor").close());
    const board = byId("editor-board");
    board.addEventListener("pointerdown", (event) => this.#pressed(event));
    board.addEventListener("keydown", (event) => this.#key(event));
    board.addEventListener("contextmenu", (event) => event.preventDefault());
    byId("editor").addEventListener("pointermove", (event) => this.#dragged(event));
    byId("editor").addEventListener("pointerup", (event) => this.#released(event));
  }

  /** Opens with a position. */
  open(fen = START, { flip, chess960 }) {
    byId("editor-error").textContent = "";
    this.#turn(flip);
    this.#read(fen, chess960);
    byId("editor").showModal();
  }

  #choice(tool) {
    const input = element("input", { type: "radio", name: "tool", value: tool, checked: tool === this.#tool });
    input.addEventListener("change", () => (this.#tool = tool));
    const name = { move: "move pieces", none: "take pieces away" }[tool] ?? pieceName(tool);
    const pressed = (event) => drawn && this.#take(tool, event);
    const drawn = tool !== "move" && tool !== "none";
    return element(
      "label",
      { title: name, onpointerdown: pressed },
      input,
      element("span", { className: "spoken" }, name),
      { move: "✥", none: "✕" }[tool] ?? drawing(tool),
    );
  }

  /** Takes a piece from the box: it can be dragged onto the board. */
  #take(piece, event) {
    event.preventDefault();
    const input = event.currentTarget.querySelector("input");
    input.checked = true;
    this.#tool = piece;
    this.#carried = element("span", { className: "carried" }, drawing(piece));
    byId("editor").append(this.#carried);
    this.#dragged(event);
  }

  #turn(flip) {
    this.#grid.turn(flip);
    this.#draw();
  }

  #draw() {
    for (const [name, square] of this.#grid.squares) {
      const piece = this.#pieces.get(name);
      this.#grid.draw(name, piece);
      square.classList.toggle("chosen", name === this.#held);
      square.ariaLabel = `${name}, ${piece ? pieceName(piece) : "empty"}${name === this.#held ? ", picked up" : ""}`;
    }
  }

  /** Sets everything to a FEN, whose text stays as it is; of Chess960 if that is said, or if its rights to castle are. */
  #read(fen, chess960 = false) {
    const [, turn, rights = "-", passed = "-"] = fen.trim().split(/[\s_]+/);
    this.#pieces = piecesOf(fen.trim());
    this.#chess960 = chess960 || isChess960(fen.trim());
    this.#held = this.#grip = null;
    field("turn").value = turn === "b" ? "b" : "w";
    for (const right of Object.keys(RIGHTS)) field(right).checked = rights.includes(right);
    this.#offer(passed);
    this.#draw();
    if (field("fen").value !== fen) field("fen").value = fen;
  }

  /** Writes the FEN of what is set. */
  #write() {
    this.#held = this.#grip = null;
    this.#offer(field("passed").value);
    const rights =
      Object.keys(RIGHTS)
        .filter((right) => field(right).checked)
        .join("") || "-";
    this.#draw();
    field("fen").value = `${placement(this.#pieces)} ${field("turn").value} ${rights} ${field("passed").value} 0 1`;
  }

  /** Offers what the pieces allow: castling, and the squares that a pawn may just have passed. */
  #offer(chosen) {
    for (const [right, [king, rook, side]] of Object.entries(RIGHTS)) {
      const able = this.#chess960 || (this.#pieces.get(king) === `${side}k` && this.#pieces.get(rook) === `${side}r`);
      field(right).disabled = !able;
      if (!able) field(right).checked = false;
    }
    const white = field("turn").value === "w",
      [rank, pawn, from] = white ? ["6", "5", "7"] : ["3", "4", "2"];
    const files = [...FILES].filter(
      (file) =>
        this.#pieces.get(file + pawn) === (white ? "bp" : "wp") && !this.#pieces.has(file + rank) && !this.#pieces.has(file + from),
    );
    field("passed").replaceChildren(new Option("none", "-"), ...files.map((file) => new Option(file + rank)));
    field("passed").value = files.includes(chosen[0]) && chosen[1] === rank ? chosen : "-";
  }

  /** Puts a piece on a square, or takes it away: the same piece again, or none. */
  #put(name, piece) {
    if (!piece || this.#pieces.get(name) === piece) this.#pieces.delete(name);
    else this.#pieces.set(name, piece);
    this.#write();
  }

  #carry(from, to) {
    const piece = this.#pieces.get(from);
    this.#held = this.#grip = null;
    if (from === to) return this.#draw();
    this.#pieces.delete(from);
    if (to) this.#pieces.set(to, piece);
    this.#write();
  }

  #pressed(event) {
    const name = this.#grid.at(event);
    if (!name) return;
    this.#grid.focusOn(name);
    if (event.button === 2) this.#put(name);
    else this.#use(name);
    if (this.#held === name) this.#grip = [event.clientX, event.clientY];
  }

  /** Does to a square what the chosen tool does. */
  #use(name) {
    if (this.#tool === "none") this.#put(name);
    else if (this.#tool !== "move") this.#put(name, this.#tool);
    else if (this.#held) this.#carry(this.#held, name);
    else if (this.#pieces.has(name)) {
      this.#held = name;
      this.#draw();
    }
  }

  #dragged(event) {
    if (this.#carried) this.#carried.style.translate = `${event.clientX}px ${event.clientY}px`;
    const piece = this.#grip && this.#grid.squares.get(this.#held).firstElementChild;
    if (piece) piece.style.transform = `translate(${event.clientX - this.#grip[0]}px, ${event.clientY - this.#grip[1]}px)`;
  }

  /** A piece that is dropped on another square goes there, and off the board it goes away. */
  #released(event) {
    const over = this.#grid.at(event);
    if (this.#carried) {
      this.#carried.remove();
      this.#carried = null;
      if (over && this.#pieces.get(over) !== this.#tool) this.#put(over, this.#tool);
    }
    if (!this.#grip) return;
    this.#grid.squares.get(this.#held).firstElementChild.style.transform = "";
    this.#grip = null;
    if (over !== this.#held) this.#carry(this.#held, over);
  }

  #key(event) {
    if (this.#grid.walk(event)) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.#use(this.#grid.focus);
    } else if (event.key === "Delete" || event.key === "Backspace") this.#put(this.#grid.focus);
  }

  async #submitted(event) {
    event.preventDefault();
    byId("editor-error").textContent = "";
    try {
      await this.#load(field("fen").value, this.#chess960, event.submitter.value);
      byId("editor").close();
    } catch (error) {
      byId("editor-error").textContent = error;
    }
  }
}

/** The first field of a FEN. */
function placement(pieces) {
  return [8, 7, 6, 5, 4, 3, 2, 1]
    .map((rank) =>
      [...FILES]
        .map((file) => {
          const piece = pieces.get(file + rank);
          return piece ? (piece[0] === "w" ? piece[1].toUpperCase() : piece[1]) : " ";
        })
        .join("")
        .replace(/ +/g, (empty) => String(empty.length)),
    )
    .join("/");
}

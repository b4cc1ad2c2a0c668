// A game with its variations and comments: as it was pasted, and as it is played on.

import { escaped } from "./split.js";

const HEADERS = ["Event", "Site", "Date", "Round", "White", "Black", "Result"]; // of every PGN, in this order
const WIDTH = 80; // of a PGN's lines

export const GLYPHS = { 1: "!", 2: "?", 3: "!!", 4: "??", 5: "!?", 6: "?!" };

/** Moves are nodes: `{uci, san, nags, before, comment, parent, children}`; a node's first child continues its line. */
export class Tree {
  /** `nodes` as the service gives them, parents first; `headers` are those of the PGN. */
  constructor({ fen, chess960, headers = {}, nodes = [] }) {
    Object.assign(this, { fen, chess960, headers });
    this.root = { children: [], comment: nodes[0]?.comment };
    const made = [this.root];
    for (const node of nodes.slice(1)) {
      const parent = made[node.parent], one = { ...node, parent, children: [] };
      parent.children.push(one);
      made.push(one);
    }
  }

  /** What the constructor takes: plain data, to be kept. */
  plain() {
    const nodes = [{ comment: this.root.comment }], places = new Map([[this.root, 0]]);
    for (const node of walk(this.root)) {
      const { uci, san, nags, before, comment } = node;
      places.set(node, nodes.length);
      nodes.push({ uci, san, nags, before, comment, parent: places.get(node.parent) });
    }
    return { fen: this.fen, chess960: this.chess960, headers: this.headers, nodes };
  }

  /** The nodes of a line from the start, made where there are none. */
  along(moves) {
    let node = this.root;
    return moves.map((uci) => {
      let next = node.children.find((child) => child.uci === uci);
      if (!next) node.children.push(next = { uci, san: uci, parent: node, children: [] });
      return (node = next);
    });
  }

  /** Whether a line is in the tree. */
  has(moves) {
    let node = this.root;
    return moves.every((uci) => (node = node.children.find((child) => child.uci === uci)));
  }

  /** The node of a position. */
  at(moves) {
    return this.along(moves).at(-1) ?? this.root;
  }

  /** A line and how the tree continues it. */
  onwards(moves) {
    const line = [...moves];
    for (let node = this.at(moves).children[0]; node; node = node.children[0]) line.push(node.uci);
    return line;
  }

  /** Takes the last move of a line out, with all that follows. */
  remove(moves) {
    const { parent } = this.at(moves);
    parent.children = parent.children.filter((child) => child.uci !== moves.at(-1));
  }

  /** The game as a PGN, with these headers in place of its own. */
  pgn(headers = {}) {
    const own = { ...this.headers };
    delete own.Result;
    const all = { Event: "?", Site: "?", Date: "????.??.??", Round: "?", White: "?", Black: "?", ...own, ...headers };
    all.Result ??= this.#result();
    if (this.fen !== "startpos") Object.assign(all, { SetUp: "1", FEN: this.fen });
    if (this.chess960) all.Variant = "Chess960";
    const names = [...HEADERS, ...Object.keys(all).filter((name) => !HEADERS.includes(name))];
    const tags = names.map((name) => `[${name} "${escaped(all[name])}"]`);
    const words = [...noted(this.root.comment), ...written(this.root, firstPly(this.fen)), all.Result];
    return `${tags.join("\n")}\n\n${wrapped(words)}\n`;
  }

  /** How the main line ended: on the board, or as the PGN says. */
  #result() {
    const last = this.at(this.onwards([]));
    return last.result ?? this.headers.Result ?? "*";
  }
}

/** The moves that led to a node. */
export function pathTo(node) {
  const path = [];
  for (let one = node; one.parent; one = one.parent) path.unshift(one.uci);
  return path;
}

/** Half-moves from the start of the game, by a FEN's own counter. */
export function firstPly(fen) {
  const fields = fen.split(/\s+/);
  return Math.max(0, 2 * ((Number(fields[5]) || 1) - 1)) + (fields[1] === "b" ? 1 : 0);
}

/** The number in front of a move: "12." for White's, "12…" for Black's where it needs one. */
export const numbered = (ply, dots = "…") => `${(ply >> 1) + 1}${ply % 2 ? dots : "."}`;

/** What a comment says to people: without commands such as [%clk 0:01:00]. */
export const readable = (comment = "") => comment.replace(/\[%[^\]]*\]/g, "").trim();

/** All nodes below one, parents first. */
function* walk(root) {
  const waiting = [...root.children].reverse();
  while (waiting.length) {
    const node = waiting.pop();
    yield node;
    waiting.push(...[...node.children].reverse());
  }
}

const noted = (comment) => (comment ? [`{ ${comment.replaceAll("}", ")")} }`] : []);

/** The words of the moves after a node, with variations behind the moves that they replace. */
function written(node, ply, number = true) {
  const words = [];
  for (; node.children.length; node = node.children[0], ply++) {
    const [main, ...others] = node.children;
    const move = (one, always) => [...(always || ply % 2 === 0 ? [numbered(ply, "...")] : []), one.san,
      ...(one.nags ?? []).map((nag) => `$${nag}`), ...noted(one.comment)];
    words.push(...move(main, number));
    for (const other of others) {
      const inner = [...noted(other.before), ...move(other, true), ...written(other, ply + 1, Boolean(other.comment))];
      words.push(`(${inner.shift()}`, ...inner);
      words[words.length - 1] += ")";
    }
    number = Boolean(main.comment) || others.length > 0;
  }
  return words;
}

/** Lines of words; a comment is one word, as a break would be part of it. */
function wrapped(words) {
  const lines = [""];
  for (const word of words) {
    const line = lines.at(-1);
    if (line && line.length + 1 + word.length > WIDTH) lines.push(word);
    else lines[lines.length - 1] = line ? `${line} ${word}` : word;
  }
  return lines.join("\n");
}

// A game with its variations and comments. A tree never changes: adding or removing moves gives another one.

export const GLYPHS = { 1: "!", 2: "?", 3: "!!", 4: "??", 5: "!?", 6: "?!" };

/**
 * `nodes` are moves, parents first: `{parent, uci, san, nags, before, comment, added}`, where `parent` is an index and
 * `added` marks a move that the player has made here. Node 0 is the start. The first child of a node continues its line.
 */
export class Tree {
  #children;
  #keys = [""];
  #evaluations;

  /** @param {{fen?: string, chess960?: boolean, headers?: Record<string, string>, nodes?: any[]}} [given] */
  constructor({ fen = "startpos", chess960 = false, headers = {}, nodes = [{}] } = {}) {
    this.fen = fen;
    this.chess960 = chess960;
    this.headers = headers;
    this.nodes = nodes.length ? nodes : [{}];
    this.#children = this.nodes.map(() => []);
    this.nodes.forEach(({ parent }, index) => index && this.#children[parent].push(index));
  }

  /** The nodes that follow one, the main continuation first. */
  children(index) {
    return this.#children[index];
  }

  /** The node after these moves, or undefined if the tree lacks it. */
  at(moves) {
    return this.along(moves).at(-1);
  }

  /** The nodes along a line, from the start; undefined from where the tree lacks it. */
  along(moves) {
    let index = 0;
    return [0, ...moves.map((uci) => (index = this.#children[index]?.find((child) => this.nodes[child].uci === uci)))];
  }

  /** The moves of a line: their nodes. */
  line(moves) {
    return this.along(moves)
      .slice(1)
      .map((index) => this.nodes[index]);
  }

  /** Whether a line is how the main line begins. */
  isMain(moves) {
    const { main } = this;
    return moves.every((uci, ply) => uci === main[ply]);
  }

  /** A move with its number, such as "12. Nf3". */
  title(index) {
    return `${numbered(firstPly(this.fen) + this.path(index).length - 1)} ${this.nodes[index].san}`;
  }

  /** The moves that lead to a node. */
  path(index) {
    const path = [];
    for (; index; index = this.nodes[index].parent) path.push(this.nodes[index].uci);
    return path.reverse();
  }

  /** The same as one text, by which what is known of a move is found. */
  key(index) {
    return (this.#keys[index] ??= `${this.key(this.nodes[index].parent)}.${this.nodes[index].uci}`);
  }

  /** All evaluations of its moves, as their comments have them: a game with others is judged otherwise. */
  get evaluations() {
    return (this.#evaluations ??= this.nodes.map(evaluationOf).join(""));
  }

  /** A line and how the tree continues it. */
  onwards(moves) {
    const line = [...moves];
    for (let index = this.#children[this.at(moves)][0]; index; index = this.#children[index][0]) line.push(this.nodes[index].uci);
    return line;
  }

  /** The moves of the main line: of a game, those that were played in it, without what is tried after its end. */
  get main() {
    const line = this.onwards([]),
      tried = this.isGame ? this.along(line).findIndex((index) => this.nodes[index].added) : -1;
    return tried < 0 ? line : line.slice(0, tried - 1);
  }

  /** Whether it has a game that was played, not only moves that are tried here. */
  get isGame() {
    return Object.keys(this.headers).length > 0;
  }

  /** A tree that has this line; moves that are new get `extra`, and the last of them its SAN. */
  grown(moves, san, extra = {}) {
    const nodes = [...this.nodes];
    let parent = 0,
      fresh = false;
    moves.forEach((uci, ply) => {
      const found = fresh ? undefined : this.#children[parent].find((child) => nodes[child].uci === uci);
      fresh = found === undefined;
      if (fresh) nodes.push({ parent, uci, san: ply === moves.length - 1 && san ? san : uci, ...extra });
      parent = found ?? nodes.length - 1;
    });
    return new Tree({ ...this, nodes });
  }

  /** A tree without a node and all that follows it. */
  pruned(index) {
    const places = new Map([[0, 0]]),
      nodes = [this.nodes[0]];
    this.nodes.forEach((node, old) => {
      if (!old || old === index || !places.has(node.parent)) return;
      places.set(old, nodes.length);
      nodes.push({ ...node, parent: places.get(node.parent) });
    });
    return new Tree({ ...this, nodes });
  }

  /** A tree whose moves along a line have these names. */
  named(moves, sans) {
    const nodes = [...this.nodes];
    this.along(moves)
      .slice(1)
      .forEach((index, ply) => (nodes[index] = { ...nodes[index], san: sans[ply] ?? nodes[index].san }));
    return new Tree({ ...this, nodes });
  }
}

/** The evaluation that a comment has, or "". */
export const evaluationOf = ({ comment }) => comment?.match(/\[%eval[^\]}]*\]/)?.[0] ?? "";

/** The rating that a tag gives; undefined for what is not a whole number from 100 to 4000, such as "?" and "0". */
export const ratingOf = (value) => (/^\d{3,4}$/.test(value ?? "") && value >= 100 && value <= 4000 ? Number(value) : undefined);

/** Who is to move after a number of half-moves from a position. */
export function turnAfter(fen, plies) {
  const first = fen.split(/\s+/)[1] === "b" ? 1 : 0;
  return (first + plies) % 2 ? "black" : "white";
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

// The game on the board: its moves with what the model thinks of them, the graph, and the review with its verdicts.

import { byId } from "./dom.js";
import { showGraph } from "./graph.js";
import { SIDES } from "./match.js";
import { showMoves } from "./movelist.js";
import { pgnOf } from "./pgn.js";
import { takesRatings } from "./ratings.js";
import { Reports } from "./reports.js";
import { showReview } from "./review.js";
import { alone, played, playing, reviewable } from "./state.js";
import { firstPly, numbered, turnAfter } from "./tree.js";
import { MARKS, verdictOf } from "./verdicts.js";

const RESTS = 700; // ms without a move until a line that is played here is read as a whole

export class Analysis {
  #store;
  #notice;
  #reports = new Reports();
  #ratings = true; // whether the network takes ratings
  #reviewed = {}; // `{line, review}`: the last review that was shown

  constructor(store, notice) {
    this.#store = store;
    this.#notice = notice;
  }

  /** Notes what an answer says of the position after a line, and of the move that comes next. */
  note(state, line, answer) {
    this.#reports.note(state, line, answer);
  }

  /** The report on the move that comes next on the board: `{uci, san, probability, …}`, or undefined. */
  next(state) {
    return this.#reports.along(state)[state.at];
  }

  /** The game as a PGN, once its moves have names; `rated` with the ratings of the sliders, for the service to judge it by. */
  async pgn(rated = false) {
    await this.#complete(this.#store.state);
    const { state } = this.#store;
    const ratings = rated ? { WhiteElo: String(Math.round(state.white)), BlackElo: String(Math.round(state.black)) } : {};
    return pgnOf(state.tree, ratings, this.#reports.result(state));
  }

  /** Goes to the first move of the review that was a fault, or to the first of all. */
  reviewFaults() {
    const { state } = this.#store,
      verdicts = [...(this.#verdictsOf(state) ?? [])];
    const [ply] = verdicts.find(([, { kind }]) => kind) ?? verdicts[0] ?? [-1];
    if (ply >= 0) this.#store.dispatch({ type: "go", path: state.tree.main.slice(0, ply + 1) });
    byId("verdict").focus();
  }

  /** Shows the game of a state, as far as it is known. Who plays alone sees the moves and no more. */
  draw(state) {
    const { tree, moves, at } = state,
      hidden = alone(state),
      going = playing(state),
      reports = this.#reports;
    const line = reports.along(state),
      first = firstPly(tree.fen),
      main = tree.along(tree.main),
      isMain = moves.join() === tree.main.join();
    const review = going ? undefined : this.#reviewOf(state),
      verdicts = going ? undefined : this.#verdictsOf(state);
    const marks = new Map([...(verdicts ?? [])].map(([ply, { kind }]) => [main[ply + 1], MARKS[kind] ?? ""]));
    const goTo = (place) => this.#store.dispatch({ type: "step", at: place });
    const goOnMain = (place) => this.#store.dispatch({ type: "go", path: tree.main.slice(0, place) });
    byId("marks").classList.toggle("unseen", hidden || !moves.length);
    showMoves(byId("line"), {
      tree,
      current: tree.at(played(state)),
      reportOf: hidden ? () => ({}) : (index) => reports.of(state, index),
      markOf: (index) => marks.get(index) ?? "",
      goTo: (path) => this.#store.dispatch({ type: "go", path }),
    });
    const opening = going ? undefined : reports.opening(state);
    byId("opening").hidden = !opening;
    byId("opening").textContent = byId("opening").title = opening ? `${opening.eco} ${opening.name}` : "";
    showGraph(byId("graph"), {
      scores: hidden ? [] : reports.scores(state),
      reports: hidden ? line.map(() => ({})) : line,
      at,
      goTo,
      names: line.map(({ san }, ply) => `${numbered(first + ply)} ${san}`),
      moments: isMain && review ? review.moments.map(({ ply }) => ply) : [],
    });
    showReview({
      shown: reviewable(state),
      side: state.you,
      own: tree.headers[SIDES[state.you]] === "You",
      verdicts,
      sans: main.slice(1).map((index) => tree.nodes[index].san),
      first,
      at: isMain ? at : -1,
      moments: review?.moments,
      goTo: goOnMain,
      choose: (side) => this.#store.dispatch({ type: "set", name: "you", value: side }),
    });
  }

  /** Asks for what is missing of the game, and shows it. A game that goes on is not read ahead. `model` is the chosen one. */
  async review(state, model, current) {
    if (alone(state) || !state.moves.length) return this.#notice.clear("review");
    try {
      await this.#complete(state);
      if (!playing(state)) await this.#readMain(state, current);
      this.#ratings = takesRatings(model);
      if (current()) this.draw(this.#store.state);
      if (current() && !playing(state) && isGame(state)) await this.#reports.askAll(this.#store.state);
      if (current()) this.#notice.clear("review");
    } catch (error) {
      if (current()) this.#notice.tell("review", error, () => current() && this.review(state, model, current));
    }
  }

  /** The reports on the line on the board, and the names of its moves. */
  async #complete(state) {
    const { tree, moves } = state,
      unnamed = tree
        .along(moves)
        .slice(1)
        .some((index) => tree.nodes[index].san === tree.nodes[index].uci);
    if (unnamed || !this.#reports.complete(state)) await this.#ask(state, moves);
  }

  async #ask(state, line) {
    const { tree } = state,
      sans = await this.#reports.ask(state, line);
    const unnamed = tree
      .along(line)
      .slice(1)
      .some((index, ply) => tree.nodes[index].san !== sans[ply]);
    if (unnamed) this.#store.dispatch({ type: "named", tree, moves: line, sans });
  }

  /** Reads the main line: of a game at once, of moves that are made here, when they rest, what opening they are. */
  async #readMain(state, current) {
    if (this.#reports.review(state)) return;
    if (!isGame(state)) await new Promise((done) => setTimeout(done, RESTS));
    if (current()) await this.#ask(state, state.tree.main);
  }

  /** The review of the main line: of other ratings until that of these has come, so that the panel stays. */
  #reviewOf(state) {
    const { tree } = state,
      line = [tree.fen, ...tree.main].join(),
      review = this.#reports.review(state);
    if (review || this.#reviewed.line !== line) this.#reviewed = { line, review };
    return this.#reviewed.review;
  }

  /** The verdicts on the moves of the main line by ply, of the side that is reviewed or of both; undefined before it is read. */
  #verdictsOf(state) {
    const { tree, you } = state,
      line = { ...state, moves: tree.main };
    if (!this.#reports.review(state)) return undefined;
    const found = this.#reports.along(line).map((report, ply) => {
      const side = turnAfter(tree.fen, ply);
      return report.probability === undefined || (you && side !== you)
        ? []
        : [[ply, verdictOf(report, this.#ratings ? state[side] : undefined)]];
    });
    return new Map(found.flat());
  }
}

/** Whether the board has a game that was played, not only moves that are tried here. */
const isGame = ({ tree }) => Object.keys(tree.headers).length > 0;

// The game on the board: its moves with how likely they are and what they cost, the graph, and the review with its verdicts.

import { byId, say } from "./dom.js";
import { Costs } from "./costs.js";
import { showGraph } from "./graph.js";
import { SIDES } from "./match.js";
import { showMoves } from "./movelist.js";
import { pgnOf } from "./pgn.js";
import { takesRatings } from "./ratings.js";
import { Reports } from "./reports.js";
import { showReview, showVerdict } from "./review.js";
import { alone, hasGraph, played, playing, reviewable, trying } from "./state.js";
import { GLYPHS, turnAfter } from "./tree.js";
import { MARKS, betterThan, keyPlies, surprisingPlies, verdictOf } from "./verdicts.js";
import { noted } from "./words.js";

const RESTS = 700; // ms without a move until a line that is played here is read as a whole

export class Analysis {
  #store;
  #notice;
  /** How likely the moves of games are. */
  reports = new Reports();
  #costs;
  #ratings = true; // whether the network takes ratings

  /** `changed` is called when the engine has marked a move, or is done. */
  constructor(store, notice, changed) {
    this.#store = store;
    this.#notice = notice;
    this.#costs = new Costs(changed, (state, found) => this.reports.take(state, state.tree.main, found));
  }

  /** The game as a PGN, once its moves have names; `rated` with the ratings of the sliders, for the service to judge it by. */
  async pgn(rated = false) {
    await this.#complete(this.#store.state);
    const { state } = this.#store;
    const ratings = rated ? { WhiteElo: String(Math.round(state.white)), BlackElo: String(Math.round(state.black)) } : {};
    return pgnOf(state.tree, ratings, this.reports.result(state));
  }

  /** White's expected score in the position on the board; undefined if nothing tells it. */
  score(state) {
    return playing(state) ? undefined : this.#costs.scores(state, played(state)).at(-1);
  }

  /**
   * The better move `{uci, instead}` to draw on the board: in the review than the move that led there, `instead` of which it was
   * to be played; else than the one that comes next. Undefined without one.
   */
  better(state) {
    if (playing(state) || trying(state)) return undefined;
    const nodes = state.tree.along(state.moves),
      best = (index) => index && this.#costs.of(state, index).line?.[0],
      before = state.view === "review" && best(nodes[state.at]);
    return before ? { ...before, instead: true } : best(nodes[state.at + 1]);
  }

  /** Goes to the first move of the review that was a fault, or to the first of all. */
  reviewFaults() {
    const { state } = this.#store,
      verdicts = [...(this.#verdictsOf(state) ?? [])].filter(([ply]) => isReviewed(state, ply));
    const [ply] = verdicts.find(([, { kind }]) => kind) ?? verdicts[0] ?? [-1];
    if (ply >= 0) this.#store.dispatch({ type: "go", path: state.tree.main.slice(0, ply + 1) });
    byId("verdict").focus();
  }

  /** Shows the game of a state, as far as it is known. Who plays alone sees the moves and no more. */
  draw(state) {
    const { tree, moves, at } = state,
      hidden = alone(state),
      going = playing(state),
      reports = this.reports;
    const line = reports.along(state),
      main = tree.along(tree.main),
      nodes = tree.along(moves);
    const review = going ? undefined : this.#costs.review(state),
      verdicts = going ? undefined : this.#verdictsOf(state),
      nameOf = (ply) => tree.title(main[ply + 1]);
    // Of a game whose one side is reviewed, key moves are that side's.
    const ofSide = (known) => main.slice(1).map((index, ply) => (isReviewed(state, ply) ? known.of(state, index) : {})),
      keys = verdicts ? keyPlies(ofSide(this.#costs), review?.finished) : [];
    const goTo = (place) => this.#store.dispatch({ type: "step", at: place });
    byId("marks").classList.toggle("unseen", hidden || !moves.length);
    byId("marks-file").hidden = !tree.nodes.some(({ nags = [] }) => nags.some((nag) => GLYPHS[nag]));
    showMoves(byId("line"), {
      tree,
      current: tree.at(played(state)),
      reportOf: hidden ? () => ({}) : (index) => reports.of(state, index),
      markOf: going ? () => "" : (index) => MARKS[this.#costs.of(state, index).mark] ?? "",
      goTo: (path) => this.#store.dispatch({ type: "go", path }),
    });
    say(byId("notes"), noted(state.notes));
    const opening = going ? undefined : reports.opening(state);
    byId("opening").hidden = !opening;
    byId("opening").textContent = byId("opening").title = opening ? `${opening.eco} ${opening.name}` : "";
    byId("chances").hidden = !hasGraph(state);
    showGraph(byId("graph"), {
      scores: going || !state.tree.isGame ? [] : this.#costs.scores(state, moves),
      reports: line,
      at,
      goTo,
      nameOf: (ply) => tree.title(nodes[ply]),
      moments: keys.map((ply) => ply + 1).filter((ply) => nodes[ply] === main[ply]),
    });
    this.#showVerdict(state, verdicts, review);
    if (!reviewable(state)) return;
    showReview({
      side: state.you,
      own: tree.headers[SIDES[state.you]] === "You",
      verdicts,
      nameOf,
      at: nodes[at] === main[at] ? at : -1,
      keys,
      surprising: surprisingPlies(ofSide(reports)),
      rated: this.#ratings,
      review,
      goTo: (place) => this.#store.dispatch({ type: "go", path: tree.main.slice(0, place) }),
      choose: (side) => this.#store.dispatch({ type: "set", name: "you", value: side }),
      again: () => this.judgeAgain(),
    });
  }

  /** The verdict on the move that led to the board; of a game whose one side is reviewed, on that side's last move. */
  #showVerdict(state, verdicts, review) {
    const { tree, you } = state,
      line = played(state);
    byId("verdict").hidden = playing(state);
    if (playing(state)) return;
    if (trying(state)) {
      const instead = tree.at(tree.onwards(line).slice(0, line.length + 1));
      const otherwise = `Find a better move than ${tree.title(instead)}.`;
      // The answer stands beside the move that was played: its verdict, and the better move as an arrow.
      const give = () => {
        this.#store.dispatch({ type: "set", name: "trying", value: null });
        this.#store.dispatch({ type: "go", path: tree.onwards(line).slice(0, line.length + 1) });
      };
      return showVerdict({ otherwise, give });
    }
    const isMain = tree.isMain(line),
      own = !isMain || !you || turnAfter(tree.fen, line.length - 1) === you;
    const path = own ? line : line.slice(0, -1);
    const verdict = path.length && this.#verdictOn(state, path, review);
    if (!verdict) {
      const otherwise = !state.tree.isGame ? "" : verdicts ? "Step through the game for the verdicts." : "The game is being read.";
      return showVerdict({ otherwise });
    }
    const index = tree.at(path),
      cost = this.#costs.of(state, index),
      before = path.slice(0, -1);
    const instead = tree.at(tree.main.slice(0, path.length)),
      tried = !isMain && tree.nodes[instead ?? 0].parent === tree.nodes[index].parent ? this.#costs.of(state, instead).lost : undefined;
    showVerdict({
      here: {
        ...verdict,
        move: tree.title(index),
        text: betterThan(tree.nodes[instead]?.san, tried, cost) + verdict.text,
        better: cost.line?.[0].san,
      },
      follow: () => this.#store.dispatch({ type: "better", before, line: cost.line }),
      again: verdict.kind && own ? () => this.#store.dispatch({ type: "again" }) : undefined,
    });
  }

  /** The verdict on the last move of a line; undefined before anything is known of it. */
  #verdictOn(state, path, review) {
    const { tree } = state,
      index = tree.at(path),
      cost = this.#costs.of(state, index),
      report = this.reports.of(state, index),
      side = turnAfter(tree.fen, path.length - 1),
      isMain = tree.isMain(path);
    if (cost.lost === undefined && !cost.fact && report.probability === undefined) return undefined;
    const shares = isMain ? review?.moments.find(({ ply }) => ply === path.length)?.by_rating : undefined;
    return { ...verdictOf(cost, report, this.#ratings ? state[side] : undefined, shares), shares, side };
  }

  /** Asks for what is missing of the game, and shows it. A game that goes on is not read ahead. `model` is the chosen one. */
  async review(state, model, current) {
    this.#costs.leave(playing(state) ? null : state);
    if (alone(state) || !state.moves.length) return this.#notice.clear("review");
    try {
      if (!playing(state)) this.#judge(state);
      await this.#costs.until("reported", state);
      await this.#complete(state);
      if (!playing(state)) await this.#readMain(state, current);
      this.#ratings = takesRatings(model);
      if (current()) this.draw(this.#store.state);
      if (!playing(state) && state.tree.isGame) this.#readAhead(state, current);
      if (current()) this.#notice.clear("review");
    } catch (error) {
      if (current()) this.#notice.tell("review", error, () => current() && this.review(state, model, current));
    }
  }

  /** Has the engine judge a game, and the moves that are tried here. Nothing waits for it. */
  async #judge(state) {
    const { tree } = state,
      line = played(state);
    const isMain = state.tree.isGame && tree.isMain(line);
    try {
      if (state.tree.isGame) this.#costs.readMain(state).catch((error) => this.#costless(error));
      if (!isMain && line.length) await this.#costs.judge(state);
      this.#notice.clear("costs");
    } catch (error) {
      this.#costless(error);
    }
  }

  /** Asks for the positions of a game, so that stepping through it asks for nothing, when the engine has looked at each. */
  async #readAhead(state, current) {
    await this.#costs.until("searched", state);
    if (current()) await this.reports.askAll(state).catch(() => {}); // then each position is asked for when it is shown
  }

  /** Has the engine judge what it has left of the game on the board. */
  judgeAgain() {
    const { state } = this.#store;
    if (reviewable(state)) this.#costs.again(state).catch((error) => this.#costless(error));
  }

  /** Tells why the engine has judged nothing, and asks again where that helps. */
  #costless(error) {
    this.#notice.tell("costs", error, () => this.#judge(this.#store.state));
  }

  /** The reports on the line on the board, and the names of its moves. */
  async #complete(state) {
    const { tree, moves } = state,
      unnamed = tree.line(moves).some(({ uci, san }) => san === uci);
    if (unnamed || !this.reports.complete(state)) await this.#ask(state, moves);
  }

  async #ask(state, line) {
    const { tree } = state,
      sans = await this.reports.ask(state, line);
    if (tree.line(line).some(({ san }, ply) => san !== sans[ply])) this.#store.dispatch({ type: "named", tree, moves: line, sans });
  }

  /** Reads the main line: of a game at once, of moves that are made here, when they rest, what opening they are. */
  async #readMain(state, current) {
    if (this.reports.isRead(state)) return;
    if (!state.tree.isGame) await new Promise((done) => setTimeout(done, RESTS));
    if (current()) await this.#ask(state, state.tree.main);
  }

  /** The verdicts on the moves of the main line by ply; undefined before it is read. */
  #verdictsOf(state) {
    const { main } = state.tree,
      review = this.#costs.review(state);
    if (!this.reports.isRead(state)) return undefined;
    const found = main.map((_, ply) => [ply, this.#verdictOn(state, main.slice(0, ply + 1), review)]);
    return new Map(found.filter(([, verdict]) => verdict));
  }
}

/** Whether the side that makes the move after so many plies is reviewed. */
const isReviewed = ({ tree, you }, ply) => !you || turnAfter(tree.fen, ply) === you;

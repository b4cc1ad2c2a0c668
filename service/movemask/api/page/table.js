// The table: the board, the moves, and all that is said of the position. It shows a state, and asks for what that needs.

import { endingBy } from "./answer.js";
import { remembered } from "./api.js";
import { Board } from "./board.js";
import { byId } from "./dom.js";
import { showGraph } from "./graph.js";
import { lensAnswer, lensArrows, showLenses } from "./lens.js";
import { endingOf, isYours } from "./match.js";
import { showMoments } from "./moments.js";
import { showMoves } from "./movelist.js";
import { showBars, showValue } from "./moves.js";
import { pgnOf } from "./pgn.js";
import { showPlayers, showResult } from "./players.js";
import { clearRatings, showRatings } from "./ratings.js";
import { Reports } from "./reports.js";
import { alone, elo, following, live, named, played, playing, position, turn } from "./state.js";
import { showClocks } from "./timer.js";
import { firstPly, numbered } from "./tree.js";
import { saidInGame, saidOf } from "./words.js";

const ARROWS = 5;
const LEAST_ARROW = 0.02;
const RESTS = 700; // ms without a move until a line that is played here is read as a whole

export class Table {
  #store;
  #notice;
  #board;
  #reports = new Reports();
  #shown = null; // `{answer, state, line}`: the answer on the board, and the state and line that it was asked for

  constructor(store, notice) {
    this.#store = store;
    this.#notice = notice;
    this.#board = new Board(byId("board"), {
      onMove: (uci) => this.move(uci), onPremove: (uci) => store.dispatch({ type: "premove", premove: uci && { uci } }),
    });
  }

  /** The answer on the board, if it is of the present position. */
  get answer() {
    const { state } = this.#store;
    return this.#shown && this.#shown.line.join() === played(state).join() && this.#shown.state.tree.fen === state.tree.fen ? this.#shown.answer : null;
  }

  /** What is on the board, to be taken away. Throws if nothing is. */
  get seen() {
    if (!this.answer) throw new Error("There is no position on the board yet.");
    return { answer: this.answer, arrows: arrows(this.#store.state, this.answer), flip: this.#store.state.flip };
  }

  /** Plays a move of the answer on the board, unless it is not the player's turn. */
  move(uci) {
    const move = this.answer?.moves.find((one) => one.uci === uci);
    if (move) this.#store.dispatch({ type: "play", uci, san: move.san, after: played(this.#store.state).join() });
  }

  /** What can be shown of a state before the service has answered: the clocks, the buttons, and a move on the board. */
  prepare(state) {
    const going = playing(state), match = state.match;
    document.body.classList.toggle("playing", alone(state));
    byId("actions").hidden = !going;
    byId("setup").hidden = live(state);
    showResult(match?.ending && following(state) ? match : null);
    if (going) {
      byId("resign").textContent = match.moves.length < 2 ? "Abort" : "Resign";
      byId("draw").textContent = match.standing?.draw && isYours(match) ? "Claim draw" : "Offer draw";
    }
    const line = played(state), before = this.#noted(state);
    if (before && line.length === before.length + 1 && before.every((uci, ply) => uci === line[ply])) this.#board.nudge(line.at(-1));
  }

  /** Notes what the answer on the board said of a move that was played since. Returns the line of that answer, if it is in the tree. */
  #noted(state) {
    const { answer, line, state: asked } = this.#shown ?? {};
    if (!answer || asked.tree.fen !== state.tree.fen || state.tree.at(line) === undefined) return undefined;
    if (["model", "white", "black"].every((name) => asked[name] === state[name])) this.#reports.note(state, line, answer);
    return line;
  }

  /** Shows a state of a view with a board; `models` are all of them. `current` says whether it is still wanted. */
  async show(state, models, current) {
    const line = played(state);
    const answer = state.view === "lens" ? await lensAnswer(state, state.model)
      : await remembered("v1/policy", { ...position(state, line), ...named(state), elo: elo(state, turn(state)), include: ["san", "forecast"] });
    if (!current()) return;
    performance.mark("answered");
    this.#shown = { answer, state, line };
    this.#reports.note(state, line, answer);
    this.#draw(state, answer);
    performance.measure("shown", "answered");
    if (state.view === "ratings") await showRatings(state, { answer, models, next: this.#reports.along(state)[state.at], current });
    if (state.view === "lens") await this.#lenses(state, answer, current);
    if (current()) await this.#review(state, current);
  }

  /** Shows the moves of a state again, whose position is on the board already. */
  rename(state) {
    if (this.answer) this.#drawGame(state);
  }

  /** Takes away what was said of another position, when there is no answer for the one that is wanted. */
  forget() {
    this.#shown = null;
    document.body.classList.add("stale");
    this.#board.freeze();
    showValue(byId("value"), null, this.#store.state.flip);
    byId("said").textContent = "";
    for (const id of ["bars", "lenses", "legal"]) byId(id).replaceChildren();
    clearRatings();
  }

  /** The game as a PGN, once its moves have names; `rated` with the ratings of the sliders, for the service to judge it by. */
  async pgn(rated = false) {
    await this.#complete(this.#store.state);
    const { state } = this.#store;
    const ratings = rated ? { WhiteElo: String(Math.round(state.white)), BlackElo: String(Math.round(state.black)) } : {};
    return pgnOf(state.tree, ratings, this.#reports.result(state));
  }

  #draw(state, answer) {
    const { tree, match, at, moves, flip } = state, line = played(state), going = playing(state), atEnd = at === moves.length;
    const open = going ? atEnd : !endingBy(answer);
    const last = line.length ? { ply: firstPly(tree.fen) + at - 1, san: tree.nodes[tree.at(line)].san } : null;
    document.body.classList.remove("stale");
    this.#board.show({
      fen: answer.fen, flip, last: line.at(-1), moves: open ? answer.moves : [], arrows: arrows(state, answer),
      player: going && atEnd ? match.you[0] : "", premove: (going && match.premove?.uci) || null,
      check: answer.status === "checkmate" || /[+#]$/.test(last?.san) ? `${answer.turn[0]}k` : undefined,
    });
    const hidden = alone(state), ending = at && line.join() === tree.main.join() ? endingOf(tree.headers) : null;
    showValue(byId("value"), hidden ? null : answer, flip);
    const said = going ? saidInGame(match, moves.length - at) : saidOf(answer, { last, ending });
    if (byId("said").textContent !== said) byId("said").textContent = said;
    byId("legal").replaceChildren(...answer.moves.map((move) => move.san).sort().map((san) => new Option(san)));
    if (state.view === "play") {
      showBars(byId("bars"), hidden ? null : answer.moves, { onMove: (uci) => this.move(uci), onLight: (uci) => this.#board.light(uci), next: moves[at] });
    }
    showPlayers({ headers: tree.headers, fen: answer.fen, flip, clocks: following(state) && Boolean(match.control) });
    showClocks(state);
    this.#drawGame(state);
  }

  /** The moves of the game and the graph of its line. */
  #drawGame(state) {
    const { tree, moves, at } = state, hidden = alone(state), going = playing(state), reports = this.#reports;
    const goTo = (place) => this.#store.dispatch({ type: "step", at: place });
    byId("marks").classList.toggle("unseen", hidden || !moves.length);
    showMoves(byId("line"), {
      tree, current: tree.at(played(state)), reportOf: hidden ? () => ({}) : (index) => reports.of(state, index),
      goTo: (path) => this.#store.dispatch({ type: "go", path }),
    });
    const opening = going ? undefined : reports.opening(state);
    byId("opening").hidden = !opening;
    byId("opening").textContent = opening ? `${opening.eco} ${opening.name}` : "";
    const line = reports.along(state), first = firstPly(tree.fen), isMain = moves.join() === tree.main.join();
    const review = going ? undefined : reports.review(state);
    showGraph(byId("graph"), {
      scores: hidden ? [] : reports.scores(state), reports: hidden ? line.map(() => ({})) : line, at, goTo,
      names: line.map(({ san }, ply) => `${numbered(first + ply)} ${san}`), moments: isMain && review ? review.moments.map(({ ply }) => ply) : [],
    });
    showMoments(byId("moments"), { review, loaded: Object.keys(tree.headers).length > 0, at: isMain ? at : -1, goTo: (place) => this.#store.dispatch({ type: "go", path: tree.main.slice(0, place) }) });
  }

  async #lenses(state, answer, current) {
    const second = state.beside && state.beside !== answer.model.name ? await lensAnswer(state, state.beside) : null;
    if (current()) showLenses(second ? [answer, second] : [answer], state.flip);
  }

  /** Asks for what is missing of the game on the board, and shows it. A game that goes on is not read ahead. */
  async #review(state, current) {
    if (alone(state) || !state.moves.length) return this.#notice.clear("review");
    try {
      await this.#complete(state);
      if (!current()) return;
      if (!playing(state) && !this.#reports.review(state)) {
        if (!Object.keys(state.tree.headers).length) await new Promise((done) => setTimeout(done, RESTS));
        if (current()) await this.#ask(state, state.tree.main);
      }
      this.#notice.clear("review");
      if (current()) this.#drawGame(state);
    } catch (error) {
      if (current()) this.#notice.tell("review", error, () => current() && this.#review(state, current));
    }
  }

  /** The reports on the line on the board, and the names of its moves. */
  async #complete(state) {
    const { tree, moves } = state, unnamed = tree.along(moves).slice(1).some((index) => tree.nodes[index].san === tree.nodes[index].uci);
    if (unnamed || !this.#reports.complete(state)) await this.#ask(state, moves);
  }

  async #ask(state, line) {
    const sans = await this.#reports.ask(state, line);
    if (sans.some((san, ply) => state.tree.nodes[state.tree.along(line)[ply + 1]].san !== san)) this.#store.dispatch({ type: "named", tree: state.tree, moves: line, sans });
  }
}

function arrows(state, answer) {
  if (!state.arrows || alone(state)) return [];
  if (state.view === "lens") return lensArrows(answer);
  return answer.moves.filter((move) => move.probability >= LEAST_ARROW).slice(0, ARROWS).map((move) => ({ ...move, kind: "legal" }));
}

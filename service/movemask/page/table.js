// The table: the board, the players, and what is said of the position. It shows a state, and asks for what that needs.

import { SCORES, endingBy, resultOf } from "./answer.js";
import { remembered } from "./api.js";
import { Board } from "./board.js";
import { clocksAfter, kept } from "./clock.js";
import { chosen } from "./controls.js";
import { byId, quiet, say } from "./dom.js";
import { lensArrows, lensQuestion, showLenses, showMask } from "./lens.js";
import { endingOf, isYours } from "./match.js";
import { HIDDEN, forecastIn, showBars, showChances } from "./moves.js";
import { showPlayers, showResult } from "./players.js";
import { question } from "./reports.js";
import { curlOf } from "./share.js";
import { clearRatings, showRatings, takesRatings } from "./ratings.js";
import { shapesIn } from "./shapes.js";
import { EXAMPLE, alone, begins, blank, following, hasGraph, live, played, playing, trying, turn } from "./state.js";
import { showClocks } from "./timer.js";
import { firstPly } from "./tree.js";
import { saidInGame, saidOf } from "./words.js";

const ARROWS = 5;
const LEAST_ARROW = 0.02;
const BETTER = 0.3; // width of the arrow of a better move, as a probability

export class Table {
  #store;
  #analysis;
  #board;
  #models = []; // all of the service
  #shown = null; // `{answer, state, line}`: the answer on the board, and the state and line that it was asked for

  constructor(store, analysis) {
    this.#store = store;
    this.#analysis = analysis;
    this.#board = new Board(byId("board"), {
      onMove: (uci) => this.move(uci),
      onPremove: (premove) => store.dispatch({ type: "premove", premove }),
    });
  }

  /** The answer on the board, if it is of the present position. */
  get answer() {
    const { state } = this.#store;
    return this.#shown && this.#shown.line.join() === played(state).join() && this.#shown.state.tree.fen === state.tree.fen
      ? this.#shown.answer
      : null;
  }

  /** The same. Throws if there is none. */
  get seen() {
    if (!this.answer) throw new Error("There is no position on the board yet.");
    return this.answer;
  }

  /** Plays a move of the answer on the board, unless it is not the player's turn. */
  move(uci) {
    if (this.#store.state.view === "start") this.#store.dispatch({ type: "load", ...EXAMPLE });
    const move = this.answer?.moves.find((one) => one.uci === uci);
    if (move) this.#store.dispatch({ type: "play", uci, san: move.san, after: played(this.#store.state).join() });
  }

  /** What can be shown of a state before the service has answered: the clocks, the buttons, and a move on the board. */
  prepare(state) {
    const going = playing(state),
      match = state.match;
    document.body.classList.toggle("playing", state.view === "play" && alone(state));
    byId("actions").hidden = !going;
    byId("setup").hidden = live(state) || begins(state);
    byId("clear").hidden = blank(state);
    byId("play-here").hidden = state.tree.fen === "startpos" && state.at === 0; // "New game" is that
    document.body.classList.toggle("bare", !state.moves.length);
    if (hasGraph(state)) byId("chances").hidden = byId("value").hidden = false;
    document.body.classList.toggle("beginning", begins(state));
    document.body.classList.toggle("blank", blank(state));
    showResult(match?.ending && following(state) ? match : null);
    if (going) {
      byId("resign").textContent = match.moves.length < 2 ? "Abort" : "Resign";
      byId("draw").textContent = match.standing?.draw && isYours(match) ? "Claim draw" : "Offer draw";
    }
    const line = played(state),
      before = this.#noted(state);
    if (before && line.length === before.length + 1 && before.every((uci, ply) => uci === line[ply])) this.#board.nudge(line.at(-1));
  }

  /** Notes what the answer on the board said of a move that was played since. Returns the line of that answer, if it is in the tree. */
  #noted(state) {
    const { answer, line, state: asked } = this.#shown ?? {};
    if (!answer || asked.tree.fen !== state.tree.fen || state.tree.at(line) === undefined) return undefined;
    if (["model", "white", "black"].every((name) => asked[name] === state[name])) this.#analysis.reports.note(state, line, answer);
    return line;
  }

  /** Shows a state of a view with a board; `models` are all of them. `current` says whether it is still wanted. */
  async show(asked, models, current) {
    const state = asked.view === "start" ? { ...asked, ...EXAMPLE, view: asked.view } : asked,
      line = played(state),
      hidden = alone(state);
    this.#models = models;
    const shows = ["lens", "start"].includes(state.view) || (state.view === "position" && !state.tree.isGame); // illegal moves
    const answer = await remembered("v1/policy", shows && !hidden ? lensQuestion(state) : question(state, line));
    if (!current()) return;
    performance.mark("answered");
    this.#shown = { answer, state, line };
    this.#analysis.reports.note(state, line, answer);
    this.#draw(state, answer);
    performance.measure("shown", "answered");
    if (hidden) {
      clearRatings(HIDDEN);
      byId("lenses").replaceChildren(quiet(HIDDEN));
    } else if (state.view === "ratings")
      await showRatings(state, { answer, models, next: this.#analysis.reports.along(state)[state.at], current });
    else if (state.view === "lens") await this.#lenses(state, answer, current);
    if (current()) await this.#analysis.review(state, chosen(state, models), current);
  }

  /** Shows the moves of a state again, whose position is on the board already. */
  rename(state) {
    if (!this.answer) return;
    this.#say(state, this.answer);
    this.#analysis.draw(state);
  }

  /** Shows what the engine has found meanwhile. */
  refresh() {
    const { state } = this.#store;
    if (!this.answer) return;
    this.#board.draw(this.#arrows(state, this.answer));
    this.#chances(state, this.answer);
    this.#analysis.draw(state);
  }

  /** Takes away what was said of another position, when there is no answer for the one that is wanted. Its moves are known. */
  forget() {
    const { state } = this.#store;
    this.#shown = null;
    document.body.classList.add("stale");
    this.#board.freeze();
    showChances(byId("value"), undefined, state.flip, hasGraph(state));
    this.#say(state, { turn: turn(state), moves: [] });
    this.#analysis.draw(state);
    for (const id of ["bars", "lenses", "legal", "forecast"]) byId(id).replaceChildren();
    clearRatings();
  }

  #draw(state, answer) {
    const { tree, match, at, moves, flip } = state,
      line = played(state),
      going = playing(state),
      atEnd = at === moves.length;
    const open = going ? atEnd : !endingBy(answer),
      last = this.#say(state, answer);
    document.body.classList.remove("stale");
    this.#board.show({
      fen: answer.fen,
      flip,
      last: line.at(-1),
      moves: open ? answer.moves : [],
      arrows: this.#arrows(state, answer),
      shapes: shapesIn(tree.nodes[tree.at(line)]?.comment),
      player: going && atEnd ? match.you[0] : "",
      premove: (going && match.premove?.uci) || null,
      check: answer.status === "checkmate" || /[+#]$/.test(last) ? `${answer.turn[0]}k` : undefined,
    });
    const hidden = alone(state);
    this.#chances(state, answer);
    byId("legal").replaceChildren(
      ...answer.moves
        .map((move) => move.san)
        .sort()
        .map((san) => new Option(san)),
    );
    if (["position", "play"].includes(state.view)) {
      const rated = takesRatings(chosen(state, this.#models)),
        looks = trying(state);
      const who = rated ? `players rated ${state[answer.turn]}` : "players";
      byId("whose").textContent = `What ${who} would play here. It is not an engine's advice.`;
      byId("forecast").textContent = hidden ? "" : forecastIn(answer, rated ? state : null);
      showBars(byId("bars"), hidden || looks ? null : answer.moves, {
        onMove: (uci) => this.move(uci),
        onLight: (uci) => this.#board.light(uci),
        next: moves[at],
        hidden: looks ? "Hidden while you look for a better move." : HIDDEN,
      });
      byId("here").hidden = going || looks;
      showMask(byId("removed"), answer);
      byId("curl").textContent = curlOf("v1/policy", lensQuestion(state));
      byId("fen").value = answer.fen;
    }
    showPlayers({ headers: tree.headers, fen: answer.fen, flip, clocks: clocksOf(state) });
    showClocks(state);
    this.#analysis.draw(state);
  }

  /** Says how things stand, for screen readers too. Returns the move that led here with its number; "" at the start. */
  #say(state, answer) {
    const { tree, match, at, moves } = state,
      line = played(state);
    const last = at ? tree.title(tree.at(line)) : "";
    const ending = at && line.join() === tree.main.join() ? endingOf(tree.headers) : null;
    const aborted = state.aborted && !moves.length ? "The game is aborted. " : "";
    const shown = trying(state) ? { ...answer, moves: [] } : answer;
    const said = playing(state) ? saidInGame(match, moves.length - at) : aborted + saidOf(shown, { last, ending });
    say(byId("said"), said);
    return last;
  }

  /** The bar beside the board: the result of a game that is over, or what the evaluations say. */
  #chances(state, answer) {
    const result = SCORES[resultOf(answer)];
    const score = playing(state) ? undefined : (result ?? this.#analysis.score(state));
    showChances(byId("value"), score, state.flip, hasGraph(state));
  }

  /** What players would play, and a better move than that of the game. */
  #arrows(state, answer) {
    if (!state.arrows || alone(state) || trying(state) || state.view === "new") return [];
    if (["lens", "start"].includes(state.view)) return lensArrows(answer);
    const likely = answer.moves
      .filter((move) => move.probability >= LEAST_ARROW)
      .slice(0, ARROWS)
      .map((move) => ({ ...move, kind: "legal" }));
    const { uci, instead } = this.#analysis.better(state) ?? {};
    const best = uci ? [{ uci, probability: BETTER, kind: "best" }] : [];
    return instead ? best : [...likely, ...best]; // the likely moves belong to the next position
  }

  async #lenses(state, answer, current) {
    const second =
      state.beside && state.beside !== answer.model.name ? await remembered("v1/policy", lensQuestion(state, state.beside)) : null;
    if (current()) showLenses(second ? [answer, second] : [answer], state.flip, played(state).length ? 0 : state.recorded);
  }
}

/** The clocks beside the board: those of the game that goes on or has just ended, or in a game that is looked at, those of its moves. */
function clocksOf(state) {
  const { tree, match, at, moves } = state;
  if (following(state) && (live(state) || at === moves.length)) return match.control ? "running" : null;
  const timed = tree.line(moves).some((node) => kept(node) !== undefined);
  return timed ? clocksAfter(tree.line(played(state)), firstPly(tree.fen), tree.headers.TimeControl) : null;
}

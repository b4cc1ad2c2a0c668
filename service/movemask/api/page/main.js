// The page: the state decides what is shown, and everything that happens changes the state and shows it again.

import { Gone, call, remembered, useKey } from "./api.js";
import { Board } from "./board.js";
import { listenToControls, offer, setControls, showView } from "./controls.js";
import * as dashboard from "./dashboard.js";
import { byId, settled } from "./dom.js";
import { showGraph } from "./graph.js";
import { listenToKeys, showKeys } from "./keys.js";
import { lensAnswer, lensArrows, showLenses } from "./lens.js";
import * as library from "./library.js";
import { complete, game, keep, note, noteEnd, parsed, reportOf, reports, review, scores, take, takeKept } from "./line.js";
import { showMoments } from "./moments.js";
import { showMoves } from "./movelist.js";
import { showBars, showValue } from "./moves.js";
import { clearRatings, showRatings } from "./ratings.js";
import { shares } from "./share.js";
import { hasSeveral, textOf } from "./split.js";
import { elo, named, onBoard, played, position, readHash, state, turn, writeHash } from "./state.js";
import { firstPly, numbered, pathTo } from "./tree.js";
import { resultOf, said, wrong } from "./words.js";

const ARROWS = 5;
const LEAST_ARROW = 0.02;
const LONG = 50_000; // characters of a pasted text

const board = new Board(byId("board"), play);
const changed = settled(update, 60);

let models = [];
let shown = null; // the answer that is on the board
let shownAfter = ""; // the moves that led to its position
let latest = 0; // which update is the newest; older answers are dropped
let retry;

/** Shows the state, and asks for what that needs. */
async function update() {
  const ticket = ++latest;
  const current = () => ticket === latest;
  clearTimeout(retry);
  writeHash();
  showView();
  setControls(models);
  document.body.setAttribute("aria-busy", "true");
  await answered(current);
  if (current()) document.body.setAttribute("aria-busy", "false");
}

/** Asks, and shows what comes, as long as nothing newer is wanted. */
async function answered(current) {
  dashboard.stop();
  try {
    if (state.view === "games") await library.show();
    if (!models.length) await loadModels();
    if (!current()) return;
    if (state.view === "games") return report(null);
    if (state.view === "leakage") return await dashboard.follow(report);
    const answer = state.view === "lens"
      ? await lensAnswer(turn(), state.model)
      : await remembered("v1/policy", { ...position(), ...named(), elo: elo(turn()), include: ["san", "forecast"] });
    if (!current()) return;
    performance.mark("answered");
    show(answer);
    performance.measure("shown", "answered");
    if (state.view === "ratings") await showRatings(answer, models, current);
    if (state.view === "lens") await lenses(answer, current);
    if (await complete() && current()) showGame();
    if (!current()) return;
    keep();
    report(null);
    await modelMove(answer, current);
  } catch (error) {
    if (!current()) return;
    forget();
    report(error);
  }
}

async function loadModels() {
  ({ models } = await call("v1/models"));
  offer(models);
  setControls(models);
}

/** Whether the player is to find moves alone: against the model, until hints are asked for or the game is over. */
const alone = () => state.view === "play" && state.opponent !== "" && !state.hints && !(shown && resultOf(shown));

/** The answer on the board, and beside it what does not need another request. */
function show(answer) {
  shown = answer;
  shownAfter = played().join();
  const result = resultOf(answer);
  noteEnd(played(), answer);
  board.show({
    fen: answer.fen, flip: state.flip, last: played().at(-1), moves: result ? [] : answer.moves, arrows: arrows(answer),
    check: answer.status === "checkmate" || /[+#]$/.test(game().at(played()).san) ? `${answer.turn[0]}k` : undefined,
  });
  document.body.classList.remove("stale");
  showValue(byId("value"), alone() ? null : answer, state.flip);
  byId("said").textContent = said(answer, { opponent: state.opponent, likeliest: !alone() });
  byId("legal").replaceChildren(...answer.moves.map((move) => move.san).sort().map((san) => new Option(san)));
  showGame();
  if (state.view === "play") {
    showBars(byId("bars"), alone() ? null : answer.moves, { onMove: play, onLight: (uci) => board.light(uci), next: state.moves[state.at] });
  }
}

/** Takes away what was said of another position, when there is no answer for the one that is wanted. */
function forget() {
  shown = null;
  document.body.classList.add("stale");
  board.freeze();
  showValue(byId("value"), null, state.flip);
  byId("said").textContent = "";
  for (const id of ["bars", "lenses", "legal"]) byId(id).replaceChildren();
  clearRatings();
}

function arrows(answer) {
  if (!state.arrows || alone()) return [];
  if (state.view === "lens") return lensArrows(answer);
  return answer.moves.filter((move) => move.probability >= LEAST_ARROW).slice(0, ARROWS).map((move) => ({ ...move, kind: "legal" }));
}

/** The moves of the game and the graph of its line. */
function showGame() {
  const tree = game(), first = firstPly(state.fen);
  const known = alone() ? () => ({}) : reportOf;
  byId("marks").classList.toggle("unseen", alone() || !state.moves.length);
  showMoves(byId("line"), { tree, first, current: tree.at(played()), reportOf: known, goTo: goAlong });
  const line = tree.along(state.moves);
  const names = reports().map((move, index) => `${numbered(first + index)} ${move.san}`);
  const found = alone() ? undefined : review();
  showGraph(byId("graph"), { scores: alone() ? [] : scores(), reports: line.map(known), names, moments: (found?.moments ?? []).map(({ ply }) => ply), at: state.at, goTo });
  showMoments(byId("moments"), { review: found, loaded: Object.keys(tree.headers).length > 0, at: state.at, goTo });
}

async function lenses(answer, current) {
  const second = state.beside && state.beside !== answer.model.name ? await lensAnswer(turn(), state.beside) : null;
  if (current()) showLenses(second ? [answer, second] : [answer], state.flip);
}

/** Plays a move that the answer on the board has: along the line, or as a variation of it. */
function play(uci) {
  const move = shown?.moves.find((one) => one.uci === uci);
  if (!move || shownAfter !== played().join()) return; // the board still waits for its position
  board.nudge(uci);
  const line = [...played(), uci];
  note(line, shown, move);
  if (state.moves[state.at] !== uci) state.moves = game().onwards(line);
  goTo(line.length);
}

function goTo(at) {
  state.at = Math.min(Math.max(0, at), state.moves.length);
  update();
}

/** Goes to a move of the tree, by the moves that lead to it. */
function goAlong(path) {
  if (path.some((uci, index) => uci !== state.moves[index])) state.moves = game().onwards(path);
  goTo(path.length);
}

/** Goes to the next or the previous variation of the move on the board; true if there is none. */
function switchTo(step) {
  const node = game().at(played()), all = node.parent?.children ?? [];
  const next = all[all.indexOf(node) + step];
  if (!next) return all.length < 2;
  goAlong(pathTo(next));
}

/** The model's own move, if it is its turn at the end of the line. */
async function modelMove(answer, current) {
  const due = state.opponent === answer.turn && state.at === state.moves.length && !resultOf(answer);
  if (!due || state.view !== "play") return;
  const asked = { ...position(), ...named(), elo: elo(answer.turn), temperature: state.temperature, method: "sample" };
  const [{ move }] = await Promise.all([call("v1/move", asked), new Promise((done) => setTimeout(done, 1000 * state.pause))]);
  if (current()) play(move.uci);
}

/** Says what is wrong, and asks again where that helps; null when all is well. */
function report(error) {
  const notice = byId("notice");
  notice.hidden = error === null;
  if (error === null) return;
  clearTimeout(retry);
  const wait = error instanceof Gone ? 2 : error.retryAfter;
  notice.textContent = wrong(error) + (wait ? ` Trying again in ${wait} s.` : "");
  if (error.status === 401) byId("key-form").hidden = false;
  if (error?.name !== "Error") console.error(error); // a fault of the page
  if (wait && state.view !== "leakage") retry = setTimeout(update, 1000 * wait);
}

function undo() {
  // Against the model, its answer goes too, so that it is the player's turn again.
  const back = state.opponent && state.opponent !== turn(state.moves.length) && state.moves.length > 1 ? 2 : 1;
  if (!state.moves.length) return;
  const left = state.moves.length - back;
  game().remove(state.moves.slice(0, left + 1));
  state.moves = state.moves.slice(0, left);
  goTo(left);
}

function flip() {
  state.flip = !state.flip;
  update();
}

/** Puts a position or a game that was read onto the board. */
function load(read, opponent = "") {
  take(read);
  Object.assign(state, { fen: read.fen, moves: read.moves, chess960: read.chess960, at: 0, opponent });
  for (const side of ["white", "black"]) state[side] = read.ratings?.[side] ?? state[side];
  byId("notice").hidden = true;
  for (const panel of document.querySelectorAll(".side, .panels")) panel.scrollTop = 0;
  byId("board").scrollIntoView({ block: "nearest" });
  update();
}

/** Opens a game of the list. */
async function openGame(pgn) {
  const read = await parsed(pgn, false);
  turnTo("play");
  load(read);
}

/** Shows another view, which is a step of the browser's history. */
function turnTo(view) {
  if (state.view === view) return;
  state.view = view;
  writeHash(true);
}

/** Puts a text onto the board; several games go to the list of games. */
async function bring(text) {
  if (!text.trim()) throw new Error("Nothing to load: paste a FEN or a PGN first.");
  if (state.view !== "games" && !hasSeveral(text)) {
    const read = await parsed(text, byId("chess960").checked);
    if (!onBoard()) turnTo("play");
    return load(read);
  }
  await library.add(text);
  turnTo("games");
  await update();
}

async function bringFiles(files) {
  if (files.length > 1) turnTo("games");
  for (const file of [...files]) await bring(await textOf(file));
}

/** What an event does; whatever it throws is told. */
const attempt = (does) => async (event) => {
  try {
    await does(event);
  } catch (error) {
    report(error);
  }
};

/** A text that was entered into a form. */
const entered = (field) => attempt(async (event) => {
  event.preventDefault();
  await bring(byId(field).value);
  if (state.view === "games") byId(field).value = "";
});

/** A text that is pasted outside a field is taken at once, and so is a long one: browsers take minutes to show it. */
async function pasted(event) {
  const text = event.clipboardData.getData("text");
  if (text.length < LONG && event.target.closest("input, textarea")) return;
  event.preventDefault();
  await bring(text);
}

/** Files may be dropped anywhere; a text goes where texts go. */
function dropped(event) {
  if (!event.dataTransfer.types.includes("Files")) return;
  event.preventDefault();
  if (event.type === "drop") return bringFiles(event.dataTransfer.files);
}

/** A move that was typed, in SAN or UCI. */
function typed(event) {
  event.preventDefault();
  const field = byId("move");
  const text = field.value.trim(), plain = (san) => san.replace(/[+#x=]/g, "").replaceAll("0", "O").toLowerCase();
  const move = shown?.moves.find((one) => one.san === text || one.uci === text.toLowerCase())
    ?? shown?.moves.find((one) => plain(one.san) === plain(text));
  if (!move) return report(new Error(`Not a legal move here: ${text || "type one, such as e4."}`));
  field.value = "";
  report(null);
  play(move.uci);
}

function enterKey(event) {
  event.preventDefault();
  useKey(byId("key").value.trim());
  byId("key").value = "";
  byId("key-form").hidden = true;
  models = [];
  update();
}

function skip(event) {
  event.preventDefault();
  document.querySelector("main:not([hidden]) .panels section:not([hidden]) > h2, main:not([hidden]) > h2").focus();
}

/** Shows what the address says. */
function showAddress() {
  readHash();
  takeKept();
  update();
}

/** What is on the board, to be taken away. */
function seen() {
  if (!shown) throw new Error("There is no position on the board yet.");
  return { answer: shown, arrows: arrows(shown), flip: state.flip };
}

const first = () => goTo(0), last = () => goTo(state.moves.length);
const back = () => goTo(state.at - 1), forward = () => goTo(state.at + 1);

listenToControls(() => { setControls(models); changed(); }, {
  first, back, forward, last, undo, flip, skip, "show-keys": showKeys,
  new: () => load({ fen: "startpos", moves: [], chess960: false }, state.opponent),
  hints: () => { state.hints = !state.hints; update(); },
  ...Object.fromEntries(shares({ shown: seen, report })),
});
listenToKeys(Object.fromEntries(Object.entries({
  ArrowLeft: back, ArrowRight: forward, Home: first, End: last, f: flip, u: undo,
  ArrowUp: () => switchTo(-1), ArrowDown: () => switchTo(1), "?": showKeys,
}).map(([key, does]) => [key, () => (!onBoard() && key !== "?" ? true : does())])));
library.start({ open: attempt(openGame), report });
byId("library-files").addEventListener("change", attempt(async ({ target }) => {
  await bringFiles([...target.files]);
  target.value = "";
}));
for (const type of ["dragover", "drop"]) addEventListener(type, attempt(dropped));
addEventListener("paste", attempt(pasted));
for (const [id, does] of [["paste-form", entered("paste")], ["library-form", entered("library-paste")], ["typed", typed], ["key-form", enterKey]]) byId(id).addEventListener("submit", does);
for (const id of ["bucket", "worst-kind"]) byId(id).addEventListener("input", dashboard.again);
document.addEventListener("visibilitychange", () => document.hidden || state.view !== "leakage" || dashboard.again());
addEventListener("popstate", showAddress);
showAddress();

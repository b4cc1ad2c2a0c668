// The page: the state decides what is shown, and everything that happens changes the state and shows it again.

import { Gone, call, remembered, useKey } from "./api.js";
import { Board } from "./board.js";
import { challenge } from "./challenge.js";
import { Clocks } from "./clocks.js";
import { listenToControls, offer, setControls, showView } from "./controls.js";
import * as dashboard from "./dashboard.js";
import { byId, settled } from "./dom.js";
import { showGraph } from "./graph.js";
import { listenToKeys, showKeys } from "./keys.js";
import { lensAnswer, lensArrows, showLenses } from "./lens.js";
import * as library from "./library.js";
import { complete, game, keep, note, noteEnd, parsed, reportOf, reports, review as reviewed, scores, take, takeKept } from "./line.js";
import * as match from "./match.js";
import { showMoments } from "./moments.js";
import { showMoves } from "./movelist.js";
import { showBars, showValue } from "./moves.js";
import { showClocks, showPlayers, showResult } from "./players.js";
import { clearRatings, showRatings } from "./ratings.js";
import { shares } from "./share.js";
import { setSound, sound, soundOf, sounds } from "./sound.js";
import { hasSeveral, textOf } from "./split.js";
import { elo, named, onBoard, played, position, readHash, state, turn, writeHash } from "./state.js";
import { firstPly, numbered, pathTo } from "./tree.js";
import { resultOf, said, wrong } from "./words.js";

const ARROWS = 5;
const LEAST_ARROW = 0.02;
const LONG = 50_000; // characters of a pasted text
const PAUSE = 0.5; // s before the network moves in a game without clocks

const board = new Board(byId("board"), move);
const clocks = new Clocks({ shown: () => showClocks(clocks), fallen: (side) => finish(match.outOfTime(side, shown.fen)) });
const changed = settled(update, 60);

let models = [];
let shown = null; // the answer that is on the board
let shownAfter = ""; // the moves that led to its position
let latest = 0; // which update is the newest; older answers are dropped
let retry;
let reported = 0; // notices so far

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
  const before = reported;
  const clear = () => reported === before && report(null); // a notice that came meanwhile stays
  try {
    if (state.view === "games") await library.show();
    if (!models.length) await loadModels();
    if (!current()) return;
    if (state.view === "games") return clear();
    document.body.classList.toggle("playing", alone());
    if (state.view === "leakage") return await dashboard.follow(report);
    match.enter(state.model || models.find((model) => model.default)?.name);
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
    clear();
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

/** Whether the player is to find moves alone: against the network, until hints or a review are asked for. */
const alone = () => state.view === "play" && state.opponent !== "" && !state.hints;

/** Whether a game against the network goes on. */
const playing = () => state.opponent !== "" && !match.ending();

/** The answer on the board, and beside it what does not need another request. */
function show(answer) {
  shown = answer;
  shownAfter = played().join();
  const result = resultOf(answer);
  noteEnd(played(), answer);
  const atEnd = state.at === state.moves.length;
  if (atEnd) match.endedBy(answer);
  const open = state.opponent ? playing() && atEnd : !result; // against the network, moves go on from the last alone
  board.show({
    fen: answer.fen, flip: state.flip, last: played().at(-1), moves: open ? answer.moves : [], arrows: arrows(answer),
    player: state.view === "play" && playing() ? match.human()[0] : "",
    check: answer.status === "checkmate" || /[+#]$/.test(game().at(played()).san) ? `${answer.turn[0]}k` : undefined,
  });
  document.body.classList.remove("stale");
  showValue(byId("value"), alone() ? null : answer, state.flip);
  const ending = match.ending();
  byId("said").textContent = alone() && ending ? `${ending.why}.` : said(answer, { opponent: state.opponent, likeliest: !alone() });
  byId("legal").replaceChildren(...answer.moves.map((move) => move.san).sort().map((san) => new Option(san)));
  showGame();
  if (state.view === "play") {
    showBars(byId("bars"), alone() ? null : answer.moves, { onMove: move, onLight: (uci) => board.light(uci), next: state.moves[state.at] });
  }
  showMatch();
  if (!playing() || turn() !== match.human() || !atEnd) return;
  const ahead = board.takePremove();
  const made = ahead && answer.moves.find(({ uci }) => uci === ahead || uci === `${ahead}q`);
  if (made) play(made.uci);
  else if (ahead) byId("said").append(" Your premove is not legal here.");
}

/** The players, their clocks, and how the game against the network stands. */
function showMatch() {
  const going = playing(), ending = match.ending();
  document.body.classList.toggle("playing", alone());
  showPlayers({ headers: game().headers, fen: shown.fen, flip: state.flip, playing: alone(), clocks: clocks.control ? clocks : null });
  clocks.run(going && state.moves.length > 1 ? turn(state.moves.length) : null);
  showClocks(clocks);
  showResult(alone() ? ending : null, match.human());
  byId("actions").hidden = !going || state.view !== "play";
  byId("new").hidden = byId("challenge-open").hidden = going;
  byId("undo").hidden = Boolean(ending);
  byId("resign").textContent = state.moves.length < 2 ? "Abort" : "Resign";
  byId("draw").textContent = shown.draw ? "Claim draw" : "Offer draw";
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
  clocks.run(null);
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
  byId("opening").hidden = !tree.opening;
  byId("opening").textContent = tree.opening ? `${tree.opening.eco} ${tree.opening.name}` : "";
  const found = alone() ? undefined : reviewed();
  showGraph(byId("graph"), { scores: alone() ? [] : scores(), reports: line.map(known), names, moments: (found?.moments ?? []).map(({ ply }) => ply), at: state.at, goTo });
  showMoments(byId("moments"), { review: found, loaded: Object.keys(tree.headers).length > 0, at: state.at, goTo });
}

async function lenses(answer, current) {
  const second = state.beside && state.beside !== answer.model.name ? await lensAnswer(turn(), state.beside) : null;
  if (current()) showLenses(second ? [answer, second] : [answer], state.flip);
}

/** A move of the player, who does not move for the network, and against it goes on from the last position alone. */
function move(uci) {
  if (!state.opponent || (playing() && turn() === match.human() && state.at === state.moves.length)) play(uci);
}

/** Plays a move that the answer on the board has: along the line, or as a variation of it. */
function play(uci) {
  const move = shown?.moves.find((one) => one.uci === uci);
  if (!move || shownAfter !== played().join()) return; // the board still waits for its position
  board.nudge(uci);
  clocks.press(turn());
  sound(soundOf(move.san));
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
  const due = playing() && state.opponent === answer.turn && state.at === state.moves.length;
  if (!due || state.view !== "play") return;
  const asked = { ...position(), ...named(), elo: elo(answer.turn), temperature: state.temperature, method: "sample" };
  const since = performance.now(), clock = clocks.of(answer.turn);
  const { move, seconds = PAUSE } = await call("v1/move", { ...asked, ...(clock ? { clock } : {}) });
  await new Promise((done) => setTimeout(done, 1000 * seconds - (performance.now() - since)));
  if (current() && playing()) play(move.uci);
}

/** Shows that the game is over, or what was said to an offer of a draw. */
function finish(words) {
  if (!playing()) sound("end");
  board.takePremove();
  if (shown) show(shown);
  if (words) byId("said").textContent = words;
}

/** Begins a game against the network: from the start, or from the position on the board. */
function begin(setting, from) {
  const fen = from ? shown.fen : "startpos", chess960 = from && state.chess960;
  Object.assign(state, setting, { hints: false, flip: setting.opponent === "white" });
  clocks.set(setting.clock);
  load({ fen, moves: [], chess960 }, setting.opponent);
}

function rematch() {
  const { clock, strength, temperature, white, black, fen, chess960 } = state;
  const opponent = match.human();
  Object.assign(state, { hints: false, flip: opponent === "white" });
  clocks.set(clock);
  load({ fen, moves: [], chess960 }, opponent);
}

/** Leaves the game against the network for its analysis. */
function review() {
  state.opponent = "";
  clocks.set("");
  update();
}

function resign() {
  if (state.moves.length < 2) return review();
  finish(match.resign());
}

/** Says what is wrong, and asks again where that helps; null when all is well. */
function report(error) {
  const notice = byId("notice");
  notice.hidden = error === null;
  if (error === null) return;
  reported++;
  clearTimeout(retry);
  const wait = error instanceof Gone ? 2 : error.retryAfter;
  notice.textContent = wrong(error) + (wait ? ` Trying again in ${wait} s.` : "");
  if (error.status === 401) byId("key-form").hidden = false;
  if (error?.name !== "Error") console.error(error); // a fault of the page
  if (wait && state.view !== "leakage") retry = setTimeout(update, 1000 * wait);
}

function undo() {
  if (match.ending()) return;
  board.takePremove();
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
  board.takePremove();
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
  const found = shown?.moves.find((one) => one.san === text || one.uci === text.toLowerCase())
    ?? shown?.moves.find((one) => plain(one.san) === plain(text));
  if (!found) return report(new Error(`Not a legal move here: ${text || "type one, such as e4."}`));
  field.value = "";
  report(null);
  move(found.uci);
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
  clocks.set(state.opponent ? state.clock : "", true);
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
  first, back, forward, last, undo, flip, skip, "show-keys": showKeys, resign, rematch, review,
  "challenge-open": () => challenge(models.find((model) => (state.model ? model.name === state.model : model.default)), state.at > 0 || state.fen !== "startpos", begin),
  "cancel-challenge": () => byId("challenge").close(),
  draw: () => shown && finish(match.offerDraw(shown)),
  sound: () => { setSound(!sounds()); byId("sound").setAttribute("aria-pressed", sounds()); },
  new: () => load({ fen: "startpos", moves: [], chess960: false }),
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
byId("board").addEventListener("wheel", (event) => {
  if (event.ctrlKey) return; // the browser's zoom
  event.preventDefault();
  if (event.deltaY) goTo(state.at + Math.sign(event.deltaY));
}, { passive: false });
byId("sound").setAttribute("aria-pressed", sounds());
addEventListener("popstate", showAddress);
showAddress();

// The page: the state decides what is shown, and everything that happens changes the state and shows it again.

import { Gone, Problem, call, remembered, useKey } from "./api.js";
import { Board } from "./board.js";
import * as dashboard from "./dashboard.js";
import { byId, percent, settled } from "./dom.js";
import { lensAnswer, lensArrows, showLenses } from "./lens.js";
import { complete, note, parsed, reports } from "./line.js";
import { showBars, showLine, showValue } from "./moves.js";
import { showRatings, takesRatings } from "./ratings.js";
import { VIEWS, elo, hashOf, played, position, readHash, state, turn, writeHash } from "./state.js";

const ARROWS = 5;
const LEAST_ARROW = 0.02;
const PAUSE = 300; // ms before the model's own move, so that one sees it come

const board = new Board(byId("board"), play);
const changed = settled(update, 60);

let models = [];
let shown = null; // the answer that is on the board
let latest = 0; // which update is the newest; older answers are dropped
let retry;

/** Shows the state, and asks for what that needs. */
async function update() {
  const ticket = ++latest;
  const current = () => ticket === latest;
  clearTimeout(retry);
  writeHash();
  views();
  controls();
  document.body.setAttribute("aria-busy", "true");
  await answered(current);
  if (current()) document.body.setAttribute("aria-busy", "false");
}

/** Asks, and shows what comes, as long as nothing newer is wanted. */
async function answered(current) {
  dashboard.stop();
  try {
    if (!models.length) await loadModels();
    if (!current()) return;
    if (state.view === "leakage") return await dashboard.follow(report);
    const answer = state.view === "lens"
      ? await lensAnswer(turn(), state.model)
      : await remembered("v1/policy", { ...position(), ...named(), elo: elo(turn()), include: ["san"] });
    if (!current()) return;
    performance.mark("answered");
    show(answer);
    performance.measure("shown", "answered");
    if (state.view === "ratings") await showRatings(answer, models, current);
    if (state.view === "lens") await lenses(answer, current);
    if (await complete() && current()) showMoves();
    if (!current()) return;
    report(null);
    await modelMove(answer, current);
  } catch (error) {
    if (current()) report(error);
  }
}

const named = () => (state.model ? { model: state.model } : {});

async function loadModels() {
  ({ models } = await call("v1/models"));
  const options = (chosen, none) => [...(none ? [new Option(none, "")] : []), ...models.map((model) => {
    const licence = model.card?.licence ? ` (${model.card.licence})` : "";
    const option = new Option(model.name + (model.served ? licence : " (not served)"), model.name, false, model.name === chosen);
    option.title = model.card?.source ?? "";
    option.disabled = !model.served;
    return option;
  })];
  const usual = models.find((model) => model.default)?.name ?? "";
  byId("model").replaceChildren(...options(state.model || usual));
  byId("beside").replaceChildren(...options(state.beside, "no other model"));
  controls();
}

/** The answer on the board, and beside it what does not need another request. */
function show(answer) {
  shown = answer;
  const over = answer.status !== "ongoing" || answer.draw?.claimable === false;
  const last = state.moves[state.at - 1];
  board.show({
    fen: answer.fen, flip: state.flip, last, moves: over ? [] : answer.moves, arrows: arrows(answer),
    check: answer.status === "checkmate" ? `${answer.turn[0]}k` : undefined,
  });
  showValue(byId("value"), answer, state.flip);
  byId("said").textContent = said(answer);
  byId("legal").replaceChildren(...answer.moves.map((move) => new Option(move.san)));
  showMoves();
  if (state.view === "play") {
    showBars(byId("bars"), answer.moves, { onMove: play, onLight: (uci) => board.light(uci), next: state.moves[state.at] });
  }
}

function arrows(answer) {
  if (!state.arrows) return [];
  if (state.view === "lens") return lensArrows(answer);
  return answer.moves.filter((move) => move.probability >= LEAST_ARROW).slice(0, ARROWS).map((move) => ({ ...move, kind: "legal" }));
}

function said(answer) {
  const mover = answer.turn === "white" ? "White" : "Black", other = answer.turn === "white" ? "Black" : "White";
  if (answer.status === "checkmate") return `Checkmate. ${other} wins.`;
  if (answer.status === "stalemate") return "Stalemate: a draw.";
  const draw = answer.draw ? ` ${answer.draw.claimable ? "A draw can be claimed" : "A draw"}: ${answer.draw.reason.replaceAll("_", " ")}.` : "";
  const likely = answer.moves.slice(0, 3).map((move) => `${move.san} ${percent(move.probability)}`).join(", ");
  return `${mover} to move.${draw} Likeliest: ${likely}.`;
}

function showMoves() {
  const first = shown ? plies(shown.fen) - state.at : 0;
  showLine(byId("line"), { reports: reports(), at: state.at, first: Math.max(0, first), goTo });
}

/** Half-moves from the start of the game, by a FEN's own counter. */
function plies(fen) {
  const fields = fen.split(" ");
  return 2 * (Number(fields[5] ?? 1) - 1) + (fields[1] === "b" ? 1 : 0);
}

async function lenses(answer, current) {
  const second = state.beside && state.beside !== answer.model.name ? await lensAnswer(turn(), state.beside) : null;
  if (current()) showLenses(second ? [answer, second] : [answer], state.flip);
}

/** Plays a move that the answer on the board has. */
function play(uci) {
  const index = shown.moves.findIndex((move) => move.uci === uci);
  if (index < 0) return;
  board.nudge(uci);
  if (state.moves[state.at] !== uci) {
    state.moves = [...played(), uci];
    note(state.at, shown.moves[index], index + 1);
  }
  goTo(state.at + 1);
}

function goTo(at) {
  state.at = Math.min(Math.max(0, at), state.moves.length);
  update();
}

/** The model's own move, if it is its turn at the end of the line. */
async function modelMove(answer, current) {
  const over = answer.status !== "ongoing" || answer.draw?.claimable === false;
  if (state.view !== "play" || over || state.opponent !== answer.turn || state.at !== state.moves.length) return;
  const asked = { ...position(), ...named(), elo: elo(answer.turn), temperature: state.temperature, method: "sample" };
  const [{ move }] = await Promise.all([call("v1/move", asked), new Promise((done) => setTimeout(done, PAUSE))]);
  if (current()) play(move.uci);
}

/** Says what is wrong, and asks again where that helps; null when all is well. */
function report(error) {
  const notice = byId("notice");
  notice.hidden = error === null;
  if (error === null) return;
  clearTimeout(retry);
  const wait = error instanceof Gone ? 2 : error.retryAfter;
  const again = wait ? ` Trying again in ${wait} s.` : "";
  notice.textContent = error instanceof Gone ? `${error.message}${again}` : `${error.title ?? "This page failed"}: ${error.message}${again}`;
  if (error.status === 401) byId("key-form").hidden = false;
  if (!(error instanceof Gone) && !(error instanceof Problem) && !error.title) console.error(error);
  if (wait && state.view !== "leakage") retry = setTimeout(update, 1000 * wait);
}

function views() {
  const table = state.view !== "leakage";
  byId("table").hidden = !table;
  byId("dashboard").hidden = table;
  byId("skip").hash = table ? `#${state.view}` : "#leakage";
  for (const view of VIEWS.slice(0, 3)) byId(`panel-${view}`).hidden = view !== state.view;
  for (const link of document.querySelectorAll("[data-view]")) {
    link.href = hashOf({ view: link.dataset.view });
    if (link.dataset.view === state.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

/** Sets every control to the state. */
function controls() {
  const usual = models.find((model) => model.default)?.name ?? "";
  const model = models.find((one) => one.name === (state.model || usual));
  byId("model").value = state.model || usual;
  byId("beside").value = state.beside;
  for (const side of ["white", "black"]) {
    const slider = byId(side);
    if (takesRatings(model)) {
      slider.min = Math.max(0, model.contract.elo.minimum);
      slider.max = Math.min(5000, model.contract.elo.maximum);
    }
    slider.value = state[side];
    slider.disabled = Boolean(model) && !takesRatings(model);
    byId(`${side}-shown`).textContent = state[side];
  }
  const fixed = Boolean(model) && !takesRatings(model);
  byId("no-ratings").hidden = !fixed;
  byId("no-ratings").textContent = fixed ? `${model.name} plays at one rating only.` : "";
  byId("opponent").value = state.opponent;
  byId("temperature").value = state.temperature;
  byId("temperature-shown").textContent = state.temperature;
  byId("arrows").checked = state.arrows;
  byId("chess960").checked = state.chess960;
  for (const radio of document.querySelectorAll("[name=vary]")) radio.checked = radio.value === state.vary;
  byId("first").disabled = byId("back").disabled = state.at === 0;
  byId("last").disabled = byId("forward").disabled = state.at === state.moves.length;
  byId("undo").disabled = state.moves.length === 0;
}

function undo() {
  // Against the model, its answer goes too, so that it is the player's turn again.
  const back = state.opponent && state.opponent !== turn(state.moves.length) && state.moves.length > 1 ? 2 : 1;
  state.moves = state.moves.slice(0, Math.max(0, state.moves.length - back));
  goTo(state.moves.length);
}

function flip() {
  state.flip = !state.flip;
  update();
}

/** Puts a position or a game that was read onto the board. */
function load(game) {
  if (game.error) return report(game.error);
  Object.assign(state, { fen: game.fen, moves: game.moves, chess960: game.chess960, at: 0, opponent: "" });
  for (const side of ["white", "black"]) state[side] = game.ratings?.[side] ?? state[side];
  byId("notice").hidden = true;
  update();
}

async function paste(event) {
  event.preventDefault();
  const text = byId("paste").value;
  if (!text.trim()) return report({ title: "Nothing to load", message: "paste a FEN or a PGN first." });
  try {
    const games = await parsed(text, byId("chess960").checked);
    byId("games-field").hidden = games.length < 2;
    byId("games").replaceChildren(...games.map((game, index) => new Option(game.title, index)));
    byId("games").onchange = () => load(games[byId("games").value]);
    load(games[0]);
  } catch (error) {
    report(error);
  }
}

/** A move that was typed, in SAN or UCI. */
function typed(event) {
  event.preventDefault();
  const field = byId("move");
  const text = field.value.trim(), plain = (san) => san.replace(/[+#x=]/g, "").replaceAll("0", "O").toLowerCase();
  const move = shown?.moves.find((one) => one.san === text || one.uci === text.toLowerCase())
    ?? shown?.moves.find((one) => plain(one.san) === plain(text));
  if (!move) return report({ title: "Not a legal move here", message: text || "type one, such as e4." });
  field.value = "";
  report(null);
  play(move.uci);
}

async function copy() {
  const button = byId("copy");
  try {
    await navigator.clipboard.writeText(location.href);
    button.textContent = "Copied";
  } catch {
    button.textContent = "See the address"; // without https a browser may not write to the clipboard
  }
  setTimeout(() => (button.textContent = "Copy link"), 1500);
}

function choose(name, read = (control) => control.value) {
  byId(name).addEventListener("input", (event) => {
    state[name] = read(event.target);
    controls();
    changed();
  });
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog")) return;
  const does = { ArrowLeft: () => goTo(state.at - 1), ArrowRight: () => goTo(state.at + 1), Home: () => goTo(0), End: () => goTo(state.moves.length), f: flip, u: undo }[event.key];
  if (!does || state.view === "leakage") return;
  event.preventDefault();
  does();
}

function listen() {
  const number = (control) => Number(control.value), checked = (control) => control.checked;
  for (const name of ["model", "beside", "opponent"]) choose(name);
  for (const name of ["white", "black", "temperature"]) choose(name, number);
  choose("arrows", checked);
  for (const radio of document.querySelectorAll("[name=vary]")) {
    radio.addEventListener("input", () => { state.vary = radio.value; changed(); });
  }
  const press = (id, does) => byId(id).addEventListener("click", does);
  press("first", () => goTo(0));
  press("back", () => goTo(state.at - 1));
  press("forward", () => goTo(state.at + 1));
  press("last", () => goTo(state.moves.length));
  press("undo", undo);
  press("flip", flip);
  press("copy", copy);
  press("new", () => load({ fen: "startpos", moves: [], chess960: false }));
  press("skip", (event) => {
    event.preventDefault();
    document.querySelector("main:not([hidden]) section:not([hidden]) > h2, main:not([hidden]) > h2").focus();
  });
  byId("paste-form").addEventListener("submit", paste);
  byId("typed").addEventListener("submit", typed);
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    useKey(byId("key").value.trim());
    byId("key").value = "";
    byId("key-form").hidden = true;
    models = [];
    update();
  });
  for (const id of ["bucket", "worst-kind"]) byId(id).addEventListener("input", dashboard.again);
  document.addEventListener("keydown", keys);
  document.addEventListener("visibilitychange", () => document.hidden || state.view !== "leakage" || dashboard.again());
  addEventListener("popstate", () => { readHash(); update(); });
}

readHash();
listen();
update();

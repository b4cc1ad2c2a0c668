// The page put together: what each control and key does to the state, and what is shown when the state has changed.

import { readHash, hashOf, writeHash } from "./address.js";
import { Analysis } from "./analysis.js";
import { endingBy } from "./answer.js";
import { call, remembered, useKey } from "./api.js";
import { listenForTexts } from "./arriving.js";
import { agrees } from "./ask.js";
import { showChoices } from "./choices.js";
import { chosen, listenToControls, offer, setControls, showView } from "./controls.js";
import * as coach from "./coach.js";
import * as dashboard from "./dashboard.js";
import { byId, settled } from "./dom.js";
import { Editor } from "./editor.js";
import { listenToGestures } from "./gestures.js";
import { showGoing } from "./going.js";
import { listenToKeys } from "./keys.js";
import * as library from "./library.js";
import { newMatch, other } from "./match.js";
import { closeMenus } from "./menu.js";
import { Notice } from "./notice.js";
import { keepPlaying } from "./opponent.js";
import { shared } from "./pgn.js";
import { read } from "./reading.js";
import { keep, restored } from "./session.js";
import { shares } from "./share.js";
import { setSound, soundsOf, sounds } from "./sound.js";
import { EXAMPLE, START, blank, following, hasBoard, named, played, playing, position } from "./state.js";
import { Store } from "./store.js";
import { Table } from "./table.js";
import { runsClocks } from "./timer.js";
import { Tree } from "./tree.js";
import { matching, uciOf } from "./typed.js";
import { forget, keepsUnfinished, unfinished } from "./unfinished.js";
import { inEnglish, wrong } from "./words.js";

const SETTLES = 60; // ms without another event until a slider's answer is asked for
const SAVES = 300; // ms until the state is kept in the tab

const store = new Store(restored(START));
const notice = new Notice();
const analysis = new Analysis(store, notice, () => table.refresh());
const table = new Table(store, analysis);

let models = [];
let latest = 0; // which update is the newest; older answers are dropped
let brought = 0; // how many texts and games have come to the board
let timer;
let lookForUnfinished = () => {};

/** Shows the state, and asks for what that needs. */
async function update() {
  const ticket = ++latest,
    current = () => ticket === latest;
  try {
    await shown(store.state, current);
    if (current()) notice.clear("board");
  } catch (error) {
    if (!current()) return;
    table.forget();
    notice.tell("board", error, update);
  }
  if (current()) document.body.setAttribute("aria-busy", "false");
}

async function shown(state, current) {
  dashboard.stop();
  notice.clear("leakage");
  if (state.view === "games") await library.show();
  if (!models.length) await loadModels();
  if (!current() || state.view === "games") return;
  if (state.view === "leakage") {
    await dashboard.follow(
      (error) => (error ? notice.tell("leakage", error) : notice.clear("leakage")),
      (changes) => hashOf(store.state, changes),
    );
    return;
  }
  await table.show(store.state, models, current);
}

/** The choices of a state: a form that is seen can be sent. */
const offerChoices = (state) => showChoices(state, { model: chosen(state, models), start: attempt(begin), open });

async function loadModels() {
  ({ models } = await call("v1/models"));
  offer(models);
  setControls(store.state, models);
  offerChoices(store.state);
  coach.show();
  for (const name of ["beside", "model"]) {
    // a link that was made elsewhere may name a network that is not here
    const wanted = store.state[name];
    if (!wanted || models.some((model) => model.name === wanted)) continue;
    notice.tell(name, new Error(`There is no model ${wanted} here${name === "model" ? ": the default model answers" : ""}.`));
    store.dispatch({ type: "set", name, value: "" });
  }
}

store.subscribe((state, before, event) => {
  writeHash(state, before, event);
  showView(state);
  setControls(state, models);
  showGoing(state);
  offerChoices(state);
  table.prepare(state);
  if (event.type === "load") {
    showBoard();
    analysis.judgeAgain();
  }
  if (["play", "load", "begin"].includes(event.type)) for (const past of ["event", "typed"]) notice.clear(past);
  if (state.match?.ending && !before.match?.ending && following(state)) byId("result").focus({ preventScroll: true });
  if (event.type === "offered") return; // nothing to ask for
  if (event.type === "named") return table.rename(state);
  document.body.setAttribute("aria-busy", "true");
  clearTimeout(timer);
  if (event.type === "set") timer = setTimeout(update, SETTLES);
  else update();
});
store.subscribe(settled(() => keep(store.state), SAVES));
store.subscribe(soundsOf);
runsClocks(store);
library.keepsGames(store);
const askAgain = keepPlaying(store, notice);

/** Throws where a game is over by the answer of a position. */
function mustGoOn(answer) {
  if (endingBy(answer)) throw new Error("The game is over in this position.");
}

/** Asks for the game that is to be played from the position on the board. */
function playHere() {
  store.dispatch({ type: "view", view: "new" });
  toForm();
}

/** Goes to the form of a new game, also by the keyboard and on a small screen. */
const toForm = () => byId("challenge-heading").focus();

/** Begins the game that was chosen. */
async function begin(choice) {
  const { state } = store,
    newest = arrives(),
    model = chosen(state, models).name;
  if (blank(state)) return start({ ...choice, model });
  const answer = await remembered("v1/policy", { ...position(state, played(state)), ...named(state) });
  mustGoOn(answer);
  if (newest()) start({ ...choice, model, fen: answer.fen, chess960: state.tree.chess960 });
}

function start(choice) {
  const now = new Date(),
    id = now.getTime().toString(36),
    date = new Intl.DateTimeFormat("sv").format(now).replaceAll("-", ".");
  enter(newMatch({ ...choice, id, date, started: now.toISOString(), site: location.origin }));
}

/** Begins a game, or goes on with one that another tab has left. */
function enter(match) {
  arrives();
  store.dispatch({ type: "begin", match });
  byId("said").focus({ preventScroll: true }); // on a small screen it is below the board
  showBoard();
}

/** Scrolls to the beginning of what is shown of a game: where it was loaded may be far below. */
function showBoard() {
  scrollTo(0, 0);
  for (const one of document.querySelectorAll(".side, .panels, #line, #review-moves")) one.scrollTop = 0;
}

/** Goes on with the game that is offered. Throws if its network is gone, as after an update of the service. */
function resume() {
  const { match } = unfinished(store.state.offered);
  if (models.length && !models.some(({ name, served }) => served && name === match.model)) {
    throw new Error(`There is no model ${match.model} here any more, so this game cannot be continued. Give it up.`);
  }
  enter(match);
}

/** Gives up the game that is offered. */
async function discard() {
  const { offered } = store.state;
  if (!(await agrees("Give up your unfinished game? It is then gone.", "Give it up"))) return;
  forget(offered);
  lookForUnfinished();
}

/** Another game with the sides changed. */
function rematch() {
  const { model, you, rating, level, control, pace, fen, chess960 } = store.state.match;
  start({ model, you: other(you), rating, level, control, pace, fen, chess960 });
}

async function resign() {
  if (store.state.match.moves.length < 2) store.dispatch({ type: "abort" });
  else if (await agrees("Resign this game?", "Resign")) store.dispatch({ type: "resign" });
}

async function offerDraw() {
  const claims = byId("draw").textContent === "Claim draw";
  if (
    await agrees(
      claims ? "Claim a draw? The game is then over." : "Offer a draw? If the network accepts, the game is over.",
      claims ? "Claim draw" : "Offer draw",
    )
  )
    store.dispatch({ type: "draw" });
}

/** A move that was typed; it is made ahead until its position is on the board. */
function typed(event) {
  event.preventDefault();
  const field = byId("move"),
    text = field.value.trim(),
    { state } = store;
  if (playing(state) && state.at === state.moves.length && table.answer?.turn !== state.match.you) {
    store.dispatch({ type: "premove", premove: text ? { text, uci: uciOf(text) } : null });
  } else {
    if (!table.answer) return; // Enter comes too early, and can be pressed again
    const found = matching(table.answer.moves, text);
    if (!found) return notice.tell("typed", new Error(`Not a legal move here: ${text || "type one, such as e4"}.${inEnglish(text)}`));
    table.move(found.uci);
  }
  field.value = "";
  notice.clear("typed");
}

function enterKey(event) {
  event.preventDefault();
  useKey(byId("key").value.trim());
  byId("key").value = "";
  models = [];
  notice.again();
  update();
}

function skip(event) {
  event.preventDefault();
  const headings = [...document.querySelectorAll("main h2[tabindex]")];
  (headings.find((heading) => heading.checkVisibility()) ?? byId("said")).focus(); // a game against the network has none
}

/** What an event does; whatever it throws is told. */
const attempt = (work) => async (event) => {
  try {
    await work(event);
    notice.clear("event");
  } catch (error) {
    notice.tell("event", error);
  }
};

/** Something comes to the board. What it gives tells, later on, whether it is still the newest. */
function arrives() {
  const ticket = ++brought;
  return () => ticket === brought;
}

/** Puts a position or a game onto the board, unless something newer comes while it is read. */
async function bring(text) {
  const newest = arrives(),
    event = await read(text, store.state.model);
  if (!newest()) return;
  store.dispatch(event);
}

const open = attempt(bring);

/** Opens a game before a move, for the player to find a better one. */
const tryAgain = attempt(async ({ pgn, ply, side }) => {
  await bring(pgn);
  const { tree } = store.state;
  if (tree.main.length < ply) return; // something newer came
  for (const [name, value] of Object.entries({ you: side, flip: side === "black" })) store.dispatch({ type: "set", name, value });
  store.dispatch({ type: "go", path: tree.main.slice(0, ply) });
  store.dispatch({ type: "again" });
});

const editor = new Editor(async (fen, chess960, then) => {
  try {
    const newest = arrives(),
      event = await read(fen, store.state.model, chess960);
    if (then === "play") mustGoOn(await remembered("v1/policy", { ...position(event, []), ...named(store.state) }));
    if (!newest()) return;
    store.dispatch(event);
    if (then === "play") playHere();
  } catch (error) {
    throw wrong(error);
  }
});

const setUp = attempt(() =>
  editor.open(blank(store.state) ? undefined : table.seen.fen, { flip: store.state.flip, chess960: store.state.tree.chess960 }),
);

/** Shows the position of a form, or without one the position on the board. */
const look = attempt(async (event) => {
  event.preventDefault();
  const { fen } = event.target.elements;
  if (fen.value.trim()) await bring(fen.value);
  else store.dispatch({ type: "view", view: "position" });
});

const step = (by) => () => store.dispatch({ type: "step", at: store.state.at + by });
const first = () => store.dispatch({ type: "step", at: 0 }),
  last = step(Infinity),
  back = step(-1),
  forward = step(1),
  undo = () => store.dispatch({ type: "undo" });
const showKeys = () => byId("keys").showModal();
const flip = () => store.dispatch({ type: "set", name: "flip", value: !store.state.flip });

/** Goes to the next or the previous variation of the move on the board; true if there is none. */
function switchTo(by) {
  const { tree, moves, at } = store.state,
    index = tree.at(moves.slice(0, at)),
    all = index ? tree.children(tree.nodes[index].parent) : [];
  const next = all[all.indexOf(index) + by];
  if (next === undefined) return all.length < 2;
  store.dispatch({ type: "go", path: tree.path(next) });
}

const ways = shares({
  shown: () => table.seen,
  pgn: async (rated) => shared(await analysis.pgn(rated)),
  headers: () => store.state.tree.headers,
  model: () => named(store.state),
});
listenToControls(store, {
  first,
  back,
  forward,
  last,
  undo,
  flip,
  skip,
  "show-keys": showKeys,
  "show-help": () => byId("help").showModal(),
  resign,
  rematch,
  draw: offerDraw,
  review() {
    store.dispatch({ type: "view", view: "review" });
    analysis.reviewFaults();
  },
  "play-here": attempt(() => {
    mustGoOn(table.seen);
    playHere();
  }),
  "cancel-challenge"() {
    store.dispatch({ type: "view", view: "position" });
    byId("play-here").focus();
  },
  "set-up": setUp,
  "see-example": () => store.dispatch({ type: "load", ...EXAMPLE }),
  edit: setUp,
  return() {
    arrives();
    store.dispatch({ type: "return" });
  },
  resume: attempt(resume),
  discard,
  sound: () => setSound(!sounds()),
  clear() {
    byId("paste").value = "";
    arrives();
    store.dispatch({ type: "load", tree: new Tree(), view: "new" });
    toForm();
  },
  hints: () => store.dispatch({ type: "set", name: "hints", value: !store.state.hints }),
  ...Object.fromEntries(Object.entries(ways).map(([id, takeAway]) => [id, attempt(takeAway)])),
});
const keys = {
  ArrowLeft: back,
  ArrowRight: forward,
  Home: first,
  End: last,
  f: flip,
  u: undo,
  ArrowUp: () => switchTo(-1),
  ArrowDown: () => switchTo(1),
};
listenToKeys((key) => (key === "?" ? showKeys : hasBoard(store.state.view) && keys[key]));
closeMenus();
listenForTexts({
  arrives,
  one: (text) => bring(text),
  several: async (parts, newest) => {
    await library.add(parts);
    if (store.state.view === "games") await update();
    else if (newest()) store.dispatch({ type: "view", view: "games" });
  },
  listing: () => store.state.view === "games",
  attempt,
  notices: notice,
});
library.start({
  open,
  notices: notice,
  model: () => named(store.state),
});
coach.start({
  store,
  again: tryAgain,
  model: () => named(store.state),
  models: (name) => models.find((model) => model.name === name),
  read: library.readAgain,
});
byId("typed").addEventListener("submit", typed);
for (const form of document.querySelectorAll(".look")) form.addEventListener("submit", look);
byId("key-form").addEventListener("submit", enterKey);
for (const id of ["bucket", "file", "worst-kind"]) byId(id).addEventListener("input", dashboard.again);
document.addEventListener("visibilitychange", () => {
  if (document.hidden)
    keep(store.state); // a phone may end the page now without another word
  else if (store.state.view === "leakage") dashboard.again();
});
listenToGestures(
  (by) => step(by)(),
  () => !playing(store.state),
);
addEventListener("pagehide", () => {
  store.dispatch({ type: "pause" });
  keep(store.state);
});
addEventListener("pageshow", (event) => event.persisted && askAgain());
addEventListener("popstate", () => store.dispatch(readHash(location.hash)));
setSound(sounds());
store.dispatch(readHash(location.hash));
lookForUnfinished = keepsUnfinished(store); // once the address is read, as every event writes it

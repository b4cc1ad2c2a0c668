// The list of games: added from PGN of any size, kept by the browser, and read by the service one by one.

import { call } from "./api.js";
import { agrees } from "./ask.js";
import { button, byId, counted, element, lasting, say, settled, table } from "./dom.js";
import * as coach from "./coach.js";
import { treeOf } from "./match.js";
import { pgnOf, shared } from "./pgn.js";
import { kept as keptOf } from "./profile.js";
import { save as download } from "./share.js";
import { drop, forget, keep, kept, watch } from "./shelf.js";
import { ratingOf } from "./tree.js";
import { half, noted, pgnFault, wrong } from "./words.js";

const SHOWN = 200; // rows at first, and with each press for more
const PLAYED = 1000; // games played here that are kept; beyond them the oldest goes
const PAUSE = 60; // s that the service leaves an engine alone that has failed
const TRIES = 3; // of a game that an engine does not judge
const OWN_FAULT = [413, 422, 500]; // statuses that say that a game cannot be read: it is too long, say
const COST = "Key move"; // the column whose figures are sorted from the top
const HEADS = ["Players", "Result", "Date", "Event", "Opening", COST];

let entries; // the games in the order of their addition: what is kept of each, and its cells; `played` marks those played here
let found = []; // those that are listed, in the list's order
let sorting = { by: -1, down: false }; // a column, or none
let most = SHOWN;
let running = false,
  stopping = false; // whether games are read one after the other; whether the present one is the last
let spent = 0,
  reads = 0; // ms that the games took which were read since the reading began, and how many they are
/** @type {(done?: any) => void} */
let hurry = () => {}; // ends a wait
let waiting = "",
  refused = ""; // why the service is not asked now; why the browser keeps nothing
let engine = ""; // "none" if the service has none, "cut" if it has stopped before it was done
let notice, named; // whom to tell of errors; what a request says of the model

/**
 * Starts the list: `open` is given the text of a game that was chosen, `notices` are told of errors, `model` gives what a
 * request says of the model.
 */
export function start({ open, notices, model }) {
  [notice, named] = [notices, model];
  watch(follow);
  byId("library-go").onclick = () => {
    if (running && !stopping) return stop();
    engine = "";
    for (const entry of entries) entry.tries = 0;
    read();
  };
  byId("library-more").onclick = () => {
    most += SHOWN;
    draw();
  };
  for (const id of ["library-find", "library-which"])
    byId(id).oninput = () => {
      most = SHOWN;
      draw();
    };
  byId("library-save").onclick = () =>
    download("games.pgn", "application/x-chess-pgn", shared(found.map(({ game }) => `${game.pgn.trim()}\n`).join("\n")));
  byId("library-clear").onclick = clear;
  byId("library-list").onclick = ({ target }) => {
    const head = target.closest("thead th"),
      row = target.closest("tbody tr");
    if (head?.cellIndex < HEADS.length) {
      sorting = { by: head.cellIndex, down: sorting.by === head.cellIndex ? !sorting.down : HEADS[head.cellIndex] === COST };
      draw();
      byId("library-list").querySelectorAll("thead button")[sorting.by].focus();
    }
    if (!row) return;
    if (target.closest(".remove")) return remove(found[row.sectionRowIndex]);
    byId("library-list").querySelector("[aria-current]")?.removeAttribute("aria-current");
    row.setAttribute("aria-current", "true");
    open(found[row.sectionRowIndex].game.pgn);
  };
}

const drawCoach = settled(() => coach.show(entries.map(({ game }) => game)), 300);

/** Has games read again, as those that an older page has kept without a report. */
export function readAgain(games) {
  for (const game of games) game.asked = false;
  draw();
  read();
}

/** Shows the list as it was kept, the first time; from then on whatever changes it draws it. */
export async function show() {
  if (entries) return;
  await ready();
  draw();
  coach.show(entries.map(({ game }) => game)); // so that the list is below it from the first
  read();
}

/** Adds the games among the parts of a text that are not in the list, and has them read. Throws if there are none. */
export async function add(parts) {
  await ready();
  const known = new Set(entries.map(({ game }) => game.pgn)),
    time = Date.now(),
    games = [];
  let again = 0,
    stray; // games that the list has; text that stands outside games
  for (const part of parts) {
    if (part.role !== "game") {
      if (part.text.trim() && (part.role === "outside" || !games.length)) stray ??= part;
      continue;
    }
    const pgn = part.text.trim();
    if (known.has(pgn)) again++;
    else games.push({ id: [time, games.length], pgn, tags: part.tags });
    known.add(pgn);
  }
  const outside = stray ? ` Line ${lineOf(stray)}: “${stray.text.trim().split(/\s/, 1)[0]}” stands outside games.` : "";
  if (!games.length && !again) throw new Error(`There is no game in this PGN.${outside}`);
  entries.push(...games.map(entryOf));
  byId("library-added").textContent = `${counted(games.length, "game")} added${again ? `, ${again} already in the list` : ""}.${outside}`;
  await save(games);
  draw();
  read();
}

/** The line of the first word of a text outside games. */
const lineOf = ({ line, text }) => line + text.slice(0, text.search(/\S/)).split("\n").length - 1;

/** Has each game against the network added when it is over. */
export function keepsGames(store) {
  let keeping = ""; // the id of the game that was added last
  store.subscribe(async ({ match }) => {
    if (!match?.ending || match.kept || !match.moves.length || keeping === match.id) return;
    keeping = match.id;
    const stored = await addPlayed(treeOf(match));
    store.dispatch({ type: "kept", id: match.id, kept: stored ? "stored" : "listed" });
  });
}

/** Adds a game that was played here, and has it read. True if the browser has stored it. */
async function addPlayed(tree) {
  await ready();
  const game = { id: [Date.now(), 0], pgn: pgnOf(tree).trim(), tags: tree.headers, played: true };
  if (entries.some((one) => one.game.pgn === game.pgn)) return true;
  entries.push(entryOf(game));
  const stored = await save([game]);
  const old = entries.filter((one) => one.game.played).slice(0, -PLAYED);
  if (old.length) {
    entries = entries.filter((one) => !old.includes(one));
    await drop(old.map((one) => one.game.id)).catch(refuse);
  }
  draw();
  read();
  return stored;
}

async function ready() {
  if (entries) return;
  let games = [];
  try {
    games = await kept();
  } catch (error) {
    refuse(error);
  }
  entries ??= games.map(entryOf);
}

const entryOf = (game) => ({ game, cells: cellsOf(game) });

/**
 * What the list says of a game.
 * @type {(game: any) => string[]}
 */
export const cellsOf = ({ tags: headers = {}, asked, judged, part, opening, moment, notes, error }) => {
  const rating = (side) => ratingOf(headers[`${side}Elo`]);
  const player = (side) => (headers[side] ?? "?") + (rating(side) ? ` (${rating(side)})` : "");
  const own = [headers.ECO, headers.Opening];
  const names = (opening ? [opening.eco, opening.name] : own).filter((name) => name && name !== "?");
  return [
    `${player("White")} – ${player("Black")}`,
    half(headers.Result ?? ""),
    (headers.Date ?? headers.UTCDate ?? "").replace(/[.?]*\?$/, ""),
    headers.Event ?? "",
    names.join(" "),
    error
      ? `Cannot be read: ${error}`
      : asked
        ? [moment ?? (judged ? "–" : ""), judged ? "" : (part ?? "not judged"), noted(notes)].filter(Boolean).join(" · ")
        : "",
  ];
};

/** Whether nothing tells what the moves of a game that was read cost, or not all of them. */
const isUnjudged = ({ game }) => Boolean(game.asked && !game.judged && !game.error);

/** Whether all moves of a report have a cost; lichess gives the first position no evaluation. */
const isJudged = (moves, engine) => (engine ? engine.done === engine.of : moves.filter(({ lost }) => lost === undefined).length < 2);

/** Whether the service is to be asked for a game. */
const isLeft = (entry) => !entry.game.asked || (engine !== "none" && isUnjudged(entry) && (entry.tries ?? 0) < TRIES);

/** Has the service read the games that it has not read or judged yet, one at a time, and waits where that helps. */
async function read() {
  stopping = false;
  if (running) return;
  running = true;
  spent = reads = 0;
  progress();
  const unread = () => entries.findLast(({ game }) => game.played && !game.asked) ?? entries.find(({ game }) => !game.asked);
  for (let next; !stopping && (next = unread() ?? entries.find(isLeft)); ) {
    if (next.game.asked && engine === "cut") await pause(PAUSE, "The engine has stopped.");
    if (!stopping && entries.includes(next)) await ask(next);
  }
  running = false;
  progress();
}

function stop() {
  stopping = true;
  hurry();
  progress();
}

async function ask(entry) {
  const { game } = entry,
    began = performance.now();
  try {
    const {
      games: [answer],
      engine: how,
      model: answerer,
    } = await call("v1/games", { pgn: game.pgn, ...named(), include: ["evaluations", "ratings", "partial"] });
    const judged = !answer.error && isJudged(answer.moves, how);
    if (!answer.error && !judged) engine = how ? "cut" : "none";
    else if (how) engine = "";
    entry.tries = judged ? 0 : (entry.tries ?? 0) + 1;
    Object.assign(game, {
      asked: true,
      judged,
      part: how?.done && !judged ? `${how.done} of ${how.of} positions judged` : undefined,
      opening: answer.opening,
      notes: answer.notes,
      moment: answer.moments?.[0] && `${answer.moments[0].mark ?? "fault"}: ${answer.moments[0].text}`,
      lost: answer.moments?.[0]?.lost,
      report: answer.error ? undefined : keptOf(answer, answerer.name),
      error: reason(answer.error?.detail),
    });
  } catch (error) {
    if (OWN_FAULT.includes(error.status)) Object.assign(game, { asked: true, error: reason(error.message) });
    else return await held(error);
  }
  waiting = "";
  spent += performance.now() - began;
  reads++;
  if (!entries.includes(entry)) return; // all were removed meanwhile
  await save([game]);
  redraw(entry);
  progress();
}

/** Writes what has become known of a game into its row. */
function redraw(entry) {
  entry.cells = cellsOf(entry.game);
  const row = byId("library-list").querySelector("tbody")?.rows[found.indexOf(entry)];
  if (row) entry.cells.forEach((text, index) => index && (row.cells[index].textContent = text));
}

/** Takes over what another tab has changed in the list. */
function follow({ games = [], ids = [], all }) {
  if (!entries) return; // not read yet
  const known = new Map(entries.map((entry) => [String(entry.game.id), entry])),
    before = entries.length;
  for (const game of games) {
    const entry = known.get(String(game.id));
    if (entry) {
      Object.assign(entry.game, game);
      redraw(entry);
    } else entries.push(entryOf(game));
  }
  const gone = new Set(ids.map(String));
  entries = all ? [] : entries.filter(({ game }) => !gone.has(String(game.id)));
  if (entries.length !== before) draw();
  else progress();
}

const reason = (detail) => detail && pgnFault(detail);

/** Waits, if the service is to be asked again; or else stops, and tells why. */
async function held(error) {
  const wait = error.retryAfter;
  waiting = wrong(error) + (wait ? ` Trying again in ${wait} s.` : " Press Continue to try again.");
  if (!wait) {
    stopping = true;
    notice.tell("library", error, read);
  }
  progress();
  if (wait) await pause(wait);
}

/** Waits some seconds, or until the reading is stopped; `why` is said meanwhile. */
async function pause(seconds, why = "") {
  if (why) waiting = `${why} Trying again in ${seconds} s.`;
  progress();
  if (!stopping) await new Promise((done) => setTimeout((hurry = done), 1000 * seconds));
  if (stopping || why) waiting = "";
}

/** Keeps games, or says that the browser does not. True if it does. */
async function save(games) {
  try {
    await keep(games);
    return true;
  } catch (error) {
    refuse(error);
    return false;
  }
}

function refuse(error) {
  const why = error?.name === "QuotaExceededError" ? "its storage for this page is full" : (error?.message ?? error);
  refused = `The browser cannot store these games (${why}). They will be lost when you close or reload this page.`;
}

async function remove(entry) {
  if (!(await agrees(`Remove this game from the list? ${entry.cells[0]} is then gone.`, "Remove"))) return;
  entries = entries.filter((one) => one !== entry);
  await drop([entry.game.id]).catch(refuse);
  draw();
  byId("library-list").focus();
}

async function clear() {
  if (!(await agrees(`Remove ${counted(entries.length, "game")} from the list? They are then gone.`, "Remove"))) return;
  stop();
  entries = [];
  refused = waiting = byId("library-added").textContent = "";
  try {
    await forget();
  } catch (error) {
    refuse(error);
  }
  draw();
}

/** The rows that were asked for, and all that is said above them. */
function draw() {
  const asked = byId("library-find").value.trim().toLowerCase(),
    words = asked.split(/\s+/).filter(Boolean);
  const which = byId("library-which").value,
    played = which === "played";
  const shown = entries.filter(({ game }) => !which || Boolean(game.played) === played);
  const holding = (...parts) =>
    shown.filter(({ cells }) => {
      const text = cells.join(" ").toLowerCase();
      return parts.every((part) => text.includes(part));
    });
  found = holding(asked);
  if (!found.length) found = holding(...words); // "Player 12" is one player; "anna sicilian" stands nowhere as such
  if (sorting.by < 0)
    found.sort(({ game: a }, { game: b }) => b.id[0] - a.id[0] || a.id[1] - b.id[1]); // the latest first
  else {
    const { compare } = new Intl.Collator("en", { numeric: true });
    const byCost = (a, b) => (a.game.lost ?? -1) - (b.game.lost ?? -1);
    const by = HEADS[sorting.by] === COST ? byCost : (a, b) => compare(a.cells[sorting.by], b.cells[sorting.by]);
    found.sort((a, b) => (sorting.down ? -1 : 1) * by(a, b));
  }
  const heads = [
    ...HEADS.map((name) => button(undefined, { title: `Sort by ${name}` }, name)),
    element("span", { className: "spoken" }, "Remove"),
  ];
  const rows = found
    .slice(0, most)
    .map(({ cells: [players, ...rest] }) => [
      button(undefined, {}, players),
      ...rest,
      button(undefined, { className: "remove", title: "Remove this game", "aria-label": `Remove ${players}` }, "×"),
    ]);
  const list = table("Games", heads, rows);
  if (sorting.by >= 0) list.tHead.rows[0].cells[sorting.by].setAttribute("aria-sort", sorting.down ? "descending" : "ascending");
  byId("library-list").replaceChildren(...(entries.length ? [list] : []));
  byId("library-more").hidden = found.length <= most;
  byId("library-found").textContent = words.length || which ? `${counted(found.length, "game")} found` : "";
  progress();
}

function progress() {
  const asked = entries.filter(({ game }) => game.asked).length,
    unread = entries.filter(({ game }) => game.error).length;
  for (const id of ["library-tools", "library-list"]) byId(id).hidden = !entries.length;
  byId("library-empty").hidden = entries.length > 0;
  const unjudged = entries.filter(isUnjudged).length,
    left = entries.filter(isLeft).length,
    busy = running && !stopping;
  Object.assign(byId("library-progress"), { max: entries.length || 1, value: entries.length - left });
  byId("library-progress").classList.toggle("unseen", !left);
  byId("library-go").hidden = asked === entries.length && !unjudged;
  byId("library-go").textContent = busy ? "Stop" : asked < entries.length ? "Continue" : "Judge the rest";
  byId("library-count").textContent = [
    `${asked.toLocaleString("en")} of ${counted(entries.length, "game")} read`,
    busy && reads ? `${lasting((left * spent) / reads)} left` : "",
    unread ? `${unread} cannot be read` : "",
    unjudged ? `${unjudged.toLocaleString("en")} not judged${engine === "none" ? ", as the service has no engine" : ""}` : "",
  ]
    .filter(Boolean)
    .join("; ");
  drawCoach();
  say(byId("library-waiting"), waiting);
  say(byId("library-refused"), refused);
}

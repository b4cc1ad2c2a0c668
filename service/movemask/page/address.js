// The address of the page: its hash holds the view, the line on the board and the settings, so that it can be shared.

import { PLAYER } from "./pgn.js";
import { START, VIEWS, following, live } from "./state.js";

const NAMES = ["model", "beside", "white", "black", "flip", "arrows", "hints", "player"];
const SETTINGS = Object.fromEntries(NAMES.map((name) => [name, START[name]]));
/** What an address holds of a line, as at the start. */
export const LINE = { fen: "startpos", moves: [], at: 0, chess960: false, game: "", you: "", recorded: 0 };
const TAGS = ["Event", "Site", "Date", "Round", "White", "Black", "WhiteElo", "BlackElo", "Result", "Termination"];
const LONGEST = 80; // characters of a tag
const HERE = "You"; // whoever plays here; somebody else reads the link
const STEPS = ["load", "begin", "return"]; // events whose address is a step of the browser's history, as another view is

/**
 * What an address holds of a state.
 * @type {(state: any) => any}
 */
const held = ({ tree, ...rest }) => {
  const { Result, Termination, ...others } = tree.headers, // of the game: another line has not ended so
    ended = rest.moves.join() === tree.main.join();
  return {
    ...rest,
    fen: tree.fen,
    chess960: tree.chess960,
    headers: live(rest) && following(rest) ? {} : ended ? tree.headers : others,
  };
};

/** The hash of a state with changes, such as `{view: "lens"}`. */
export function hashOf(state, changes = {}) {
  const all = { ...held(state), ...changes };
  const query = new URLSearchParams();
  for (const [name, usual] of Object.entries({ ...LINE, ...SETTINGS })) {
    const value = all[name] ?? usual;
    if (name === "player" && all.view !== "games") continue; // no link to a game names a pupil
    if (Array.isArray(usual)) value.length && query.set(name, value.join("."));
    else if (name === "at") value !== all.moves.length && query.set(name, value);
    else if (value !== usual) query.set(name, typeof usual === "boolean" ? Number(value) : value);
  }
  for (const name of TAGS) {
    const value = all.headers?.[name];
    if (value && !/^[?.*]+$/.test(value)) query.set(name, (value === HERE ? PLAYER : value).slice(0, LONGEST));
  }
  const text = query.toString();
  return `#${all.view}${text && `?${text}`}`;
}

/** The event that an address is; what it does not name, or what makes no sense, is as at the start. */
export function readHash(hash) {
  const [view, query = ""] = hash.slice(1).split("?", 2);
  const given = new URLSearchParams(query);
  const read = ([name, usual]) => {
    const text = given.get(name);
    if (text === null) return [name, usual];
    if (Array.isArray(usual)) return [name, text.split(".").filter(Boolean)];
    if (typeof usual === "boolean") return [name, text === "1"];
    if (typeof usual === "number") return [name, Number.isFinite(Number(text)) ? Number(text) : usual];
    return [name, text];
  };
  const { player, ...settings } = Object.fromEntries(Object.entries(SETTINGS).map(read));
  const { at, you, ...line } = Object.fromEntries(Object.entries(LINE).map(read));
  const most = line.moves.length;
  return {
    type: "address",
    settings: { ...settings, ...(view === "games" ? { player } : {}), view: VIEWS.includes(view) ? view : "start" },
    ...line,
    at: given.has("at") ? Math.min(Math.max(0, Math.trunc(at)), most) : most,
    you: ["white", "black"].includes(you) ? you : "",
    headers: Object.fromEntries(TAGS.filter((name) => given.get(name)).map((name) => [name, given.get(name).slice(0, LONGEST)])),
  };
}

/** Writes the state into the address; some events are steps of the browser's history. */
export function writeHash(state, before, event) {
  const hash = hashOf(state);
  if (hash === location.hash) return;
  const step = event.type !== "address" && (state.view !== before.view || STEPS.includes(event.type));
  try {
    history[step ? "pushState" : "replaceState"](null, "", hash);
  } catch {
    // Safari takes about a hundred in half a minute: the next change writes it
  }
}

// What the page shows: the position and its line, the model, the ratings. The URL's hash holds all of it.

export const VIEWS = ["play", "ratings", "lens", "leakage", "games"];

/** Whether the view has the board. */
export const onBoard = () => VIEWS.indexOf(state.view) < 3;

const DEFAULTS = {
  fen: "startpos", moves: [], at: 0, chess960: false, model: "", beside: "",
  white: 1500, black: 1500, opponent: "", strength: 0, temperature: 1, clock: "", hints: false, vary: "both", flip: false, arrows: true,
};

export const state = { view: "play", ...DEFAULTS };

/** Reads the state from the hash; what it does not name, or what makes no sense, is as at the start. */
export function readHash() {
  const [view, query = ""] = location.hash.slice(1).split("?", 2);
  const given = new URLSearchParams(query);
  Object.assign(state, DEFAULTS, { view: VIEWS.includes(view) ? view : "play" });
  for (const [name, usual] of Object.entries(DEFAULTS)) {
    const text = given.get(name);
    if (text === null) continue;
    if (Array.isArray(usual)) state[name] = text.split(".").filter(Boolean);
    else if (typeof usual === "boolean") state[name] = text === "1";
    else if (typeof usual === "number") state[name] = Number.isFinite(Number(text)) ? Number(text) : usual;
    else state[name] = text;
  }
  state.at = given.has("at") ? Math.min(Math.max(0, Math.trunc(state.at)), state.moves.length) : state.moves.length;
}

/** The hash of the state with these changes. */
export function hashOf(changes = {}) {
  const all = { ...state, ...changes };
  const query = new URLSearchParams();
  for (const [name, usual] of Object.entries(DEFAULTS)) {
    const value = all[name];
    if (Array.isArray(usual)) value.length && query.set(name, value.join("."));
    else if (name === "at") value !== all.moves.length && query.set(name, value);
    else if (value !== usual) query.set(name, typeof usual === "boolean" ? Number(value) : value);
  }
  const text = query.toString();
  return `#${all.view}${text && `?${text}`}`;
}

/** Puts the state into the URL; with `step`, as a new entry of the browser's history. */
export function writeHash(step = false) {
  const hash = hashOf();
  if (hash === location.hash) return;
  if (step) history.pushState(null, "", hash);
  else history.replaceState(null, "", hash);
}

/** The moves that led to the position that is shown. */
export const played = () => state.moves.slice(0, state.at);

/** What a request says of the model; nothing for the service's default. */
export const named = () => (state.model ? { model: state.model } : {});

/** What a request says of the position after these moves: of the one that is shown. */
export function position(moves = played()) {
  const asked = { fen: state.fen, moves };
  return state.chess960 ? { ...asked, chess960: true } : asked;
}

/** The ratings as the service takes them: of the player to move and of the opponent. */
export const elo = (turn) =>
  turn === "white" ? { self: state.white, opponent: state.black } : { self: state.black, opponent: state.white };

/** Who is to move, by the side to move of the first position and the number of moves. */
export function turn(at = state.at) {
  const first = state.fen.split(/\s+/)[1] === "b" ? 1 : 0;
  return (first + at) % 2 ? "black" : "white";
}

// The state of the page, one object that is never changed in place, and what follows from it.

import { turnAfter, Tree } from "./tree.js";

const RATING = 1500; // of players whose rating is unknown

/** First the views with a board: the first screen, a position, the form of a new game, the game against the network, and the tabs. */
export const VIEWS = ["start", "position", "new", "play", "review", "ratings", "lens", "leakage", "games"];

/** All that belongs to the game on the board. Another game begins with another object, so nothing of one is left in the next. */
export const game = ({
  tree = new Tree(),
  moves = tree.main, // the game's line on the board
  at = 0, // how many moves of it are played there
  game = "", // the id of the match that the board shows, or ""
  you = "", // whose moves are reviewed: "white", "black", or "" for both
  flip = you === "black",
  aborted = false, // the start that is left of a game that was aborted
  recorded = 0, // of a position of the ledger: the probability of illegal moves when it was asked for, or 0
  notes = [], // what was read otherwise than it stands in the PGN
  trying = null, // the line, as a text, after which the player looks for a better move; or null
  white = RATING,
  black = RATING,
} = {}) => ({ tree, moves, at, game, you, flip, aborted, recorded, notes, trying, white, black });

export const START = {
  view: "start",
  ...game(),
  match: null, // the game against the network, whatever the board shows
  offered: "", // the id of an unfinished game against the network that another tab has left, or plays; or ""
  player: "", // the key of the one whom the coach's view is of
  model: "",
  beside: "",
  arrows: true,
  hints: false,
};

/** What the board of the first screen shows: most of what the network would play without its mask leaves the king in check. */
export const EXAMPLE = {
  view: "position",
  ...game({ tree: new Tree({ fen: "rn2k2r/ppp4p/6b1/4pP2/1qB3Pb/7P/PP1N4/R3K1NR w KQ - 3 20" }) }),
};

/** Whether a view has the board. */
export const hasBoard = (view) => VIEWS.indexOf(view) < 7;

/** Whether the board shows the game against the network. */
export const following = ({ match, game }) => Boolean(match) && game === match.id;

/** Whether a game against the network goes on. */
export const live = ({ match }) => Boolean(match) && !match.ending;

/** Whether the board shows a game that goes on. */
export const playing = (state) => live(state) && following(state);

/** Whether there is nothing on the board but the start. */
export const blank = ({ tree }) => tree.fen === "startpos" && tree.nodes.length === 1;

/** Whether the board has a game that can be reviewed. */
export const reviewable = (state) => hasGraph(state) && state.tree.main.length > 0;

/** Whether the board has a game with a graph, and a bar for White's chances, whose place is kept if nothing tells them. */
export const hasGraph = (state) => !playing(state) && state.tree.isGame;

/** Whether the page offers to begin something beside the board. */
export const begins = ({ view }) => view === "start" || view === "new";

/** The view that a state can have: a link, or the end of a game, may ask for one that has nothing to show. */
export function viewOf(state) {
  const { view } = state;
  if (begins(state) && playing(state)) return "play";
  if (view === "new" && live(state)) return "position";
  if (view === "start" && !blank(state)) return "position";
  if (view === "review" && !reviewable(state)) return playing(state) ? "play" : "position";
  if (view === "play" && !playing(state)) return blank(state) ? "new" : following(state) ? "review" : "position";
  return view;
}

/** Whether the player is to find moves alone: until hints are asked for. */
export const alone = (state) => playing(state) && !state.hints;

/** Whether the player looks for a better move in the position on the board. */
export const trying = (state) => state.trying === played(state).join();

/** The moves that led to the position on the board. */
export const played = ({ moves, at }) => moves.slice(0, at);

/** Who is to move on the board. */
export const turn = ({ tree, at }) => turnAfter(tree.fen, at);

/** What a request says of the model; nothing for the service's default. */
export const named = ({ model }) => (model ? { model } : {});

/** What a request says of a position after these moves: of the one on the board. */
export const position = ({ tree }, moves) => ({ fen: tree.fen, moves, ...(tree.chess960 ? { chess960: true } : {}) });

/** The ratings as the service takes them, of the side to move and of its opponent. */
export const elo = ({ white, black }, side) => (side === "white" ? { self: white, opponent: black } : { self: black, opponent: white });

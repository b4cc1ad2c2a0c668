// What each event makes of the state. `now`, in ms, comes with the event, so the same events give the same state.

import * as match from "./match.js";
import { following, game, hasBoard, live, played, playing, viewOf } from "./state.js";
import { Tree } from "./tree.js";

/** The state after an event; the same object if nothing has changed. Throws for an event that it does not know. */
export function reduce(state, event) {
  const made = EVENTS[event.type](state, event),
    view = viewOf(made),
    next = view === made.view ? made : { ...made, view };
  // What has just happened on the board need not be told in another view.
  const seen = next.match?.ending && !next.match.seen && following(next) && hasBoard(next.view);
  return seen ? { ...next, match: { ...next.match, seen: true } } : next;
}

const EVENTS = {
  /** A setting: a rating, the second model, whose moves are reviewed. The model is the opponent's while a game goes on. */
  set: (state, { name, value }) =>
    name === "model" && live(state) ? state : { ...state, ...(name === "model" ? { recorded: 0 } : {}), [name]: value },

  view: (state, { view }) => ({ ...state, view }),

  /** Along the line on the board. */
  step: (state, { at }) => ({ ...state, at: Math.min(Math.max(0, at), state.moves.length) }),

  /** To a move of the tree, by the moves that lead to it. */
  go: (state, { path }) => ({ ...state, moves: along(state.moves, path) ? state.moves : state.tree.onwards(path), at: path.length }),

  /** Goes back before the move on the board, for the player to look for a better one. */
  again: (state) => ({ ...state, at: state.at - 1, trying: played(state).slice(0, -1).join() }),

  /** Shows a better line in place of the move that follows `before`: its first move is played, the others come next. */
  better(state, { before, line }) {
    const moves = [...before, ...line.map(({ uci }) => uci)];
    const grown = line.reduce(
      (tree, { san }, ply) => tree.grown(moves.slice(0, before.length + ply + 1), san, { added: true }),
      state.tree,
    );
    return { ...state, tree: grown, moves, at: before.length + 1, trying: null };
  },

  /** A move that was made in the position after `after`: in the game against the network, along the line, or as a variation. */
  play(state, { uci, san, after, now }) {
    if (after !== played(state).join()) return state; // the board still waits for its position
    if (playing(state)) {
      const due = match.isYours(state.match) && state.at === state.moves.length;
      return due ? withMatch(state, match.moved(state.match, { uci, san, now })) : state;
    }
    const line = [...played(state), uci],
      tree = state.tree.grown(line, san, { added: true });
    const view = state.view === "new" ? "position" : state.view;
    return { ...state, view, tree, moves: state.moves[state.at] === uci ? state.moves : tree.onwards(line), at: line.length };
  },

  /** A move of the game that does not come from the board: the network's, which it has `thought` about, or one made ahead. */
  move: (state, { key, ...made }) => inMatch(state, key, (one) => match.moved(one, made)),

  /** What an answer says of the present position of the game. */
  judged: (state, { key, ...found }) => inMatch(state, key, (one) => match.judged(one, found)),

  /** A move made ahead: `{text}` as it was typed, or with the `{uci}` of the board; null takes it away. */
  premove: (state, { premove, remark = "" }) => (live(state) ? { ...state, match: { ...state.match, premove, remark } } : state),

  flag: (state, { now }) => (live(state) ? withMatch(state, match.flagged(state.match, now)) : state),
  resign: (state, { now }) => (live(state) ? withMatch(state, match.resigned(state.match, now)) : state),
  draw: (state, { now }) => (live(state) ? withMatch(state, match.drawOffered(state.match, now)) : state),

  /** Against the network, takes the last move back with its reply; elsewhere a move that the player has added, and else steps back. */
  undo(state, { now }) {
    if (playing(state)) return withMatch(state, match.takenBack(state.match, now));
    if (!state.at) return state;
    const line = played(state),
      index = state.tree.at(line),
      before = line.slice(0, -1);
    if (!state.tree.nodes[index].added) return { ...state, at: state.at - 1 };
    const tree = state.tree.pruned(index);
    return { ...state, tree, moves: tree.onwards(before), at: before.length };
  },

  /** A new game against the network, or one to continue. */
  begin(state, { match: one }) {
    return withMatch({ ...state, ...gameOf(one), offered: "", view: "play", model: one.model, hints: false }, one);
  },

  /** Gives up a game that has hardly begun. */
  abort: (state) => ({ ...state, ...game({ aborted: true }), match: null }),

  /** Another tab has continued the game, or given it up. */
  released: (state) => ({
    ...state,
    match: null,
    ...(following(state) ? game() : {}), // no hints on a game that goes on
  }),

  /** What another tab has left unfinished, or plays: the id of the game, or "". */
  offered: (state, { offered }) => (offered === state.offered ? state : { ...state, offered }),

  /** Puts a game that was read onto the board, in this view if one is named. A game against the network goes on meanwhile. */
  load: (state, { type: _, view = ["ratings", "lens"].includes(state.view) ? state.view : "review", ...given }) => ({
    ...state,
    ...game(given),
    view,
  }),

  /** Back to the game against the network. */
  return: (state) => (state.match ? withMatch({ ...state, ...gameOf(state.match), view: "play" }, state.match) : state),

  /** An address: it holds the line, and the game has more. */
  address(state, { settings, moves, at, game: id, fen, chess960, headers, you, recorded }) {
    const kept = live(state) ? { ...settings, model: state.model } : settings;
    if (state.match && id === state.match.id) {
      const back = following(state) ? state : EVENTS.return(state);
      const line = !live(state) && back.tree.at(moves) !== undefined ? moves : state.match.moves;
      return { ...back, ...kept, game: id, moves: line, at: line.length === moves.length ? at : line.length };
    }
    const same = state.tree.fen === fen && state.tree.chess960 === chess960 && state.tree.at(moves) !== undefined && moves.length;
    if (same && at === state.at && moves.join() === state.moves.join()) return { ...state, ...kept }; // another view of it
    const tree = same ? state.tree : new Tree({ fen, chess960, headers }).grown(moves);
    const shown = game({ tree, moves, at, you: same ? state.you : you, recorded });
    return { ...state, ...shown, trying: same ? state.trying : null, ...kept }; // another view is an address too
  },

  /** The names of moves that an address has brought. */
  named: (state, { tree, moves, sans }) => (state.tree === tree ? { ...state, tree: tree.named(moves, sans) } : state),

  /** The page is left, or frozen, and looked at again. */
  pause: (state, { now }) => (live(state) ? { ...state, match: match.paused(state.match, now) } : state),

  /** A game against the network that is over is in the list of games: "stored" by the browser, or only "listed" until it is closed. */
  kept: (state, { id, kept }) => (state.match?.id === id ? { ...state, match: { ...state.match, kept } } : state),
};

/** What the board shows of a game against the network. */
const gameOf = (one) =>
  game({
    game: one.id,
    you: one.you,
    tree: match.treeOf(one),
    [one.you]: one.rating,
    [match.other(one.you)]: one.level.strength || one.level.rating || undefined,
  });

/** Whether a path is how a line begins. */
const along = (moves, path) => path.every((uci, index) => uci === moves[index]);

/** A change of the game against the network, unless it comes too late. */
function inMatch(state, key, change) {
  return live(state) && match.keyOf(state.match) === key ? withMatch(state, change(state.match)) : state;
}

/** The state with the game as it is now: a board that shows it goes to its last position when that is new. */
function withMatch(state, one) {
  if (one === state.match && (!following(state) || state.moves === one.moves)) return state;
  const next = { ...state, match: one };
  if (!following(next)) return next;
  const same = state.moves === one.moves && one.ending === state.match?.ending;
  if (same) return next;
  const view = one.ending && !state.match?.ending && state.view === "play" ? "review" : state.view;
  return { ...next, view, tree: match.treeOf(one), moves: one.moves, at: state.moves === one.moves ? state.at : one.moves.length };
}

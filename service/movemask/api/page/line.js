// The game on the board: its moves, what the model thought of them, and positions and games as text.

import { remembered } from "./api.js";
import { firstGame, ratingOf } from "./split.js";
import { elo, named, position, state, turn } from "./state.js";
import { Tree } from "./tree.js";
import { resultOf } from "./words.js";

const KEPT = "movemask-game"; // in the tab: comments and variations, which the address does not hold

const SCORES = { "1-0": 1, "1/2-1/2": 0.5, "0-1": 0 };

let tree = null;

/** The game with its variations. */
export function game() {
  if (!fits(tree)) tree = new Tree({ fen: state.fen, chess960: state.chess960 });
  return tree;
}

const fits = (read) => read?.fen === state.fen && read.chess960 === state.chess960;

/** Takes the game of an address: the present one or the one that was kept, if it has these moves. */
export function takeKept() {
  if (state.moves.length && fits(tree) && tree.has(state.moves)) return; // another view of it
  const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "null");
  const read = fits(kept) && state.moves.length ? new Tree(kept) : null;
  tree = read?.has(state.moves) ? read : null;
}

/** Takes a game that was read. */
export function take(read) {
  tree = new Tree(read);
}

/** Keeps the game over a reload of the page. */
export function keep() {
  try {
    sessionStorage.setItem(KEPT, JSON.stringify(game().plain()));
  } catch {
    // full: then a reload shows the line alone
  }
}

/** Everything that the reports depend on, besides the moves. */
const setting = () => JSON.stringify([state.model, state.white, state.black]);

/** What is known of a move under these ratings: `{probability, rank, surprise, score}`. */
export const reportOf = (node) => (node.report?.of === setting() ? node.report : {});

/** The moves of the line with their reports, as far as they are known. */
export const reports = () => game().along(state.moves).map((node) => ({ uci: node.uci, san: node.san, ...reportOf(node) }));

/** Notes what an answer said of a move that is then played in its position. */
export function note(line, answer, move) {
  const { probability } = move;
  const rank = answer.moves.indexOf(move) + 1, surprise = -Math.log(probability);
  const report = { of: setting(), probability, rank, surprise, score: whiteScore(answer) };
  Object.assign(game().at(line), { san: move.san, report });
}

/** Notes what is known of the end of a line: the result, or White's expected score. */
export function noteEnd(line, answer) {
  const result = resultOf(answer);
  Object.assign(game().at(line), { result, ends: { of: setting(), score: result ? SCORES[result] : whiteScore(answer) } });
}

/** White's expected scores along the line: before each move, and after the last. */
export function scores() {
  const last = game().at(state.moves).ends;
  return [...reports().map((report) => report.score), last?.of === setting() ? last.score : undefined];
}

/** What a reading of the whole line said of it: `{moments, evaluated}`; undefined before that. */
export function review() {
  const known = game().at(state.moves).review;
  return known?.of === setting() ? known : undefined;
}

/** White's expected score, 0 to 1, by an answer or a report; undefined if the network forecasts none. */
export function whiteScore({ value, forecast = value, turn }) {
  if (!forecast) return undefined;
  return turn === "white" ? forecast.score : 1 - forecast.score;
}

/** Asks the service for the reports that are missing; true if there were any. */
export async function complete() {
  const nodes = game().along(state.moves);
  if (!nodes.length || (nodes.every((node) => reportOf(node).rank) && nodes.at(-1).ends?.of === setting())) return false;
  const of = setting(), moves = state.moves.join();
  const last = { ...position(state.moves), ...named(), elo: elo(turn(state.moves.length)), include: ["san", "forecast"] };
  const end = remembered("v1/policy", last);
  const headers = { WhiteElo: Math.round(state.white), BlackElo: Math.round(state.black) };
  if (state.fen !== "startpos") Object.assign(headers, { SetUp: "1", FEN: state.fen });
  if (state.chess960) headers.Variant = "Chess960";
  const tags = Object.entries(headers).map(([name, value]) => `[${name} "${value}"]`).join("\n");
  const words = [game().root, ...nodes].map(({ uci = "", comment }) => `${uci} {${comment?.match(/\[%eval[^\]}]*\]/)?.[0] ?? ""}}`);
  const [found] = (await remembered("v1/games", { pgn: `${tags}\n\n${words.join(" ")} *\n`, ...named(), include: ["forecast"] })).games;
  if (found.error) throw Object.assign(new Error(found.error.detail), found.error);
  game().opening = found.opening;
  const answer = await end;
  if (of !== setting() || moves !== state.moves.join()) return false;
  noteEnd(state.moves, answer);
  const evaluated = found.moves.some(({ lost }) => typeof lost === "number");
  nodes.at(-1).review = { of, moments: found.moments, evaluated };
  found.moves.forEach((move, index) => {
    const { probability, rank, surprise } = move;
    Object.assign(nodes[index], { san: move.san, report: { of, probability, rank, surprise, score: whiteScore(move) } });
  });
  return true;
}

/** The game as a PGN; with the ratings that the sliders have, for the service to judge it by. */
export function pgn(rated = false) {
  return game().pgn(rated ? { WhiteElo: Math.round(state.white), BlackElo: Math.round(state.black) } : {});
}

/** The game of a text, or the position that it is: `{fen, moves, chess960}`. Throws the service's problem. */
export async function parsed(text, chess960) {
  let line = text.trim();
  const address = /^(?:https?:\/\/)?((?:[\w-]+\.)+[a-z]{2,})\/\S*$/i.exec(line);
  if (address) throw new Error(`This page cannot fetch a game from ${address[1]}. Copy its PGN there and paste it here.`);
  const fields = line.split(/\s+/);
  // As on lichess, a FEN may leave off what is usual: White to move, no castling, no en passant.
  if (/^[pnbrqk1-8]+(\/[pnbrqk1-8]+){7}$/i.test(fields[0]) && fields.length < 4) {
    line = [...fields, ...["w", "-", "-"].slice(fields.length - 1)].join(" ");
  }
  if (line === "startpos" || (/\//.test(line) && !/[\n[\].]/.test(line))) {
    const answer = await remembered("v1/policy", { fen: line, ...named(), ...(chess960 ? { chess960 } : {}) });
    return { fen: line === "startpos" ? line : answer.fen, moves: [], chess960 };
  }
  const [found] = await gamesOf(firstGame(text)?.text ?? text);
  if (found.error) throw Object.assign(new Error(found.error.detail), found.error);
  const { headers, tree: nodes } = found;
  const ratings = { white: ratingOf(headers.WhiteElo), black: ratingOf(headers.BlackElo) };
  return { fen: headers.FEN ?? "startpos", moves: found.moves.map((move) => move.uci), chess960: found.chess960, ratings, headers, nodes };
}

/** Games with variations; without them where those are too many or cannot be played. */
async function gamesOf(pgn) {
  const asked = { pgn, ...named() };
  try {
    const { games } = await remembered("v1/games", { ...asked, include: ["tree"] });
    if (!games.some((found) => found.error)) return games;
    const plain = (await remembered("v1/games", asked)).games;
    return games.map((found, index) => (found.error ? plain[index] : found));
  } catch (error) {
    if (error.status !== 413 && error.status !== 422) throw error;
    return (await remembered("v1/games", asked)).games;
  }
}

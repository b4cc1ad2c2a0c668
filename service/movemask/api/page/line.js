// The moves that were played and what the model thought of them, and positions and games as text.

import { remembered } from "./api.js";
import { state } from "./state.js";

let known = { of: "", reports: [] };

/** Everything that the reports depend on, besides the moves. */
const setting = () => JSON.stringify([state.fen, state.chess960, state.model, state.white, state.black]);

/** Reports of the line so far, as far as they are known; a move without one has only its UCI. */
export function reports() {
  const fits = known.of === setting();
  return state.moves.map((uci, index) => {
    const report = known.reports[index];
    if (report?.uci !== uci || known.fen !== state.fen) return { uci, san: uci };
    return fits ? report : { uci, san: report.san };
  });
}

/** Notes what an answer said of a move that is then played in its position. */
export function note(ply, move, rank) {
  const all = reports().slice(0, ply);
  known = { of: setting(), fen: state.fen, reports: [...all, { ...move, rank, surprise: -Math.log(move.probability) }] };
}

/** Asks the service for the reports that are missing; true if there were any. */
export async function complete() {
  if (!state.moves.length || reports().every((report) => report.surprise !== undefined)) return false;
  const of = setting(), moves = [...state.moves], fen = state.fen;
  const [game] = (await remembered("v1/games", { pgn: pgn(), ...named() })).games;
  if (game.error) throw Object.assign(new Error(game.error.detail), game.error);
  if (of !== setting() || moves.join() !== state.moves.join()) return false;
  known = { of, fen, reports: game.moves };
  return true;
}

const named = () => (state.model ? { model: state.model } : {});

/** The line as a PGN; the service reads moves in UCI too. */
function pgn() {
  const tags = { WhiteElo: Math.round(state.white), BlackElo: Math.round(state.black) };
  if (state.fen !== "startpos") Object.assign(tags, { SetUp: "1", FEN: state.fen });
  if (state.chess960) tags.Variant = "Chess960";
  const head = Object.entries(tags).map(([name, value]) => `[${name} "${value}"]`);
  return `${head.join("\n")}\n\n${state.moves.join(" ")} *\n`;
}

/** The games of a text, or the one position that it is: `{fen, moves, chess960, title}`. Throws the service's problem. */
export async function parsed(text, chess960) {
  const line = text.trim();
  if (line === "startpos" || /^[pnbrqk1-8]+(\/[pnbrqk1-8]+){7}(\s|$)/i.test(line) || (/\//.test(line) && !/[\n[\].]/.test(line))) {
    const answer = await remembered("v1/policy", { fen: line, ...named(), ...(chess960 ? { chess960 } : {}) });
    return [{ fen: line === "startpos" ? line : answer.fen, moves: [], chess960, title: "position" }];
  }
  const { games } = await remembered("v1/games", { pgn: text, ...named() });
  return games.map((game, index) => {
    if (game.error) return { error: Object.assign(new Error(game.error.detail), game.error), title: `${index + 1}: cannot be read` };
    const { headers } = game;
    const rating = (name) => (/^\d+$/.test(headers[name] ?? "") ? Number(headers[name]) : undefined);
    const title = `${index + 1}: ${headers.White ?? "?"} – ${headers.Black ?? "?"} ${headers.Result ?? ""}`;
    const ratings = { white: rating("WhiteElo"), black: rating("BlackElo") };
    return { fen: headers.FEN ?? "startpos", moves: game.moves.map((move) => move.uci), chess960: game.chess960, title, ratings };
  });
}

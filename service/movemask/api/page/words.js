// What is said of a position and of what went wrong, in a player's words.

import { percent } from "./dom.js";

const SIDES = { white: "White", black: "Black" };
const other = (side) => (side === "white" ? "black" : "white");

/** Whether the game is over, and its result: "1-0", "0-1", "1/2-1/2", or undefined. */
export function resultOf({ status, draw, turn }) {
  if (status === "checkmate") return turn === "white" ? "0-1" : "1-0";
  return status === "stalemate" || draw?.claimable === false ? "1/2-1/2" : undefined;
}

/** The state of the game in a sentence or two; with `likeliest`, what the model expects. `opponent` is the model's side. */
export function said(answer, { opponent, likeliest }) {
  const { status, turn } = answer, result = resultOf(answer);
  const reason = answer.draw?.reason.replaceAll("_", " ");
  const score = result?.replace("1/2-1/2", "½-½");
  if (status === "checkmate") {
    const yours = !opponent ? "" : opponent === turn ? " You win." : " The model wins.";
    return `Checkmate: ${SIDES[other(turn)]} wins, ${score}.${yours}`;
  }
  if (result) return `${status === "stalemate" ? "Stalemate" : `The game is over (${reason})`}: a draw, ${score}.`;
  const draw = reason ? ` A draw can be claimed: ${reason}.` : "";
  const moves = answer.moves.slice(0, 3).map((move) => `${move.san} ${percent(move.probability)}`).join(", ");
  return `${SIDES[turn]} to move.${draw}${likeliest ? ` Likeliest: ${moves}.` : ""}`;
}

/** What went wrong, for whoever sees it. */
export function wrong(error) {
  const { message, title } = error;
  if (error.name === "Error" && !title) return message; // ours
  if (/^pgn: (there is no game|game \d+: no moves$)/.test(message)) return "This is not a PGN: no moves found.";
  if (message.startsWith("pgn: ")) return `This PGN cannot be read: ${message.slice(5)}`;
  if (message.startsWith("fen: ")) return `This FEN cannot be read: ${message.slice(5)}`;
  return `${title ?? "Error in this page"}: ${message}`;
}

// What is said of a position and of what went wrong, in a player's words.

import { endingBy } from "./answer.js";
import { counted, percent } from "./dom.js";
import { SIDES, isYours, other, whyOf } from "./match.js";
import { firstPly, numbered } from "./tree.js";

/** A result as it is written for people. */
export const half = (result) => result.replace("1/2-1/2", "½-½");

/** A result and its reason in a sentence. */
export const over = (ending) => `${whyOf(ending)}, ${half(ending.result)}.`;

/** What is said of a game against the network that goes on; `behind` is how many moves the board is behind it. */
export function saidInGame(match, behind) {
  if (behind) return `You are looking back. The game is ${counted(behind, "move")} further on.`;
  const { moves, sans, you, remark, standing, premove } = match,
    yours = isYours(match);
  const mover = yours ? SIDES[other(you)] : "You";
  const last = moves.length ? `${mover} ${yours ? "plays" : "play"} ${sans.at(-1)}.` : `You play ${SIDES[you]}.`;
  const next = yours ? "Your turn." : "Your opponent is thinking.";
  const draw = yours && standing?.draw ? ` You can claim a draw ${whyOf({ result: "1/2-1/2", how: standing.draw }).slice(5)}.` : "";
  const ahead = premove ? ` Next: ${premove.text}, if it is legal.` : "";
  return `${last} ${next}${draw}${ahead}${remark && ` ${remark}`}`;
}

/** What is said of a position: the move that led to it, whose turn it is, and what is likeliest. `ending` is how the game of it ended. */
export function saidOf(answer, { last, ending }) {
  const before = last && `${last}: `,
    now = ending ?? endingBy(answer);
  if (now) return `${before}${over(now)}`;
  const reason = answer.draw?.reason;
  const draw = reason ? ` A draw can be claimed ${whyOf({ result: "1/2-1/2", how: reason }).slice(5)}.` : "";
  const moves = answer.moves
    .slice(0, 3)
    .map((move) => `${move.san} ${percent(move.probability)}`)
    .join(", ");
  return `${before}${SIDES[answer.turn]} to move.${draw}${moves && ` Likeliest: ${moves}.`}`;
}

/** What the service says of a FEN that cannot be read, or calls a position that cannot be, and what a player does. */
const FEN_FAULTS = {
  "expected 8 rows": "the board needs eight ranks with a / between them",
  "expected 8 columns": "each rank needs eight squares",
  "two subsequent digits": "two numbers stand side by side in a rank",
  "invalid character": "a letter of the board is no piece",
  "turn part": "after the board stands w or b, for the side to move",
  "castling part": "what may castle is written as K, Q, k and q, or as -",
  "en passant part": "the en passant square is written as e3, say, or as -",
  "invalid half-move clock": "the half-move clock is no number",
  "invalid fullmove number": "the move number is no number",

  EMPTY: "the board is empty",
  NO_WHITE_KING: "White has no king",
  NO_BLACK_KING: "Black has no king",
  TOO_MANY_KINGS: "a side has more than one king",
  TOO_MANY_WHITE_PAWNS: "White has more than eight pawns",
  TOO_MANY_BLACK_PAWNS: "Black has more than eight pawns",
  PAWNS_ON_BACKRANK: "a pawn stands on the first or the last rank",
  TOO_MANY_WHITE_PIECES: "White has more than 16 pieces",
  TOO_MANY_BLACK_PIECES: "Black has more than 16 pieces",
  BAD_CASTLING_RIGHTS: "king and rook do not stand where that castling needs them",
  INVALID_EP_SQUARE: "no pawn can have just passed the en passant square",
  OPPOSITE_CHECK: "the side that is not to move is in check",
  TOO_MANY_CHECKERS: "the king is in check from more than two pieces",
  IMPOSSIBLE_CHECK: "no last move can have given these checks",
};

/** What a detail of the service finds wrong with a FEN; "" if nothing of that. */
function fenFault(detail) {
  const faults = Object.keys(FEN_FAULTS).filter((term) => new RegExp(`\\b${term}\\b`).test(detail));
  return (faults.includes("EMPTY") ? ["EMPTY"] : faults).map((term) => FEN_FAULTS[term]).join(", and ");
}

/** What the service finds wrong in a PGN's first game, without the FEN and its parser's terms. */
export function pgnFault(detail) {
  const text = detail.replace(/^pgn: (game 1: )?/, "");
  const [, move, fault, place] = /^'(.+?)' (is .+?) in '.+', at (\w+'s move \d+)$/.exec(text) ?? [],
    wrongFen = fenFault(text);
  return place ? `${place}, ${move}, ${fault}` : wrongFen ? `in its FEN, ${wrongFen}` : text;
}

/** What was read otherwise than it stands in a PGN, in sentences. */
export const noted = (notes = []) =>
  notes.map((note) => `${note[0].toUpperCase()}${note.slice(1).replace(/ in '[^']+\/[^']+'/, "")}.`).join(" ");

/** The pieces of German, French and Spanish players in SAN; R, which is a king to the latter two, is read as a rook. */
const LETTERS = { S: "N", C: "N", L: "B", F: "B", A: "B", T: "R", D: "Q" };

/** A hint where a text has a move with the piece's letter in another language; "" elsewhere. */
export function inEnglish(text) {
  const [, piece, move] = /(?<![a-zA-Z])([SCLFATD])([a-h]?[1-8]?x?[a-h][1-8])/.exec(text) ?? [];
  return piece ? ` Pieces are written K, Q, R, B and N, as in English: ${piece}${move} is ${LETTERS[piece]}${move}.` : "";
}

/** What went wrong, for whoever sees it. */
export function wrong(error) {
  const { message, title, status } = error;
  if (error.name === "Error" && !title) return message; // ours
  if (status === 401 && message.endsWith("not valid")) return "This API key is not valid. Enter another.";
  if (status === 401) return "This service is open to those who have a key. Enter yours.";
  if (status === 403) return `Your key does not allow this: ${message}`;
  if (/^pgn: (there is no game|game \d+: no moves$)/.test(message)) return "This is neither a FEN nor a PGN.";
  if (message.startsWith("pgn: ")) return `This PGN cannot be read: ${pgnFault(message)}.${inEnglish(message)}`;
  const [, move, fault, fen] = /^moves\[\d+\]: '(.+)' (is .+) in '(.+)'$/.exec(message) ?? [];
  if (fen) return `This line cannot be played: ${numbered(firstPly(fen))} ${move} ${fault}.`;
  if (message.includes("is not a valid position")) return `This position cannot be: ${fenFault(message)}.`;
  if (message.startsWith("fen: ")) return `This FEN cannot be read: ${fenFault(message) || message.slice(5)}.`;
  return `${title ?? "Error in this page"}: ${message}`;
}

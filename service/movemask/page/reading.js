// A text that was pasted or opened, read by the service: a position, or a game with its variations.

import { remembered } from "./api.js";
import { ranksOf } from "./squares.js";
import { Tree, ratingOf } from "./tree.js";
import { pgnFault } from "./words.js";

/** The event that loads a text: the position or the game that it is. Throws the service's problem. */
export async function read(text, model, chess960 = false) {
  let line = fenIn(text) ?? text.trim();
  const address = /^(?:https?:\/\/)?((?:[\w-]+\.)+[a-z]{2,})\/\S*$/i.exec(line);
  if (address) throw new Error(`This page cannot fetch a game from ${address[1]}. ${howToCopy(address[1])}`);
  const fields = line.split(/\s+/);
  // As on lichess, a FEN may leave off what is usual: White to move, no castling, no en passant.
  if (/^[pnbrqk1-8]+(\/[pnbrqk1-8]+){7}$/i.test(fields[0]) && fields.length < 4) {
    line = [...fields, ...["w", "-", "-"].slice(fields.length - 1)].join(" ");
  }
  if (isPosition(line)) return position(line, model, chess960 || isChess960(line) || variantOf(text) === "chess960");
  const found = await gameOf(text, model);
  if (found.error) throw Object.assign(new Error(found.error.detail), found.error);
  const { headers, chess960: is960, tree: nodes } = found,
    tree = new Tree({ fen: headers.FEN, chess960: is960, headers, nodes });
  return {
    type: "load",
    tree,
    white: ratingOf(headers.WhiteElo),
    black: ratingOf(headers.BlackElo),
    notes: found.notes,
    you: headers.White === "You" ? "white" : headers.Black === "You" ? "black" : "",
  };
}

/** The steps to take a game from a site to this page. */
const howToCopy = (site) =>
  /(^|\.)lichess\.org$/i.test(site)
    ? "There, below the board, open “Share & export” and copy the PGN. Then paste it here."
    : /(^|\.)chess\.com$/i.test(site)
      ? "There, press “Share”, open “PGN” and copy it. Then paste it here."
      : "Copy its PGN there and paste it here.";

/** Whether a text is a position, not a game. */
export const isPosition = (text) =>
  text.trim() === "startpos" || fenIn(text) !== undefined || (/\//.test(text) && !/[\n[\].]/.test(text.trim()));

const FEN = /(?<!\w)([1-8pnbrqk]+(?:\/[1-8pnbrqk]+){7})[ _]+([wb])[ _]+(-|[a-z]+)[ _]+(-|[a-h][1-8])(?:[ _]+(\d+)[ _]+(\d+))?/i;

const PLAYED = ["standard", "fromposition", "chess960"]; // variants by their names in lichess's addresses, in small letters

/** The FEN in a line, such as an address or a FEN in quotation marks; undefined without one. Throws for an address of a variant. */
export function fenIn(text) {
  const line = text
    .trim()
    .replace(/%2F/gi, "/")
    .replace(/%20|\+/g, " ");
  const found = /[\n[]/.test(line) ? null : FEN.exec(line);
  if (!found) return undefined;
  const variant = variantOf(line);
  if (!PLAYED.includes(variant)) throw new Error(`This address is of ${variant}, which has other rules.`);
  // The service reads what follows a FEN, such as an EPD's operations.
  return found.index ? found.slice(1).filter(Boolean).join(" ") : line;
}

/** The variant that an address of lichess names. No variant's name could be a rank. */
const variantOf = (text) =>
  (/(?:\/(?:analysis|editor)\/|[?&#]variant=)(?![pnbrqk1-8]+\b)(\w+)/i.exec(text)?.[1] ?? "standard").toLowerCase();

/** The event that loads a position. Throws the service's problem. */
async function position(fen, model, chess960) {
  const answer = await remembered("v1/policy", { fen, ...(model ? { model } : {}), ...(chess960 ? { chess960 } : {}) });
  return { type: "load", tree: new Tree({ fen: fen === "startpos" ? fen : answer.fen, chess960 }) };
}

/** Whether a FEN is of Chess960: its rights to castle name files, or fit a king and a rook that are not where they usually stand. */
export function isChess960(fen) {
  const [, , rights = "-"] = fen.split(/\s+/),
    ranks = ranksOf(fen);
  return [...rights].some((letter) => {
    if (!"KQkq".includes(letter)) return /[a-h]/i.test(letter);
    const white = letter < "a",
      rank = ranks[white ? 7 : 0] ?? "";
    const king = rank.indexOf(white ? "K" : "k"),
      rook = white ? "R" : "r";
    const kingside = letter.toLowerCase() === "k";
    if (king === 4 && rank[kingside ? 7 : 0] === rook) return false;
    return king >= 0 && (kingside ? rank.lastIndexOf(rook) > king : rank.slice(0, king).includes(rook));
  });
}

/** The first game of a text with its variations; without them where those are too many or cannot be played. */
async function gameOf(pgn, model) {
  let fault;
  try {
    const { parts } = await remembered("v1/games/split", { pgn, include: ["tree", "partial"] }),
      { game } = parts.find((part) => part.game);
    if (!game.error) return game;
    fault = game.error.detail;
  } catch (error) {
    if (error.status !== 413 && error.status !== 422) throw error;
    fault = error.message;
  }
  const [found] = (await remembered("v1/games", { pgn, ...(model ? { model } : {}), include: ["partial"] })).games;
  if (found.error) return found;
  const notes = [...(found.notes ?? []), `the variations are left out: ${pgnFault(fault)}`];
  return { ...found, notes, tree: [{}, ...found.moves.map(({ uci, san }, parent) => ({ parent, uci, san }))] };
}

// Moves that are typed, in SAN or UCI.

/** The legal move that a text means, or undefined: as it stands, then without its marks, then in any case (bc3 may be a bishop's). */
export function matching(moves, text) {
  const bare = (san) => san.replace(/[+#x=]/g, "").replaceAll("0", "O"),
    plain = (san) => bare(san).toLowerCase();
  return (
    moves.find((one) => one.san === text || one.uci === text.toLowerCase()) ??
    moves.find((one) => bare(one.san) === bare(text)) ??
    moves.find((one) => plain(one.san) === plain(text))
  );
}

/** A text that could be a move in UCI, such as e7e8q; undefined for any other. */
export const uciOf = (text) => (/^[a-h][1-8][a-h][1-8][qrbn]?$/i.test(text) ? text.toLowerCase() : undefined);

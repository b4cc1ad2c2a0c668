// A PGN as the texts of its games, cut where the service ends a game, and what their headers say.

const BYTES_ALONE = /\.(zst|gz|bz2|xz|zip|7z|rar)$/i;

/**
 * The games of a text, one by one. As in python-chess, an empty line outside a comment ends the moves, and a second one
 * the headers; and as in `movemask audit`, a header that follows moves begins the next game.
 */
export function* split(text) {
  let begin = -1; // of the game that is read
  let moves = false, empty = false, inside = false; // its moves have begun; an empty line; a brace comment is open
  for (let at = 0, end; at < text.length; at = end) {
    end = text.indexOf("\n", at) + 1 || text.length;
    const line = text.slice(at, end).replace(begin < 0 ? /^\ufeff+/ : "", "");
    const blank = !line.trim(), aside = /^[%;]/.test(line), header = line.startsWith("[");
    if (begin < 0) {
      if (blank || aside) continue;
      begin = end - line.length;
    } else if (moves && !inside && header) {
      yield text.slice(begin, at);
      [begin, moves, empty] = [at, false, false];
    }
    if (!moves) {
      if (header || aside || (blank && !empty)) {
        empty = blank || (empty && aside);
        continue;
      }
      moves = !blank;
    }
    if (blank && !inside) {
      yield text.slice(begin, at);
      [begin, moves, empty] = [-1, false, false];
    } else if (inside || !line.startsWith("%")) inside = opened(line, inside);
  }
  if (begin >= 0) yield text.slice(begin);
}

/** Whether a brace comment is open at the end of a line of moves; braces after a semicolon do not count. */
function opened(line, inside) {
  for (const [mark] of line.matchAll(/[{};]/g)) {
    if (inside || mark === "{") inside = mark !== "}";
    else if (mark === ";") break;
  }
  return inside;
}

/** Whether a text has games at all: a header, or the number of a move. */
export const hasGames = (text) => /^\ufeff*\[\w+\s+"|\d\s*\./m.test(text);

/** Whether it has more than one. */
export function hasSeveral(text) {
  const [, second] = split(text);
  return second !== undefined && hasGames(text);
}

/** The headers of a game, by their names. */
export const headersOf = (pgn) =>
  Object.fromEntries([...pgn.matchAll(/^\[([A-Za-z0-9][\w+#=:-]*)\s+"(.*)"\s*\]\s*$/gm)].map(([, name, value]) => [name, value]));

/** The text of a file; in Windows' Western European encoding, as older PGN files are, where it is not UTF-8. */
export async function textOf(file) {
  if (BYTES_ALONE.test(file.name)) throw new Error(`${file.name} is compressed. Unpack it first: the page reads plain PGN.`);
  const bytes = await file.arrayBuffer();
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}

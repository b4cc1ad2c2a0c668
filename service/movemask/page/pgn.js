// A game as a PGN, with all its comments and variations.

import { firstPly, numbered } from "./tree.js";

const HEADERS = ["Event", "Site", "Date", "Round", "White", "Black", "Result"]; // of every PGN, in this order
export const PLAYER = "Player"; // what others read in place of "You"
const WIDTH = 80; // of a PGN's lines

/** The PGN of a tree; `headers` take the place of its own. `result` is how the main line ended on the board, if it did. */
export function pgnOf(tree, headers = {}, result = tree.headers.Result ?? "*") {
  const all = { ...tree.headers, ...headers, Result: result };
  if (tree.fen !== "startpos") Object.assign(all, { SetUp: "1", FEN: tree.fen });
  if (tree.chess960) all.Variant = "Chess960";
  const names = [...HEADERS, ...Object.keys(all).filter((name) => !HEADERS.includes(name))];
  const tags = names.map((name) => `[${name} "${escaped(all[name] ?? (name === "Date" ? "????.??.??" : "?"))}"]`);
  const words = [...noted(tree.nodes[0].comment), ...written(tree, 0, firstPly(tree.fen)), all.Result];
  return `${tags.join("\n")}\n\n${wrapped(words)}\n`;
}

/** A PGN for others: whoever plays here has the name that a link gives. */
export const shared = (pgn) => pgn.replace(/^(\[(?:White|Black) )"You"\]$/gm, `$1"${PLAYER}"]`);

/** A tag's value as it is written between quotation marks. */
const escaped = (value) => String(value).replace(/[\\"]/g, "\\$&");

const noted = (comment) => (comment ? [`{ ${comment.replaceAll("}", ")")} }`] : []);

/** The words of the moves after a node, with variations behind the moves that they replace. */
function written(tree, index, ply, number = true) {
  const words = [];
  for (; tree.children(index).length; index = tree.children(index)[0], ply++) {
    const [main, ...others] = tree.children(index).map((child) => tree.nodes[child]);
    const move = (one, always) => [
      ...(always || ply % 2 === 0 ? [numbered(ply, "...")] : []),
      one.san,
      ...(one.nags ?? []).map((nag) => `$${nag}`),
      ...noted(one.comment),
    ];
    words.push(...move(main, number));
    for (const [place, other] of others.entries()) {
      const child = tree.children(index)[place + 1];
      const inner = [...noted(other.before), ...move(other, true), ...written(tree, child, ply + 1, Boolean(other.comment))];
      words.push(`(${inner.shift()}`, ...inner);
      words[words.length - 1] += ")";
    }
    number = Boolean(main.comment) || others.length > 0;
  }
  return words;
}

/** Lines of words; a comment is one word, as a break would be part of it. */
function wrapped(words) {
  const lines = [""];
  for (const word of words) {
    const line = lines.at(-1);
    if (line && line.length + 1 + word.length > WIDTH) lines.push(word);
    else lines[lines.length - 1] = line ? `${line} ${word}` : word;
  }
  return lines.join("\n");
}

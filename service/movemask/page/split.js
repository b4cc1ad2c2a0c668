// The games of a PGN, their tags, and the text that stands outside games. A copy of the service's board/split.py, whose
// rules it follows name by name; tests/page/test_split.py compares both.

const S = `\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000-\u200f\u2028\u2029\u202f\u205f\u2060\u3000\ufeff`;
const LETTER = "[A-Za-z\\u00c0-\\u1fff\\u2654-\\u265f\\u2c00-\\ud7ff\\uf900-\\ufefe\\uff10-\\uffdc\\u{10000}-\\u{10ffff}]";
const Q = '"\u201c\u201d\u201e';
const D = "[\\-\u2010-\u2013\u2212]";
const RESULT = `(?:1${D}0|0${D}1|1/2${D}1/2|\u00bd(?:${D}\u00bd)?|\\*)`;
const MOVE = `(?:${LETTER}{0,2}[a-h]?[1-8]?(?:${D}|[x:\u00d7])?[a-h][1-8]|[O0o]${D}[O0o])`;
const NULL_MOVE = "(?:--|Z0|0000|)";
const BESIDE = "[0-9A-Za-z/*\u00bd\u2010-\u2013\u2212\\-]";
const IN_NAME = `[^${S}${Q}\\\\\\[\\]{}();]`;
const NAME = `[A-Za-z0-9_\\u00c0-\\uffdc]${IN_NAME}*(?:[${S}]+${IN_NAME}+){0,4}`;

const at = (pattern) => new RegExp(pattern, "uy"); // what stands at a place
const from = (pattern) => new RegExp(pattern, "ug"); // what comes next
const all = (pattern) => new RegExp(`^(?:${pattern})$`, "u");

const START = at(
  `(?<aside>\\((?=[${S}(]*(?:\\{|[0-9]{1,4}[${S}.\u2026]*(?:${MOVE}|${NULL_MOVE})|${MOVE}))|\\$[0-9]+)` +
    `|(?<result>${RESULT}(?!${BESIDE}))` +
    `|(?!(?:[0-9]{1,4}\\.?[${S}]+)?[^${S}/]*/[^${S}/]*/)` +
    `(?:(?<number>[0-9]{1,4})(?<dots>[${S}.\u2026]*)(?:${MOVE}|${NULL_MOVE})|${MOVE}` +
    `|(?<alone>[0-9]{1,4})(?<after>[${S}]*[.\u2026][${S}.\u2026]*)(?:$|[{;$(]))`,
);
const FIRST_MOVE = at(`[${S}]*1[${S}]*\\.[${S}]*(?![${S}.\u2026])`);
const MARK = from(`[\\[{;()]|${RESULT}`);
const WORD_END = new RegExp(`^${BESIDE}`);
const OPEN = at(`\\[[${S}]*(${NAME})[${S}]*[${Q}]`);
const HALF_OPEN = at(`\\[[${S}]*(?:${NAME}[${S}]*)?$`);
const BARE = at(`\\[[${S}]*([A-Za-z0-9_]+)(?:[${S}:=]+([^${S}:=${Q}\\[\\]][^${Q}\\[\\]]*)?)?\\](?=[${S}]*(?:$|\\[))`);
const CLOSE = at(`[${Q}][${S}]*\\]`);
const VALUE_END = from(`\\\\[\\s\\S]|[${Q}][${S}]*\\]|\\[`);
const BEFORE = `(?=[${S}]*(?:$|\\[|[0-9]+[${S}]*\\.))`;
const DAMAGED_END = from(`[${Q}][${S}]*\\]${BEFORE}|[\\]${Q}]${BEFORE}|$`);
const ESCAPE = /\\(["\\])/g;
const SPACE = at(`[${S}\`\\x00\\x1a]*`);
const SPACES = from(`[${S}]+`);
const WORD = from(`[^${S}]+`);
const TEXT = new RegExp(`[0-9]|${LETTER}`, "u");
const A_LETTER = new RegExp(LETTER, "u");
const WHITE = all(`[${S}]`);
const FENCE = all(`[${S}>]*(?:(?:\`\`\`+|~~~+)[${S}]*(?:[A-Za-z]+[${S}]*)?|\\*[${S}]*\\*[${S}]*\\*[${S}*]*)`);
const QUOTED = at(`(?:[${S}]*>)+`);
const TAG_LINES = 4,
  SHOWN = 40;
const KNOWN = new Map(
  [
    "Event",
    "Site",
    "Date",
    "Round",
    "White",
    "Black",
    "Result",
    "WhiteElo",
    "BlackElo",
    "SetUp",
    "FEN",
    "Variant",
    "ECO",
    "Opening",
    "UTCDate",
  ].map((name) => [name.toLowerCase(), name]),
);

/** A game, or text outside games, while it is read. */
class Piece {
  line = 0; // of its beginning
  raw = [];
  tags = new Map();
  moves = []; // the parts of each line
  movesLine = 0;
  unread = null; // line and text of the first word that is neither tag nor move
  begun = false; // its movetext has a move, a result or a glyph
  fromOne = false; // its first move has number 1
  ended = 0; // line of its result
  blank = false; // an empty line has followed the moves or, before them, the tags

  add(number, text) {
    if (!this.moves.length) this.movesLine = number;
    this.line ||= number;
    while (this.moves.length <= number - this.movesLine) this.moves.push([]);
    this.moves[number - this.movesLine].push(text);
  }

  take(other) {
    other.moves.forEach((parts, index) => parts.forEach((text) => this.add(other.movesLine + index, text)));
    for (const text of other.raw) this.raw.push(text);
    this.unread ??= other.unread;
  }
}

class Splitter {
  found = [];
  #number = 0;
  #here = new Piece();
  #held = null; // the game in front of `here`, as long as this may turn out to continue it
  #depth = 0; // of variations
  #comment = ""; // the beginning of the brace comment that is open
  #quoted = false; // it began in a quoted line
  #line = ""; // the current line as it is read, and as it is written; both have the same length
  #raw = "";
  #from = 0; // where in the line `here` begins
  #lines;

  constructor(text) {
    this.#lines = text.replace(/\r\n?/g, "\n").split("\n");
    if (this.#lines.at(-1) === "") this.#lines.pop();
    else this.cut = true; // the last line has no end
  }

  /** Reads a line, and the lines over which a tag in it is spread. At the end of the text, false. */
  read() {
    if (this.#number === this.#lines.length) {
      this.#finish(this.#held);
      this.#finish(this.#here, true);
      return false;
    }
    this.#raw = this.#line = this.#lines[this.#number++];
    this.#from = 0;
    if (this.#comment) {
      if (this.#quoted) this.#line = unquoted(this.#raw);
      this.#scan();
    } else if (!this.#raw.startsWith("%") && !FENCE.test(this.#raw)) {
      this.#line = unquoted(this.#raw);
      if (endOf(SPACE, this.#line, 0) === this.#line.length) this.#here.blank = this.#here.begun || this.#here.tags.size > 0;
      else this.#scan();
    }
    this.#here.raw.push(this.#raw.slice(this.#from), this.cut && this.#number === this.#lines.length ? "" : "\n");
    return true;
  }

  #scan() {
    const counted = this.#running && this.#here.fromOne && !(this.#comment || this.#depth);
    if (counted && match(FIRST_MOVE, this.#line, 0)) {
      // a list with a game per line
      this.#nextPiece(0);
      this.#here.begun = this.#here.fromOne = true;
    }
    for (let place = 0; place < this.#line.length; ) place = this.#token(place);
  }

  get #running() {
    const here = this.#here;
    return here.begun && !here.blank && (!here.ended || this.#depth > 0);
  }

  #token(place) {
    const line = this.#line,
      running = this.#running;
    if (this.#comment) {
      const end = line.indexOf("}", place);
      if (end >= 0) this.#comment = "";
      return this.#add(place, end < 0 ? line.length : end + 1);
    }
    let found = null;
    if (running) {
      found = match(MARK, line, place);
      this.#add(place, found ? found.index : line.length);
      if (!found) return line.length;
      place = found.index;
    } else {
      const end = endOf(SPACE, line, place);
      if (this.#here.begun && !this.#here.blank) this.#add(place, end);
      place = end;
      if (place === line.length) return place;
    }
    const mark = line[place];
    if (mark === "[") {
      const end = this.#tag(place, running);
      if (end) return end;
    }
    if (mark === "{" || mark === ";") {
      if (this.#here.begun && this.#here.blank) this.#nextPiece(place, true);
      if (mark === ";") return this.#add(place, line.length);
      this.#comment = trimmed(shown(line.slice(place)), false);
      this.#quoted = this.#line !== this.#raw;
      return this.#add(place, place + 1);
    }
    if (!found) return this.#begin(place);
    if (mark === "(") this.#depth++;
    else if (mark === ")") this.#depth = Math.max(0, this.#depth - 1);
    else if (mark !== "[" && !this.#depth && this.#standsAlone(found)) this.#here.ended = this.#number;
    return this.#add(place, place + found[0].length);
  }

  #add(place, end) {
    if (end > place) this.#here.add(this.#number, this.#line.slice(place, end));
    return end;
  }

  #standsAlone({ 0: result, index }) {
    const before = this.#line[index - 1] ?? "",
      after = this.#line[index + result.length] ?? "";
    return result === "*" ? before !== "*" && after !== "*" : !WORD_END.test(before) && !WORD_END.test(after);
  }

  #begin(place) {
    const found = match(START, this.#line, place);
    if (!found) return this.#outside(place);
    const { aside, number, alone } = found.groups;
    const before = this.#held ?? (this.#here.begun ? this.#here : null);
    if (before && this.#continues(before, found.groups)) {
      if (this.#held) {
        this.#held.take(this.#here);
        [this.#here, this.#held] = [this.#held, null];
      }
      if (!aside) before.ended = 0;
    } else {
      if (this.#here.begun || (this.#here.unread && !this.#here.tags.size)) this.#nextPiece(place);
      this.#finish(this.#held);
      [this.#held, this.#depth] = [null, 0];
    }
    const here = this.#here;
    here.blank = false;
    if (!here.begun) {
      here.begun = true;
      here.fromOne = (number ?? alone) === "1" && dots(found.groups) < 2;
    }
    if (!aside) return place;
    if (aside === "(") this.#depth++;
    return this.#add(place, place + aside.length);
  }

  #continues(game, groups) {
    if (groups.aside) return true;
    const number = groups.number ?? groups.alone;
    if (number || groups.result) return !(number && Number(number) <= 1 && dots(groups) < 2) && !(game.ended && game.blank);
    return game.ended ? game.ended === this.#number : game.tags.size > 0 || this.#depth > 0;
  }

  #outside(place) {
    const line = this.#line;
    let end = line.indexOf("[", place + 1);
    while (end >= 0 && !match(OPEN, line, end)) end = line.indexOf("[", end + 1);
    if (end < 0) end = line.length;
    const text = line.slice(place, end);
    if (TEXT.test(text)) {
      if (this.#here.begun) this.#nextPiece(place, true);
      const words = text.match(WORD);
      this.#here.unread ??= [this.#number, shown(words.find((word) => A_LETTER.test(word)) ?? words[0])];
      this.#here.line ||= this.#number;
    }
    return end;
  }

  #tag(place, running) {
    const line = this.#line,
      number = this.#number,
      found = match(OPEN, line, place);
    const bare = found || running ? null : match(BARE, line, place);
    if (bare && (KNOWN.has(bare[1].toLowerCase()) || (this.#here.tags.size && !this.#here.begun))) {
      this.#beginTag(place, number, bare[1], trimmed(bare[2] ?? ""));
      return place + bare[0].length;
    }
    if (!found && !match(HALF_OPEN, line, place)) return 0;
    let name = "",
      value = "",
      end = -1,
      following = line.length;
    if (found) {
      name = found[1];
      [end, following] = valueEnd(line, place + found[0].length);
    }
    const spread = end < 0 && following === line.length && this.#spread(place);
    if (spread) {
      place = 0;
      [name, value, following] = spread;
    } else if (!found) return 0;
    else if (end < 0) {
      const text = line.slice(place + found[0].length, following),
        damaged = match(DAMAGED_END, text, 0);
      value = trimmed(text.slice(0, damaged.index));
      following += damaged.index + damaged[0].length - text.length;
    } else value = line.slice(place + found[0].length, end);
    this.#beginTag(place, number, name.replace(SPACES, " "), value.replace(ESCAPE, "$1"));
    return following;
  }

  #spread(place) {
    let line = this.#line.slice(place),
      raw = this.#raw.slice(place);
    const valueClosed = match(OPEN, line, 0) && Q.includes(trimmed(line, false).at(-1));
    for (let count = 1; count < TAG_LINES; count++) {
      const written = this.#lines[this.#number + count - 1];
      if (written === undefined) return null;
      const text = unquoted(written),
        start = endOf(SPACE, text, 0);
      if (start === text.length || text[0] === "%" || "[{;".includes(text[start]) || match(START, text, start)) return null;
      if (count === 1 && valueClosed && text[start] !== "]") return null;
      line += `\n${text}`;
      raw += `\n${written}`;
      const found = match(OPEN, line, 0);
      const [end, following] = found ? valueEnd(line, found[0].length) : [-1];
      if (end < 0) continue;
      this.#here.raw.push(this.#raw.slice(this.#from, place));
      [this.#line, this.#raw, this.#from] = [line, raw, 0];
      this.#number += count;
      return [found[1], line.slice(found[0].length, end).replace(SPACES, " "), following];
    }
    return null;
  }

  #beginTag(place, number, name, value) {
    const known = KNOWN.get(name.replace(/[ :=]+$/, "").toLowerCase()) ?? name,
      { tags, begun, blank, unread } = this.#here;
    const again = tags.has(known) && (blank || (tags.size > 1 && known === tags.keys().next().value));
    if (begun || again || (unread && !tags.size)) this.#nextPiece(place);
    this.#finish(this.#held);
    this.#held = null;
    const here = this.#here;
    here.blank = false;
    here.line ||= number;
    here.tags.set(here.tags.has(known) ? name : known, value);
    this.#depth = 0;
  }

  #nextPiece(place, hold = false) {
    this.#here.raw.push(this.#raw.slice(this.#from, place));
    this.#from = place;
    if (hold) this.#held = this.#here;
    else {
      this.#finish(this.#held);
      this.#held = null;
      this.#finish(this.#here);
      this.#depth = 0;
    }
    this.#here = new Piece();
  }

  #finish(piece, last = false) {
    if (!piece || !(piece.tags.size || piece.begun || piece.unread || piece.moves.length)) return;
    const { line, tags, moves, movesLine, unread } = piece;
    const kind = tags.size || piece.begun ? "game" : last ? "trailing" : "outside";
    this.found.push({
      kind,
      line,
      text: piece.raw.join(""),
      tags,
      unread,
      movesLine,
      movetext: moves.map((parts) => parts.join("")).join("\n"),
      unclosed: (last && this.#comment) || null,
    });
  }
}

/**
 * The games of a text in order, with the text outside them: `{kind, line, text, tags, movetext, movesLine, unread,
 * unclosed}`. `kind` is "game", "outside" or, after the last game, "trailing"; `tags` is a Map without escapes.
 */
export function* split(text) {
  const splitter = new Splitter(text);
  while (splitter.read()) yield* splitter.found.splice(0);
  yield* splitter.found;
}

function match(pattern, text, place) {
  pattern.lastIndex = place;
  return pattern.exec(text);
}

const endOf = (pattern, text, place) => place + (match(pattern, text, place)?.[0].length ?? 0);

function valueEnd(line, place) {
  for (let found; (found = match(VALUE_END, line, place)); place = found.index + found[0].length) {
    if (found[0] === "[") {
      const tag = match(OPEN, line, found.index);
      if (tag && !match(CLOSE, line, found.index + tag[0].length - 1)) return [-1, found.index];
    } else if (found[0][0] !== "\\") return [found.index, found.index + found[0].length];
  }
  return [-1, line.length];
}

const dots = ({ dots, after }) => [...(dots ?? after ?? "")].reduce((sum, mark) => sum + ({ ".": 1, "\u2026": 3 }[mark] ?? 0), 0);

const shown = (text) => [...text.slice(0, 2 * SHOWN)].slice(0, SHOWN).join("");

/** A text without white space at its end and, unless `both` is false, at its beginning. A pattern would take quadratic time. */
function trimmed(text, both = true) {
  let begin = 0,
    end = text.length;
  while (end > begin && WHITE.test(text[end - 1])) end--;
  while (both && begin < end && WHITE.test(text[begin])) begin++;
  return text.slice(begin, end);
}

function unquoted(line) {
  const end = endOf(QUOTED, line, 0);
  return " ".repeat(end) + line.slice(end);
}

/** The first game of a text, as it stands there; undefined if there is none. */
export function firstGame(text) {
  for (const piece of split(text)) if (piece.kind === "game") return piece;
}

/** Whether it has more than one. */
export function hasSeveral(text) {
  let games = 0;
  for (const { kind } of split(text)) if (kind === "game" && ++games > 1) return true;
  return false;
}

/** The tags of a game, by their names. */
export const headersOf = (pgn) => Object.fromEntries(firstGame(pgn)?.tags ?? []);

/** A tag's value as it is written between quotation marks. */
export const escaped = (value) => String(value).replace(/[\\"]/g, "\\$&");

/** The rating that a tag gives; undefined for what is not a whole number from 100 to 4000, such as "?" and "0". */
export const ratingOf = (value) => (/^\d{3,4}$/.test(value ?? "") && value >= 100 && value <= 4000 ? Number(value) : undefined);

const PACKED = [
  // by their first bytes
  ["a zip archive", /^PK(\x03\x04|\x05\x06)/],
  ["compressed (gzip)", /^\x1f\x8b/],
  ["compressed (zstandard)", /^(\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18)/],
  ["compressed (bzip2)", /^BZh[1-9]1AY&SY/],
  ["compressed (xz)", /^\xfd7zXZ\0/],
  ["a 7z archive", /^7z\xbc\xaf\x27\x1c/],
  ["a rar archive", /^Rar!\x1a\x07/],
];

/**
 * The text of a file. UTF-16 begins with its mark, or has zeros in every other byte. Of other text, a line is UTF-8 if all
 * of it is valid, or else Windows-1252, as older files are. A file that was joined from both keeps both.
 * board/textfile.py does the same.
 */
export async function textOf(file) {
  const bytes = new Uint8Array(await file.arrayBuffer()),
    head = String.fromCharCode(...bytes.subarray(0, 16));
  const packed = PACKED.find(([, magic]) => /** @type {RegExp} */ (magic).test(head));
  if (packed) throw new Error(`${file.name} is ${packed[0]}. Unpack it first: the page reads plain PGN.`);
  const wide = /^(\xff\xfe|([^\0]\0){4,8}$)/.test(head) ? "utf-16le" : /^(\xfe\xff|(\0[^\0]){4,8}$)/.test(head) ? "utf-16be" : null;
  if (wide) return new TextDecoder(wide).decode(bytes);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return lineByLine(bytes);
  }
}

function lineByLine(bytes) {
  const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }),
    windows = new TextDecoder("windows-1252"),
    lines = [];
  for (let begin = 0, end; begin < bytes.length; begin = end) {
    end = begin;
    while (end < bytes.length && bytes[end] !== 10 && bytes[end] !== 13) end++;
    const line = bytes.subarray(begin, ++end);
    try {
      lines.push(utf8.decode(line));
    } catch {
      lines.push(windows.decode(line));
    }
  }
  return lines.join("");
}

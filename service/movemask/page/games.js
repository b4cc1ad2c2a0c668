// The games of a text: the service says where each begins and ends.

import { call } from "./api.js";

const PIECE = 250_000; // characters that are sent at once, in whole lines; a game may be twice as long
const PACKED = /\.(gz|zst|zip|bz2|xz|7z|rar)$/i;

/**
 * The games of a text and the text outside them, in order: `{role, line, text, tags}`.
 * `waits` gets an error of the service: a promise that resolves when it is to be asked again, or undefined.
 */
export async function partsOf(text, waits) {
  const whole = text.replace(/\r\n?/g, "\n"),
    parts = [];
  let rest = "", // what may go on in the next piece
    line = 0; // lines before it
  for (let place = 0; place < whole.length; ) {
    const end = place + PIECE < whole.length ? whole.indexOf("\n", place + PIECE) + 1 || whole.length : whole.length;
    const found = (await answered({ pgn: rest + whole.slice(place, end) }, waits)).parts;
    place = end;
    const last = place < whole.length ? found.pop() : undefined;
    for (const part of found) parts.push({ ...part, line: part.line + line });
    rest = last?.text ?? "";
    line += last ? last.line - 1 : 0;
  }
  return parts;
}

async function answered(body, waits) {
  for (;;) {
    try {
      return await call("v1/games/split", body);
    } catch (error) {
      const again = waits(error);
      if (!again) throw error;
      await again;
    }
  }
}

/** The text of a file: UTF-8, or Windows-1252 where a line is not, as in older files. */
export async function textOf(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  if (PACKED.test(file.name)) throw new Error(`${file.name} is compressed. Unpack it first: the page reads plain PGN.`);
  const utf8 = new TextDecoder("utf-8", { fatal: true }),
    windows = new TextDecoder("windows-1252"),
    lines = [];
  for (let begin = 0, end; begin < bytes.length; begin = end) {
    end = bytes.indexOf(10, begin) + 1 || bytes.length;
    const line = bytes.subarray(begin, end);
    try {
      lines.push(utf8.decode(line));
    } catch {
      lines.push(windows.decode(line));
    }
  }
  return lines.join("");
}

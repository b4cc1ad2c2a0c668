// Texts and files that come to the page: pasted, dropped, chosen or typed into a form.

import { byId } from "./dom.js";
import { partsOf, textOf } from "./games.js";
import { isPosition } from "./reading.js";

const LONG = 50_000; // characters of a pasted text that browsers take minutes to show in a field

/**
 * Listens for texts. `one` is given a position or a game for the board, `several` the parts of a text of many for the list,
 * and what tells whether it is still the newest; `arrives` is told that something comes to the board, and gives that;
 * `listing` says whether all go to the list; `attempt` wraps what an event does, and tells what it throws; `notices` are told
 * of waits.
 */
export function listenForTexts({ arrives, one, several, listing, attempt, notices }) {
  /** The parts of a text, once the service has answered. */
  async function parted(text) {
    const parts = await partsOf(text, (error) => {
      if (!(error.retryAfter || error.status === 401)) return undefined;
      return new Promise((again) => notices.tell("splitting", error, again));
    });
    notices.clear("splitting");
    return parts;
  }

  async function bring(text) {
    if (!text.trim()) throw new Error("Nothing to load: paste a FEN or a PGN first.");
    if (isPosition(text)) return await one(text);
    const newest = arrives(),
      parts = await parted(text),
      games = parts.filter(({ role }) => role === "game").length;
    if (listing() || games > 1) await several(parts, newest);
    else if (newest()) await one(text);
  }

  async function bringFiles(files) {
    const all = [...files],
      newest = all.length > 1 ? arrives() : null;
    for (const file of all) await (newest ? several(await parted(await textOf(file)), newest) : bring(await textOf(file)));
  }

  const entered = (field) =>
    attempt(async (event) => {
      event.preventDefault();
      await bring(byId(field).value);
      if (listing()) byId(field).value = "";
    });

  byId("paste-form").addEventListener("submit", entered("paste"));
  byId("library-form").addEventListener("submit", entered("library-paste"));
  for (const field of ["library-files", "paste-files"]) {
    byId(field).addEventListener(
      "change",
      attempt(async ({ target }) => {
        await bringFiles(target.files);
        target.value = "";
      }),
    );
  }
  addEventListener(
    "paste",
    attempt(async (event) => {
      const text = event.clipboardData.getData("text");
      if (text.length < LONG && event.target.closest("input, textarea")) return;
      event.preventDefault();
      await bring(text);
    }),
  );
  for (const type of ["dragover", "drop"]) {
    addEventListener(
      type,
      attempt(async (event) => {
        if (!event.dataTransfer.types.includes("Files")) return; // a text goes where texts go
        event.preventDefault();
        if (type === "drop") await bringFiles(event.dataTransfer.files);
      }),
    );
  }
}

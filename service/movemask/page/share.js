// Taking a game away: the position and the game, copied or as files.

import { call, hasKey } from "./api.js";

const SHOWN_FOR = 1500; // ms that a button says what it did
const PGN = "application/x-chess-pgn";

/**
 * What the buttons do, by their id. `shown` gives the answer on the board, `pgn` the game, once its moves
 * have names, with the ratings of the sliders if asked, `headers` those of the game, `model` what a request
 * says of the model.
 */
export function shares({ shown, pgn, headers, model }) {
  const copyPgn = async ({ currentTarget }) => copied(currentTarget, await pgn());
  return {
    "copy-link": ({ currentTarget }) => copied(currentTarget, location.href),
    "copy-fen": ({ currentTarget }) => copied(currentTarget, shown().fen),
    "copy-curl": ({ currentTarget }) => copied(currentTarget, document.getElementById("curl").textContent),
    "copy-pgn": copyPgn,
    "copy-played": copyPgn,
    "save-pgn": async () => save("game.pgn", PGN, await pgn()),
    async "save-annotated"({ currentTarget }) {
      const name = currentTarget.textContent,
        tags = headers();
      Object.assign(currentTarget, { disabled: true, textContent: "Being written…" });
      try {
        const text = await call("v1/games", { pgn: await pgn(true), ...model(), include: ["evaluations", "reasons"] }, PGN);
        save("annotated.pgn", PGN, own(text, tags));
      } finally {
        Object.assign(currentTarget, { disabled: false, textContent: name });
      }
    },
  };
}

/** The command that sends a request; the key stands in a variable of the shell. */
export const curlOf = (path, body) =>
  [
    `curl -s ${new URL(path, document.baseURI)}`,
    ...(hasKey() ? ['-H "Authorization: Bearer $KEY"'] : []),
    "-H 'Content-Type: application/json'",
    `-d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`,
  ].join(" \\\n  ");

/** An annotated PGN with the ratings of the game in place of the sliders', which the service judged it by. */
const own = (pgn, headers) =>
  pgn.replace(/^\[(WhiteElo|BlackElo) ".*\n/gm, (_, name) => (headers[name] ? `[${name} "${headers[name]}"]\n` : ""));

async function copied(button, text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    older(text); // without https, a browser allows only this
  }
  const name = button.textContent;
  if (name === "Copied") return;
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = name), SHOWN_FOR);
}

function older(text) {
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  if (!done) throw new Error("The browser does not allow this page to copy.");
}

/** Has the browser download a text. */
export function save(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

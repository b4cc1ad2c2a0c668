// Taking a game away: the position, the game and the board, copied or as files.

import { call } from "./api.js";
import { pieces, picture } from "./squares.js";

const SHOWN_FOR = 1500; // ms that a button says what it did
const PGN = "application/x-chess-pgn";

/**
 * What the buttons do, by their id. `shown` gives the answer and the arrows on the board, `pgn` the game, once its moves
 * have names, with the ratings of the sliders if asked, `model` what a request says of the model; `report` is told of errors.
 */
export function shares({ shown, pgn, model, report }) {
  const ways = {
    "copy-link": (button) => copied(button, location.href),
    "copy-fen": (button) => copied(button, shown().answer.fen),
    "copy-pgn": async (button) => copied(button, await pgn()),
    "copy-played": async (button) => copied(button, await pgn()),
    "save-pgn": async () => save("game.pgn", PGN, await pgn()),
    "save-annotated": async () => save("annotated.pgn", PGN, await call("v1/games", { pgn: await pgn(true), ...model() }, PGN)),
    "save-board": async () => save("board.svg", "image/svg+xml", await board(shown())),
  };
  return Object.entries(ways).map(([id, does]) => [id, async (event) => {
    try {
      await does(event.currentTarget);
    } catch (error) {
      report(error);
    }
  }]);
}

/** The board with its arrows as a picture that needs nothing else. */
async function board({ answer, arrows, flip }) {
  const drawn = picture(answer.fen, { arrows, flip, label: answer.fen });
  const sprite = await (await fetch(pieces)).text();
  const colours = getComputedStyle(document.documentElement);
  const rules = [["light", "--light"], ["dark", "--dark"]].map(([name, colour]) => `.${name}{fill:${colours.getPropertyValue(colour)}}`);
  rules.push(".arrow path{fill:none;stroke:#155a9c}.arrow .head{fill:#155a9c;stroke:none}",
    ".illegal path{stroke:#c01818}.illegal .head{fill:#c01818}.arrow text{font:bold .27px sans-serif;fill:#8c0f0f}");
  const inner = `<style>${rules.join("")}</style><defs>${sprite.match(/<symbol[^]*<\/symbol>/)[0]}</defs>`;
  drawn.setAttribute("width", 720);
  drawn.setAttribute("height", 720);
  return new XMLSerializer().serializeToString(drawn).replaceAll(pieces, "").replace(">", `>${inner}`);
}

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

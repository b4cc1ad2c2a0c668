// The choice of a promotion, asked on the board, from the square of the promotion towards the middle.

import { button, byId } from "./dom.js";
import { drawing, pieceName } from "./squares.js";

const PIECES = "qnrb"; // the queen on the square itself

/** The move that the player picks among those of the answer; undefined if none. */
export function promoted(moves, square) {
  const dialog = byId("promotion");
  const by = new Map(moves.map((move) => [move.uci.slice(4), move]));
  const colour = moves[0].uci[3] === "8" ? "w" : "b";
  const box = square.getBoundingClientRect();
  const upwards = !square.closest(".rank").nextElementSibling.classList.contains("rank"); // the last rank that is seen
  let pressed = false; // the tap that opens the dialog ends with a click, on whatever is under the finger by then
  dialog.onpointerdown = () => (pressed = true);
  const isMeant = (event) => pressed || event.detail === 0; // 0: by the keyboard
  const letters = [...PIECES].filter((letter) => by.has(letter));
  dialog.replaceChildren(
    ...(upwards ? letters.toReversed() : letters).map((letter) => {
      const piece = colour + letter;
      const shown = { className: "piece-choice", "aria-label": pieceName(piece), autofocus: letter === letters[0] };
      return button((event) => isMeant(event) && dialog.close(letter), shown, drawing(piece));
    }),
  );
  dialog.style.setProperty("--square", `${box.width}px`);
  dialog.style.left = `${box.left}px`;
  dialog.style.top = `${upwards ? box.bottom - letters.length * box.height : box.top}px`;
  dialog.onclick = (event) => event.target === dialog && isMeant(event) && dialog.close();
  dialog.returnValue = "";
  return new Promise((resolve) => {
    const leave = () => dialog.close();
    addEventListener("resize", leave, { once: true }); // the square is elsewhere then
    dialog.addEventListener(
      "close",
      () => {
        removeEventListener("resize", leave);
        resolve(by.get(dialog.returnValue));
      },
      { once: true },
    );
    dialog.showModal();
  });
}

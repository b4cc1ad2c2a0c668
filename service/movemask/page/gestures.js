// Steps through the game by the wheel over the board, and by a swipe beside the pieces.

import { byId } from "./dom.js";

const NOTCH = 60; // px that a wheel turns at least
const FLICK = 300; // ms without a turn that end a trackpad's flick
const SWIPE = 40; // px that a finger goes at least

/** `step` gets 1 or -1; `swipes` says whether a swipe is a step now. */
export function listenToGestures(step, swipes) {
  let rolled = -Infinity; // when the wheel turned last
  byId("board").addEventListener(
    "wheel",
    (event) => {
      if (event.ctrlKey) return; // the browser's zoom
      event.preventDefault();
      // A wheel's notch is a step. A trackpad sends many small turns for one flick of the fingers, which is one step too.
      const turns = Math.abs(event.deltaY) >= NOTCH || event.timeStamp - rolled > FLICK;
      rolled = event.timeStamp;
      if (event.deltaY && turns) step(Math.sign(event.deltaY));
    },
    { passive: false },
  );
  let swipe = null; // how a finger went down
  const column = byId("board-column");
  column.addEventListener("pointerdown", (event) => {
    const { target, pointerType, isPrimary } = event;
    swipe = pointerType === "touch" && isPrimary && !target.closest(".movable, .target") && swipes() ? event : null;
  });
  column.addEventListener("pointerup", ({ clientX, clientY }) => {
    if (!swipe) return;
    const [x, y] = [clientX - swipe.clientX, clientY - swipe.clientY];
    swipe = null;
    if (Math.abs(x) >= SWIPE && Math.abs(x) > 2 * Math.abs(y)) step(x < 0 ? 1 : -1);
  });
  column.addEventListener("pointercancel", () => (swipe = null)); // the browser scrolls
}

// Time that goes by while a game with clocks goes on: what the clocks show, and the moment the player's is up.

import { LOW, face, remaining } from "./clock.js";
import { live } from "./state.js";

const TICK = 100; // ms

/** Runs while a clock of the store's game does. */
export function runsClocks(store) {
  let timer;
  const tick = () => {
    store.dispatch({ type: "flag" });
    showClocks(store.state);
  };
  const look = (state) => {
    const runs = live(state) && state.match.running;
    if (runs) timer ??= setInterval(tick, TICK);
    else timer = clearInterval(timer);
    showClocks(state);
  };
  store.subscribe(look);
}

/** Writes the time that is left wherever a running clock is shown: elements of class `clock` with their side. */
export function showClocks({ match }) {
  if (!match?.control) return;
  const now = performance.now();
  for (const clock of document.querySelectorAll(".clock[data-side]")) {
    const left = remaining(match, clock.dataset.side, now),
      text = face(left);
    if (clock.textContent !== text) clock.textContent = text;
    clock.classList.toggle("running", clock.dataset.side === match.running);
    clock.classList.toggle("low", left < LOW);
  }
}

// The keyboard: arrows, Home and End walk through the game wherever the focus is, as on lichess.

const TEXT = "input:not([type=checkbox], [type=radio], [type=range]), textarea";
const OWN = "select, [type=range], [type=radio], .scroll, dialog"; // what arrows do something else to

/** `workOf` gives what a key does, if it does something; that returns true where it did nothing. */
export function listenToKeys(workOf) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const text = event.target.closest(TEXT);
    const walks = event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End";
    if (event.target.closest(OWN) || (text && !(walks && text.value === ""))) return;
    const work = workOf(event.key);
    if (!work || work() === true) return;
    event.preventDefault();
  });
  // A slider or a list that was set by the mouse gives the arrows back; in a form it keeps them, so that Enter sends it.
  document.addEventListener("pointerup", (event) => event.target.closest("[type=range]:not(form *)")?.blur());
  let pointed = false;
  document.addEventListener("pointerdown", () => (pointed = true));
  document.addEventListener("keydown", () => (pointed = false), { capture: true });
  document.addEventListener("change", (event) => pointed && event.target.closest(":is(select, [type=radio]):not(form *)")?.blur());
}

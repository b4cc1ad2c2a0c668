// A question before something that cannot be undone. The page goes on meanwhile, unlike under the browser's own.

import { byId } from "./dom.js";

/** Asks; true if the player agrees. `yes` is the word on the button. */
export function agrees(question, yes) {
  const dialog = byId("ask");
  byId("ask-question").textContent = question;
  byId("ask-yes").textContent = yes;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

// What went wrong, in a box over the page that moves nothing, with another try where that helps.

import { byId } from "./dom.js";
import { wrong } from "./words.js";

export class Notice {
  #told = new Map(); // by what was being done: the text, and what tries again
  #timers = new Map();

  constructor() {
    byId("notice-close").addEventListener("click", () => {
      this.#told.clear();
      this.#show();
    });
    byId("notice-again").addEventListener("click", () => this.again());
  }

  /** Tells an error of something that was being done; `again` tries it again, at once after the wait that the service asks for. */
  tell(doing, error, again) {
    clearTimeout(this.#timers.get(doing));
    const wait = again && error.retryAfter;
    const text = wrong(error) + (wait ? ` Trying again in ${wait} s.` : "");
    this.#told.set(doing, { text, again, wantsKey: [401, 403].includes(error.status) });
    if (error?.name !== "Error") console.error(error); // a fault of the page
    if (wait) this.#timers.set(doing, setTimeout(again, 1000 * wait));
    this.#show();
  }

  /** Takes back what was told of something that has gone well by now. */
  clear(doing) {
    clearTimeout(this.#timers.get(doing));
    if (this.#told.delete(doing)) this.#show();
  }

  /** Tries everything again that has failed. */
  again() {
    const all = [...this.#told.values()];
    for (const timer of this.#timers.values()) clearTimeout(timer);
    for (const { again } of all) again?.();
  }

  #show() {
    const last = [...this.#told.values()].at(-1);
    byId("notice").textContent = last?.text ?? "";
    byId("notice-box").hidden = !last;
    byId("notice-again").hidden = !last?.again;
    const wanted = [...this.#told.values()].some(({ wantsKey }) => wantsKey),
      shown = !byId("key-form").hidden;
    byId("key-form").hidden = !wanted;
    if (wanted && !shown) byId("key").focus(); // another key can be given on the spot
  }
}

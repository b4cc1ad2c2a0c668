// The one place where the state changes: events go in, and whoever listens is told.

import { reduce } from "./reducer.js";

export class Store {
  #listeners = [];

  constructor(state) {
    this.state = state;
  }

  /** `listener` gets the state, the one before, and the event, after every change. */
  subscribe(listener) {
    this.#listeners.push(listener);
  }

  /** Has an event change the state. */
  dispatch(event) {
    const before = this.state;
    this.state = reduce(before, { now: performance.now(), ...event });
    if (this.state === before) return;
    for (const listener of this.#listeners) listener(this.state, before, event);
  }
}

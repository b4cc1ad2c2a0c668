// The two clocks of a game against the network, kept over a reload of the page.

const KEPT = "movemask-clocks"; // in the tab
const TICK = 100; // ms
const TENTHS = 10_000, LOW = 20_000; // ms that are left, below which a clock shows tenths, and is red

export class Clocks {
  control = "";
  #left = { white: 0, black: 0 }; // ms
  #increment = 0;
  #running = null; // the side whose time runs
  #since = 0;
  #timer;
  #shown;
  #fallen;

  /** `shown` is called when a clock has changed, `fallen` with the side whose time is up. */
  constructor({ shown, fallen }) {
    this.#shown = shown;
    this.#fallen = fallen;
    addEventListener("pagehide", () => this.#keep());
  }

  /** Sets both clocks, such as to "3+2": minutes and seconds a move. "" is a game without; `kept` takes the tab's. */
  set(control, kept = false) {
    this.run(null);
    const [minutes, increment] = control ? control.split("+").map(Number) : [0, 0];
    this.#increment = 1000 * increment;
    const found = kept ? JSON.parse(sessionStorage.getItem(KEPT) ?? "null") : null;
    this.#left = found?.control === control ? found.left : { white: 60_000 * minutes, black: 60_000 * minutes };
    this.control = control;
    this.#keep();
  }

  /** Lets a side's time run, or none's. */
  run(side) {
    if (!this.control) side = null;
    if (side === this.#running) return;
    this.#charge();
    this.#running = side;
    this.#since = performance.now();
    clearInterval(this.#timer);
    if (side) this.#timer = setInterval(() => this.#tick(), TICK);
    this.#shown();
  }

  /** A side has moved: its time stops, and it gains the increment unless its time did not run yet. */
  press(side) {
    const ran = this.#running === side;
    this.run(null);
    if (ran) this.#left[side] += this.#increment;
    this.#keep();
  }

  /** The clock of a side as the service takes it; undefined in a game without. */
  of(side) {
    return this.control ? { remaining: this.#now(side) / 1000, increment: this.#increment / 1000 } : undefined;
  }

  /** What a side's clock shows: its text, and whether it runs and is low. */
  face(side) {
    const left = this.#now(side), seconds = Math.floor(left / 1000);
    const text = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
    return { text: left < TENTHS ? `${text}.${Math.floor((left % 1000) / 100)}` : text, running: side === this.#running, low: left < LOW };
  }

  #now(side) {
    return Math.max(0, this.#left[side] - (side === this.#running ? performance.now() - this.#since : 0));
  }

  #charge() {
    if (this.#running) this.#left[this.#running] = this.#now(this.#running);
    this.#since = performance.now();
  }

  #tick() {
    const side = this.#running;
    const up = this.#now(side) === 0;
    if (up) this.run(null);
    else this.#shown();
    if (up) this.#fallen(side);
  }

  #keep() {
    this.#charge();
    sessionStorage.setItem(KEPT, JSON.stringify({ control: this.control, left: this.#left }));
  }
}

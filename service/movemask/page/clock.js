// The arithmetic of the two clocks of a game. It holds no time of its own: every function is told what time it is.

const TENTHS = 10_000; // ms left, below which a clock shows tenths
export const LOW = 20_000; // and below which it is red

/** A control such as "3+2" in ms: what each side has at the start, and what each move adds. */
export function controlOf(control) {
  const [minutes, seconds] = control.split("+").map(Number);
  return { base: Math.round(60_000 * minutes) || 1000 * seconds, increment: 1000 * seconds };
}

/** The same as PGN's TimeControl: seconds. */
export function inSeconds(control) {
  const { base, increment } = controlOf(control);
  return `${base / 1000}+${increment / 1000}`;
}

/** What a side has left. `left` was true when the clock of `running` was started, at `since`; null if none runs. */
export const remaining = ({ left, running, since }, side, now) =>
  Math.max(0, left[side] - (side === running && since !== null ? now - since : 0));

/** A clock's text. */
export function face(ms) {
  const seconds = Math.floor(ms / 1000);
  const text = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
  return ms < TENTHS ? `${text}.${Math.floor((ms % 1000) / 100)}` : text;
}

const KEPT = /\[%clk (\d+):(\d+):(\d+(?:\.\d+)?)\]/;

/** What a move's comment says that its player had left, in ms; undefined if it says nothing. */
export function kept({ comment = "" }) {
  const [, hours, minutes, seconds] = (KEPT.exec(comment) ?? []).map(Number);
  return hours === undefined ? undefined : 1000 * (3600 * hours + 60 * minutes + seconds);
}

/**
 * What White and Black had left after a line of nodes, the first of them after `first` half-moves, in ms by PGN's comments.
 * Before a side's first move it is what `control`, PGN's TimeControl, says; undefined where nothing does.
 */
export function clocksAfter(nodes, first, control = "") {
  const start = /^\d+(\+\d+)?$/.test(control) ? 1000 * Number.parseInt(control, 10) : undefined;
  const left = [start, start];
  nodes.forEach((node, ply) => (left[(first + ply) % 2] = kept(node) ?? left[(first + ply) % 2]));
  return { white: left[0], black: left[1] };
}

/** A clock as PGN's comments have it: [%clk 0:02:59]. */
export function command(ms) {
  const seconds = Math.floor(ms / 1000),
    two = (number) => String(number % 60).padStart(2, "0");
  return `[%clk ${Math.floor(seconds / 3600)}:${two(Math.floor(seconds / 60))}:${two(seconds)}]`;
}

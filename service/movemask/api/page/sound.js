// Sounds of moves, off until they are asked for. They are made here, so nothing is loaded.

const KEPT = "movemask-sound"; // of the browser
const PITCH = { move: 320, capture: 220, check: 520, end: 160 }; // Hz

let context;

export const sounds = () => localStorage.getItem(KEPT) === "on";

export function setSound(on) {
  localStorage.setItem(KEPT, on ? "on" : "off");
  if (on) sound("move");
}

/** A short knock, by what happened: a move, a capture, a check or the end of a game. */
export function sound(kind) {
  if (!sounds()) return;
  context ??= new AudioContext();
  const source = context.createOscillator(), volume = context.createGain(), now = context.currentTime;
  source.type = "triangle";
  source.frequency.setValueAtTime(PITCH[kind], now);
  volume.gain.setValueAtTime(0.25, now);
  volume.gain.exponentialRampToValueAtTime(0.001, now + 0.12);
  source.connect(volume).connect(context.destination);
  source.start();
  source.stop(now + 0.13);
}

/** What a move sounds like, by its SAN. */
export const soundOf = (san) => (/[+]$/.test(san) ? "check" : /#$/.test(san) ? "end" : san.includes("x") ? "capture" : "move");

// Sounds of moves, off until they are asked for. They are made here, so nothing is loaded.

import { byId } from "./dom.js";

const KEPT = "movemask-sound"; // of the browser
const PITCH = { move: 320, capture: 220, check: 520, end: 160 }; // Hz

let context;

export const sounds = () => localStorage.getItem(KEPT) === "on";

/** Turns the sounds on or off, and shows it. */
export function setSound(on) {
  const turned = on && !sounds();
  localStorage.setItem(KEPT, on ? "on" : "off");
  if (turned) knock("move");
  byId("sound").setAttribute("aria-pressed", on);
}

/** Makes the sound of an event, if it has one: a move on the board or of the game, or its end. */
export function soundsOf(state, before, { type, san }) {
  if (state.match?.ending && !before.match?.ending && before.match?.id === state.match.id) knock("end");
  else if (["play", "move"].includes(type)) knock(soundOf(san));
}

/** A short knock. */
function knock(kind) {
  if (!sounds()) return;
  context ??= new AudioContext();
  const source = context.createOscillator(),
    volume = context.createGain(),
    now = context.currentTime;
  source.type = "triangle";
  source.frequency.setValueAtTime(PITCH[kind], now);
  volume.gain.setValueAtTime(0.25, now);
  volume.gain.exponentialRampToValueAtTime(0.001, now + 0.12);
  source.connect(volume).connect(context.destination);
  source.start();
  source.stop(now + 0.13);
}

/** What a move sounds like, by its SAN. */
const soundOf = (san) => (/[+]$/.test(san) ? "check" : /#$/.test(san) ? "end" : san.includes("x") ? "capture" : "move");

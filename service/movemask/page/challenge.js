// The form that begins a game against the network: rating and side, and more for those who look for it. It holds what was entered last.

import { ranged, rangedFor } from "./controls.js";
import { byId } from "./dom.js";
import { between } from "./interpolation.js";
import { takesRatings } from "./ratings.js";
import { readStored, writeStored } from "./storage.js";

const KEPT = "movemask-challenge"; // in the browser
const IMITATES = byId("human-words").textContent;
const FIELDS = ["side", "level", "strength", "rating", "own", "clock", "minutes", "seconds", "pace"];

const field = (name) => byId("challenge").elements[name];

/** The values of a table's columns where its column `by` has a value. */
function interpolated(rows, by, value) {
  const column = (name) => rows.map((row) => row[name]);
  return Object.fromEntries(Object.keys(rows[0]).map((name) => [name, between(column(name), column(by), value)]));
}

/** Rating and temperature that play at a strength, by the card's table. */
function settingsOf(strength, rows) {
  const { rating, temperature } = interpolated(rows, "elo", strength);
  return { rating: Math.round(rating), temperature: Number(temperature.toFixed(3)) };
}

/** The standard error of a strength: between two measured ones the larger of theirs; 0 where the scale is set. */
function errorAt(rows, by, value) {
  const above = rows.findIndex((row) => row[by] >= value);
  return rows[above][by] === value ? rows[above].error : Math.max(rows[above - 1].error, rows[above].error);
}

/** Fills the form for a model; `from` is the side to move in the position to play from, or null for the start. `start` gets the choice. */
export function challenge({ model, from, start }) {
  const form = byId("challenge"),
    rows = model.card?.strength ?? [],
    rated = takesRatings(model);
  byId("challenge-heading").textContent = from ? "Play from this position" : "Play somebody of your rating";
  byId("cancel-challenge").hidden = !from;
  byId("by-strength").hidden = !rows.length;
  if (rows.length) ranged(field("strength"), rows[0].elo, rows.at(-1).elo);
  if (rated) rangedFor(field("rating"), model);
  const usual = { rating: 1500, strength: 1500, level: "human", side: "white" };
  const last = { ...usual, ...entered() };
  for (const name of FIELDS) if (last[name] !== undefined) field(name).value = last[name];
  if (from) field("side").value = from;
  if (!rows.length) field("level").value = "human";
  form.addEventListener("invalid", opensMore, true); // what is wrong may be folded away
  form.oninput = ({ target: { name, value } }) => {
    shown(model);
    writeStored(KEPT, { ...entered(), [name]: value });
  };
  shown(model);
  form.onsubmit = (event) => {
    event.preventDefault();
    start(choice(rows, rated));
  };
}

/** What has been entered, by the field: another model, or another position, changes nothing of it. */
const entered = () => readStored(KEPT) ?? {};

const opensMore = () => (byId("challenge").querySelector("details").open = true);

function shown(model) {
  const strong = field("level").value === "strength",
    rated = takesRatings(model),
    rows = model.card?.strength ?? [],
    custom = field("clock").value === "custom";
  for (const name of ["strength", "rating"]) byId(`${name}-chosen`).textContent = field(name).value;
  byId("human-words").textContent = strong ? "" : rated ? IMITATES : `Plays as ${model.name} does, which knows one rating only.`;
  byId("strength-words").textContent = strong ? strengthWords(Number(field("strength").value), rows) : humanWords(rated, rows);
  byId("strength-row").hidden = !strong;
  byId("rating-row").hidden = strong || !rated;
  byId("custom").hidden = !custom;
  for (const name of ["minutes", "seconds"]) field(name).disabled = !custom;
  const none = Number(field("minutes").value) === 0 && Number(field("seconds").value) === 0;
  field("minutes").setCustomValidity(none ? "A clock needs minutes, or seconds a move." : "");
  const clock = custom ? `${field("minutes").value}+${field("seconds").value}` : field("clock").value || "no clock";
  byId("challenge-more").textContent = `${clock}, it replies ${field("pace").value === "once" ? "at once" : "as fast as a person"}`;
}

/** The strength that was measured where the network imitates the chosen rating; "" where none was. */
function humanWords(rated, rows) {
  const human = rows.filter(({ temperature }) => temperature === 1),
    rating = Number(field("rating").value);
  if (!rated || human.length < 2 || rating < human[0].rating || rating > human.at(-1).rating) return "";
  const elo = Math.round(interpolated(human, "rating", rating).elo),
    error = errorAt(human, "rating", rating);
  if (error === 0) return `The scale of strength is set here: it counts as ${elo}.`;
  return `Its measured strength at this rating is ${elo}${error ? ` ± ${error}` : ""}.`;
}

/** What a strength is, and how it is reached: by a rating, and by preferring its likelier moves. */
function strengthWords(strength, rows) {
  const { rating, temperature } = settingsOf(strength, rows),
    error = errorAt(rows, "elo", strength),
    prefers = temperature < 1 ? " and prefers its likelier moves" : "";
  const measured = error === 0 ? "The scale of strength is set here" : `Measured in games${error ? `, ± ${error}` : ""}`;
  return `${measured}. It imitates players rated ${rating}${prefers}.`;
}

/** What the form says, as a new game needs it. */
function choice(rows, rated) {
  const side = field("side").value,
    numbers = Object.fromEntries(["strength", "rating", "own", "minutes", "seconds"].map((name) => [name, Number(field(name).value)]));
  const strength = field("level").value === "strength" ? numbers.strength : 0;
  return {
    you: side === "random" ? ["white", "black"][Math.floor(2 * Math.random())] : side,
    rating: numbers.own || strength || (rated ? numbers.rating : 1500),
    level: { strength, ...(strength ? settingsOf(strength, rows) : { rating: rated ? numbers.rating : null, temperature: 1 }) },
    control: field("clock").value === "custom" ? `${numbers.minutes}+${numbers.seconds}` : field("clock").value,
    pace: field("pace").value,
  };
}

// The panel that begins a game against the network: side, strength, clock. It opens with what was chosen last.

import { ranged } from "./controls.js";
import { byId } from "./dom.js";
import { takesRatings } from "./ratings.js";
import { picture } from "./squares.js";

const KEPT = "movemask-challenge"; // in the browser
const HUMAN = "Plays like people with this lichess rating: it draws each move by how likely they are to play it, mistakes included.";
const FIELDS = ["side", "level", "strength", "rating", "own", "clock", "minutes", "seconds", "pace"];

const field = (name) => byId("challenge-form").elements[name];

/** Rating and temperature for a strength, between the two rows of the card's table that it lies between. */
export function settingsOf(strength, rows) {
  const above = Math.max(
    1,
    rows.findIndex((row) => row.elo >= strength),
  );
  const [low, high] = [rows[above - 1], rows[above] ?? rows[above - 1]];
  const share = high.elo === low.elo ? 0 : Math.min(1, Math.max(0, (strength - low.elo) / (high.elo - low.elo)));
  const between = (name) => low[name] + share * (high[name] - low[name]);
  return { rating: Math.round(between("rating")), temperature: Number(between("temperature").toFixed(3)) };
}

/** Shows the panel for a model; `from` is the position to play from, `{fen, turn}`, or null for the start. `start` gets the choice. */
export function challenge({ model, from, start }) {
  const dialog = byId("challenge"),
    form = byId("challenge-form");
  const rows = model.card?.strength ?? [],
    { minimum, maximum } = model.contract.elo;
  const least = Math.max(0, minimum),
    most = Math.min(5000, maximum);
  byId("challenge-heading").textContent = from ? "Play from this position" : "Play against the network";
  byId("challenge-from").replaceChildren(...(from ? [picture(from.fen, { flip: from.turn === "black", label: "The position" })] : []));
  byId("by-strength").hidden = !rows.length;
  if (rows.length) ranged(field("strength"), rows[0].elo, rows.at(-1).elo, 50);
  const rated = takesRatings(model);
  byId("rating-row").hidden = !rated;
  if (rated) ranged(field("rating"), least, most, 50);
  byId("human-words").textContent = rated ? HUMAN : `Plays as ${model.name} does, which knows one rating only.`;
  const usual = { rating: 1500, strength: rows[rows.length >> 1]?.elo, level: "human" };
  const last = { ...usual, ...JSON.parse(localStorage.getItem(KEPT) ?? "{}") };
  for (const name of FIELDS) if (last[name] !== undefined) field(name).value = last[name];
  if (from) field("side").value = from.turn;
  if (!rows.length) field("level").value = "human";
  form.oninput = shown;
  shown();
  form.onsubmit = (event) => {
    event.preventDefault();
    dialog.close();
    localStorage.setItem(KEPT, JSON.stringify(Object.fromEntries(FIELDS.map((name) => [name, field(name).value]))));
    start(choice(rows, rated));
  };
  dialog.showModal();
}

function shown() {
  for (const name of ["strength", "rating"]) byId(`${name}-chosen`).textContent = field(name).value;
  byId("strength-row").classList.toggle("unseen", field("level").value !== "strength");
  byId("rating-row").classList.toggle("unseen", field("level").value !== "human");
  byId("custom").classList.toggle("unseen", field("clock").value !== "custom");
  for (const name of ["minutes", "seconds"]) field(name).disabled = field("clock").value !== "custom";
  const none = Number(field("minutes").value) === 0 && Number(field("seconds").value) === 0;
  field("minutes").setCustomValidity(none ? "A clock needs minutes, or seconds a move." : "");
}

/** What the form says, as a new game needs it. */
function choice(rows, rated) {
  const side = field("side").value,
    numbers = Object.fromEntries(["strength", "rating", "own", "minutes", "seconds"].map((name) => [name, Number(field(name).value)]));
  const strength = field("level").value === "strength" ? numbers.strength : 0;
  return {
    you: side === "random" ? ["white", "black"][Math.floor(2 * Math.random())] : side,
    rating: numbers.own,
    level: { strength, ...(strength ? settingsOf(strength, rows) : { rating: rated ? numbers.rating : null, temperature: 1 }) },
    control: field("clock").value === "custom" ? `${numbers.minutes}+${numbers.seconds}` : field("clock").value,
    pace: field("pace").value,
  };
}

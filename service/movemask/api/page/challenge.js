// The panel that begins a game against the network: side, strength, clock.

import { byId } from "./dom.js";
import { state } from "./state.js";

const field = (name) => byId("challenge-form").elements[name];

/** Rating and temperature for a strength, between the two rows of the card's table that it lies between. */
export function settingsOf(strength, rows) {
  const above = Math.max(1, rows.findIndex((row) => row.elo >= strength));
  const [low, high] = [rows[above - 1], rows[above] ?? rows[above - 1]];
  const share = high.elo === low.elo ? 0 : Math.min(1, Math.max(0, (strength - low.elo) / (high.elo - low.elo)));
  const between = (name) => low[name] + share * (high[name] - low[name]);
  return { rating: Math.round(between("rating")), temperature: Number(between("temperature").toFixed(3)) };
}

/** Shows the panel for a model; `onto` says whether the board has a position to play from, `start` gets the choice. */
export function challenge(model, onto, start) {
  const dialog = byId("challenge"), form = byId("challenge-form");
  const rows = model?.card?.strength ?? [];
  const ratings = model?.contract?.elo;
  byId("by-strength").hidden = !rows.length;
  if (rows.length) Object.assign(field("strength"), { min: rows[0].elo, max: rows.at(-1).elo, value: state.strength || rows[rows.length >> 1].elo });
  byId("rating-row").hidden = !ratings || ratings.minimum === ratings.maximum;
  if (ratings) Object.assign(field("rating"), { min: Math.max(0, ratings.minimum), max: Math.min(5000, ratings.maximum), value: state.white });
  field("level").value = rows.length && state.strength !== 0 ? "strength" : field("level").value || "human";
  if (!rows.length) field("level").value = "human";
  field("clock").value = state.clock;
  byId("onto").hidden = !onto;
  field("from").checked = false;
  const shown = () => {
    for (const name of ["strength", "rating"]) byId(`${name}-chosen`).textContent = field(name).value;
    byId("strength-row").hidden = field("level").value !== "strength";
    byId("rating-row").classList.toggle("unseen", field("level").value !== "human");
  };
  form.oninput = shown;
  shown();
  form.onsubmit = (event) => {
    event.preventDefault();
    dialog.close();
    const side = field("side").value === "random" ? ["white", "black"][Math.floor(2 * Math.random())] : field("side").value;
    const strength = field("level").value === "strength" ? Number(field("strength").value) : 0;
    const { rating, temperature } = strength ? settingsOf(strength, rows) : { rating: Number(field("rating").value), temperature: 1 };
    start({ opponent: side === "white" ? "black" : "white", clock: field("clock").value, strength, temperature, white: rating, black: rating }, field("from").checked);
  };
  dialog.showModal();
}

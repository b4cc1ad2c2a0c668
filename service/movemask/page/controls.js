// The controls: set to the state, and what they change in it.

import { LINE, hashOf } from "./address.js";
import { byId } from "./dom.js";
import { takenBack } from "./match.js";
import { takesRatings } from "./ratings.js";
import { hasBoard, live, played, playing, reviewable } from "./state.js";

const STEP = 50; // Elo points of a slider

const number = (control) => Number(control.value),
  checked = (control) => control.checked,
  text = (control) => control.value;
const READ = { model: text, beside: text, white: number, black: number, arrows: checked };

/** Fills the lists of models. */
export function offer(models) {
  const options = (none) => [
    ...(none ? [new Option(none, "")] : []),
    ...models.map((model) => {
      const option = new Option(model.name + (model.served ? "" : " (not served)"), model.name);
      option.title = [model.card?.licence, model.card?.source].filter(Boolean).join(", ");
      option.disabled = !model.served;
      return option;
    }),
  ];
  byId("model").replaceChildren(...options());
  byId("beside").replaceChildren(...options("no other model"));
  const one = models.filter(({ served }) => served).length < 2;
  for (const id of ["model-field", "beside-field"]) byId(id).hidden = one;
}

/** The model that a state names, or the service's default. */
export const chosen = ({ model }, models) => models.find((one) => (model ? one.name === model : one.default));

/** What the navigation calls the view of a state. */
const areaOf = (state) =>
  playing(state) || state.view === "new" ? "play" : ["review", "ratings", "lens"].includes(state.view) ? "position" : state.view;

/** The address of a view: of the position on the board, or with a new board; "play" is the game that goes on, or the form of a new one. */
function addressOf(state, view) {
  if (view === "play" && live(state)) return `#play?game=${state.match.id}`;
  const emptied = { ...LINE, headers: {}, flip: false };
  return view === "play" || view === "start"
    ? hashOf(state, { ...emptied, view: view === "play" ? "new" : view })
    : hashOf(state, { view });
}

/** Shows the chosen view. */
export function showView(state) {
  const { view } = state;
  document.body.dataset.view = view;
  byId("table").hidden = !hasBoard(view);
  byId("dashboard").hidden = view !== "leakage";
  byId("library").hidden = view !== "games";
  byId("skip").hash = `#${view}`;
  const panel = view === "play" ? "position" : view;
  for (const name of ["position", "review", "ratings", "lens"]) byId(`panel-${name}`).hidden = name !== panel;
  byId("tab-review").hidden = !reviewable(state);
  for (const link of document.querySelectorAll("a[data-view]")) {
    const here = link.closest(".tabs") ? panel : areaOf(state);
    link.href = addressOf(state, link.dataset.view);
    link.ariaCurrent = link.dataset.view === here ? "page" : null;
  }
}

/** The values that a slider can take: whole steps, where the range has any. */
export function ranged(slider, least, most) {
  const [min, max] = [Math.ceil(least / STEP) * STEP, Math.floor(most / STEP) * STEP];
  Object.assign(slider, max > min ? { min, max, step: STEP } : { min: least, max: most, step: 1 });
}

/** The same by the ratings that a model takes. */
export const rangedFor = (slider, { contract: { elo } }) => ranged(slider, Math.max(0, elo.minimum), Math.min(5000, elo.maximum));

/**
 * Whether there is a move to take back: the player's in a game that goes on, elsewhere one that was added here. Others are
 * only stepped over.
 */
const takesBack = (state) =>
  playing(state) ? takenBack(state.match, 0) !== state.match : Boolean(state.tree.nodes[state.tree.at(played(state))]?.added);

/** Sets every control to the state. */
export function setControls(state, models) {
  const model = chosen(state, models);
  byId("model").value = model?.name ?? "";
  byId("model").disabled = live(state);
  byId("model").title = live(state) ? `Your game goes on with ${state.match.model}.` : "";
  const fixed = Boolean(model) && !takesRatings(model);
  for (const side of ["white", "black"]) {
    const slider = byId(side);
    if (model && !fixed) rangedFor(slider, model);
    slider.value = state[side];
    slider.disabled = fixed;
    byId(`${side}-shown`).textContent = state[side];
  }
  byId("no-ratings").hidden = !fixed;
  byId("no-ratings").textContent = fixed ? `${model.name} plays at one rating only.` : "";
  byId("beside").value = state.beside;
  byId("arrows").checked = state.arrows;
  byId("hints").textContent = state.hints ? "Hide hints" : "Show hints";
  byId("first").disabled = byId("back").disabled = state.at === 0;
  byId("last").disabled = byId("forward").disabled = state.at === state.moves.length;
  byId("undo").disabled = !takesBack(state);
  byId("save-annotated").disabled = state.moves.length === 0;
}

/** Has the controls change the state of the store. `presses` has what each button does, by its id. */
export function listenToControls(store, presses) {
  for (const [name, read] of Object.entries(READ)) {
    byId(name).addEventListener("input", ({ target }) => store.dispatch({ type: "set", name, value: read(target) }));
  }
  for (const [id, does] of Object.entries(presses)) byId(id).addEventListener("click", does);
}

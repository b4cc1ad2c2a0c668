// The controls: set to the state, and what they change in it.

import { byId } from "./dom.js";
import { takesRatings } from "./ratings.js";
import { VIEWS, hashOf, onBoard, state } from "./state.js";

const number = (control) => Number(control.value), checked = (control) => control.checked, text = (control) => control.value;
const READ = { model: text, beside: text, white: number, black: number, arrows: checked };

/** Fills the lists of models. */
export function offer(models) {
  const options = (none) => [...(none ? [new Option(none, "")] : []), ...models.map((model) => {
    const licence = model.card?.licence ? ` (${model.card.licence})` : "";
    const option = new Option(model.name + (model.served ? licence : " (not served)"), model.name);
    option.title = model.card?.source ?? "";
    option.disabled = !model.served;
    return option;
  })];
  byId("model").replaceChildren(...options());
  byId("beside").replaceChildren(...options("no other model"));
}

/** Shows the chosen view. */
export function showView() {
  byId("table").hidden = !onBoard();
  byId("dashboard").hidden = state.view !== "leakage";
  byId("library").hidden = state.view !== "games";
  byId("skip").hash = `#${state.view}`;
  for (const view of VIEWS.slice(0, 3)) byId(`panel-${view}`).hidden = view !== state.view;
  for (const link of document.querySelectorAll("[data-view]")) {
    link.href = hashOf({ view: link.dataset.view });
    if (link.dataset.view === state.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

/** Sets every control to the state. */
export function setControls(models) {
  const usual = models.find((model) => model.default)?.name ?? "";
  const model = models.find((one) => one.name === (state.model || usual));
  byId("model").value = state.model || usual;
  const fixed = Boolean(model) && !takesRatings(model);
  for (const side of ["white", "black"]) {
    const slider = byId(side);
    if (model && !fixed) {
      slider.min = Math.max(0, model.contract.elo.minimum);
      slider.max = Math.min(5000, model.contract.elo.maximum);
    }
    slider.value = state[side];
    slider.disabled = fixed;
    byId(`${side}-shown`).textContent = state[side];
  }
  byId("no-ratings").hidden = !fixed;
  byId("no-ratings").textContent = fixed ? `${model.name} plays at one rating only.` : "";
  byId("beside").value = state.beside;
  byId("arrows").checked = state.arrows;
  byId("chess960").checked = state.chess960;
  byId("hints").textContent = state.hints ? "Hide hints" : "Show hints";
  for (const radio of document.querySelectorAll("[name=vary]")) radio.checked = radio.value === state.vary;
  byId("first").disabled = byId("back").disabled = state.at === 0;
  byId("last").disabled = byId("forward").disabled = state.at === state.moves.length;
  byId("undo").disabled = byId("save-annotated").disabled = state.moves.length === 0;
}

/** Lets the controls change the state; `changed` is told of it. `presses` has what each button does, by its id. */
export function listenToControls(changed, presses) {
  for (const [name, read] of Object.entries(READ)) {
    byId(name).addEventListener("input", (event) => {
      state[name] = read(event.target);
      changed();
    });
  }
  for (const radio of document.querySelectorAll("[name=vary]")) {
    radio.addEventListener("input", () => {
      state.vary = radio.value;
      changed();
    });
  }
  for (const [id, does] of Object.entries(presses)) byId(id).addEventListener("click", does);
}

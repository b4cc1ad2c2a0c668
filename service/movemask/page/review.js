// The review of a game: a verdict on each move of one side, and the key moves of both.

import { byId, element } from "./dom.js";
import { showMoments } from "./moments.js";
import { numbered } from "./tree.js";

/** How many verdicts there are of each kind. */
function counted(verdicts) {
  const count = (kind) => verdicts.filter((one) => one.kind === kind).length, mistakes = count("mistake");
  return `${count("good")} good, ${count("fine")} fine, ${count("doubtful")} doubtful, ${mistakes} ${mistakes === 1 ? "mistake" : "mistakes"}`;
}

/**
 * Shows the review. `verdicts` are those of `side`, by ply, `{kind, name, text}`, undefined while they are on their way;
 * `sans` the main line with its `first` ply; `at` is where the board is on it, or -1; `own` says that the side is the
 * player's. `review` is undefined while the game is read; `evaluated` says that its PGN has evaluations. `goTo` gets a
 * place on the line, `choose` a side.
 */
export function showReview({ side, own, shown, verdicts, sans, first, at, review, evaluated, goTo, choose }) {
  byId("review-panel").hidden = !shown;
  byId("panel-play").classList.toggle("reviewing", shown && Boolean(side));
  byId("verdict").hidden = !shown || !side;
  if (!shown) return;
  byId("review-side").value = side;
  byId("review-side").onchange = ({ target }) => choose(target.value);
  const ply = [at - 1, at - 2].find((one) => verdicts?.has(one)), here = verdicts?.get(ply), name = (one) => `${numbered(first + one)} ${sans[one]}`;
  byId("verdict").className = `verdict-here ${here?.kind ?? ""}`;
  byId("verdict").replaceChildren(...(here ? [element("b", {}, `${name(ply)} · ${here.name}. `), here.text]
    : [element("span", { className: "quiet" }, verdicts ? "Step through the game for the verdicts." : "The verdicts are on their way.")]));
  const whose = own ? "Your" : side === "white" ? "White's" : "Black's";
  byId("review-counts").textContent = side && verdicts ? `${whose} moves: ${counted([...verdicts.values()])}.` : "";
  byId("review-moves").replaceChildren(...[...(side && verdicts ? verdicts : [])].map(([ply, verdict]) => element("li", {}, element("button", {
    type: "button", onclick: () => goTo(ply + 1), "aria-current": ply + 1 === at ? "true" : undefined,
  }, element("b", { className: verdict.kind }, `${name(ply)} ${verdict.name}`), ` ${verdict.text}`))));
  requestAnimationFrame(() => { // by then the browser has laid it out anyway
    const list = byId("review-moves"), current = list.querySelector("[aria-current]");
    if (current) list.scrollTop = current.offsetTop - list.clientHeight / 2;
  });
  if (review) showMoments(byId("moments"), { moments: review.moments, evaluated, at, goTo });
  else byId("moments").replaceChildren(element("p", { className: "quiet" }, "The game is being read."));
}

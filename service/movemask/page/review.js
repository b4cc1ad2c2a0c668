// The review of a game: the verdict on the move on the board, the moves that cost most, and all moves.

import { isCut } from "./costs.js";
import { button, byId, element, follow, percent, quiet, refill, say } from "./dom.js";
import { SIDES } from "./match.js";
import { bar } from "./moves.js";
import { countsOf } from "./verdicts.js";

const NO_ENGINE =
  "The service has no engine, and this PGN lacks evaluations. Whoever runs the service can install Stockfish, or name another " +
  "engine in MOVEMASK_ENGINE. The network says who would play a move, not whether it is good.";

const KEY_MOVES = "Those that cost most, and who plays them.";
const UNREAD = { engine: null, accuracy: {}, summary: "", finished: false };
const AWAITED = [800, 1200, 1600, 2000, 2400].map((rating) => ({ rating })); // shares that are on their way

/** A button, or nothing where it is not to be offered. */
const offered = (text, does, className) => (does ? [" ", button(does, { className }, text)] : []);

/**
 * Shows what is said of the move that led to the board: `here` is its `{move, kind, name, text, better}`, undefined without one;
 * `otherwise` is said in its place. `better` is the SAN of a better move, `follow` plays it; `again` lets the player look for
 * one, and `give` ends that. Each of the three is undefined where it is not offered.
 * @type {(given: {here?: any, otherwise?: string, follow?: () => void, again?: () => void, give?: () => void}) => void}
 */
export function showVerdict({ here, otherwise, follow, again, give }) {
  byId("verdict").className = `verdict-here ${here?.kind ?? ""}`;
  const words = here
    ? [element("b", {}, `${here.move}${here.name && ` · ${here.name}`}. `), here.text]
    : [element("span", { className: "quiet" }, otherwise)];
  say(byId("verdict-said"), ...words);
  refill(
    byId("verdict-does"),
    ...offered(`${here?.better} was best`, here?.better && follow, "link"),
    ...offered("Try again", again),
    ...offered("Show the answer", give),
  );
}

/**
 * Shows the review of a game. `verdicts` are those on all moves by ply; undefined while they are on their way. Its moves are those
 * of `side`, or of both where it is "". `nameOf` gives a ply's move with its number; `at` is where the board is on the main line,
 * or -1; `own` says that the side is the player's; `keys` are the plies of key moves, and `rated` says that their shares will come;
 * `surprising` are the plies to name where nothing judges the moves; `review` is how far the line is read (see Costs); `goTo` gets
 * a place on the line, `choose` a side; `again` has the engine look at what it has not judged.
 */
export function showReview({ side, own, verdicts, nameOf, at, keys, rated, surprising, review = UNREAD, goTo, choose, again }) {
  const { engine, accuracy, summary, finished } = review;
  byId("review-side").value = side;
  byId("review-side").onchange = ({ target }) => choose(target.value);
  const all = [...(verdicts ?? [])],
    judged = all.filter(([, { cost }]) => cost).length,
    // lichess gives the first position no evaluation
    whole = engine ? engine.done === engine.of : judged > 0 && all.every(([ply, { cost }]) => cost || !ply);
  // The rules judge a mate and a move without alternative, which is no review.
  const told = whole || all.some(([, verdict]) => verdict.judged),
    part = engine ? `${engine.done} of ${engine.of} positions judged.` : told ? `${judged} of ${all.length} moves judged.` : "";
  const half = (colour) => {
    const counts = told ? countsOf(all.flatMap(([, verdict]) => (verdict.side === colour ? verdict : []))) : "";
    return element(
      "div",
      { className: colour === side ? "chosen" : "" },
      element("b", {}, element("span", { className: `colour ${colour}` }), own && colour === side ? "You" : SIDES[colour]),
      element("small", {}, "accuracy"),
      element("span", { className: "figure" }, told && accuracy[colour] ? `${Math.round(accuracy[colour])}\u00a0%` : "–"),
      element("span", { className: "counts" }, counts.replaceAll(", ", "\n")),
    );
  };
  byId("review-sides").hidden = finished && !told;
  byId("review-sides").replaceChildren(half("white"), half("black"));
  byId("review-counts").textContent = verdicts && !whole ? part : "";
  byId("review-summary").textContent = (finished && told && summary?.replace(/^.*?%\. /, "")) || ""; // the accuracies are above
  showEngine(engine, finished, isCut(review) ? "cut" : told ? "whole" : "none", again);
  const current = (place) => (place === at ? "true" : undefined);
  const show = (place) => {
    goTo(place);
    byId("verdict").scrollIntoView({ block: "nearest" }); // on a phone it may be under the board, which stays in sight
  };
  const entry = (ply, title, ...words) => button(() => show(ply + 1), { title, "aria-current": current(ply + 1) }, ...words);
  follow(
    byId("review-moves"),
    ...all.flatMap(([ply, { side: mover, kind, cost, basis, human }]) => {
      if (side && mover !== side) return [];
      const words = cost || (finished ? "not judged" : "");
      return element(
        "li",
        {},
        entry(
          ply,
          basis,
          element("b", {}, nameOf(ply)),
          " ",
          element("span", { className: kind }, words),
          " ",
          element("span", {}, human),
        ),
      );
    }),
  );
  const panel = byId("panel-review");
  byId("key-moves").hidden = finished && !keys.length && !told; // nothing tells which they are
  panel.classList.toggle("uncosted", finished && !told);
  // Their place is kept until the player goes on.
  panel.classList.toggle("filling", !finished || (panel.classList.contains("filling") && panel.dataset.at === `${at}`));
  panel.dataset.at = `${at}`;
  const slight = finished && keys.length > 0 && keys.every((ply) => verdicts.get(ply).kind === "inaccuracy");
  const whose = own ? " of yours" : side && ` of ${SIDES[side]}'s`;
  byId("moments-said").textContent = slight ? `No move${whose} cost 10 points or more. These cost most.` : KEY_MOVES;
  const awaited = !verdicts ? "The game is being read." : engine ? "They come as the engine judges the moves." : "The engine is awaited.";
  const none = !finished ? awaited : `No move${whose}${whole ? "" : " that was judged"} cost 5 points or more.`;
  const entryOf = (ply) => {
    const { kind, name, basis, text, shares } = verdicts.get(ply);
    const heading = element("b", { className: kind }, `${nameOf(ply)}${name && ` · ${name}`}. `);
    return element("li", {}, entry(ply, basis, heading, text), ...sharesOf(shares ?? (rated && !finished ? AWAITED : [])));
  };
  refill(byId("moments"), keys.length ? element("ol", {}, ...keys.map(entryOf)) : quiet(none));
  const named = finished && !told ? surprising : [];
  byId("surprises").hidden = !named.length;
  refill(byId("surprising"), element("ol", {}, ...named.map(entryOf)));
}

/** How far the engine is, or why moves are not judged: it was `cut` short, or there is "none"; `again` has it go on. */
function showEngine(engine, finished, why, again) {
  const busy = Boolean(engine) && !finished;
  byId("engine-progress").hidden = !busy;
  byId("engine-again").hidden = busy || why !== "cut";
  byId("engine-again").onclick = again;
  byId("engine-again").disabled = engine?.rests;
  const state = engine?.rests ? "is resting, or busy" : "has stopped";
  const said = { cut: `The engine ${state}. It is asked again in a minute.`, none: NO_ENGINE, whole: "" };
  if (!busy) return say(byId("engine-said"), finished ? said[why] : "");
  const { done, of, deeper, of_deeper: most } = engine;
  Object.assign(byId("engine-progress"), { max: (most ?? of) || 1, value: most ? deeper : done });
  say(byId("engine-said"), most ? "The engine looks deeper where moves are marked." : `The engine looks at ${of} positions.`);
}

/** How many players of some ratings play a move, as bars. */
function sharesOf(shares) {
  if (!shares.length) return [];
  const cells = shares.map(({ rating, probability }) =>
    element("li", {}, element("span", {}, `${rating}`), bar(probability ?? 0), element("span", {}, percent(probability))),
  );
  return [element("ul", { className: "shares", "aria-label": "How many play it, by rating" }, ...cells)];
}

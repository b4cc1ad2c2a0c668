// The review of a game: the verdict on the move on the board, the moves that cost most, and all moves.

import { byId, element, follow, percent, refill, say } from "./dom.js";
import { bar } from "./moves.js";
import { counted } from "./verdicts.js";

const NO_ENGINE =
  "The service has no engine, and this PGN lacks evaluations. Whoever runs the service can install Stockfish, or name another " +
  "engine in MOVEMASK_ENGINE. The network says who would play a move, not whether it is good.";

/** A button, or nothing where it is not to be offered. */
const button = (text, onclick, className) => (onclick ? [" ", element("button", { type: "button", className, onclick }, text)] : []);

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
    ...button(`${here?.better} costs less`, here?.better && follow, "link"),
    ...button("Try again", again),
    ...button("Show the answer", give),
  );
}

/**
 * Shows the review of a game. `verdicts` are those of `side`, or of both sides where it is "", by ply; undefined while they are
 * on their way. `nameOf` gives a ply's move with its number; `at` is where the board is on the main line, or -1; `own` says that
 * the side is the player's; `moments` are the key moves; `engine` is how far the engine is, `finished` that it is done; `goTo`
 * gets a place on the line, `choose` a side; `again` has the engine look at what it has not judged.
 */
export function showReview({ shown, side, own, verdicts, nameOf, at, moments, engine, finished, goTo, choose, again }) {
  if (!shown) return;
  byId("review-side").value = side;
  byId("review-side").onchange = ({ target }) => choose(target.value);
  const whose = own ? "Your moves: " : side ? `${side === "white" ? "White" : "Black"}'s moves: ` : "Both sides: ",
    all = [...(verdicts ?? [])],
    judged = all.filter(([, { cost }]) => cost).length,
    cut = finished && engine && engine.done < engine.of,
    whole = finished && !cut && all.length - judged < 2; // lichess gives the first position no evaluation
  const told = finished && (whole || judged > 1) ? `${whose}${counted(all.map(([, verdict]) => verdict))}.` : "", // the rules judge a mate
    part = engine ? `${engine.done} of ${engine.of} positions judged. ` : `${judged} of ${all.length} moves judged. `;
  byId("review-counts").textContent = `${finished && !whole && (engine || told) ? part : ""}${told}`;
  showEngine(engine, finished, cut ? "cut" : whole ? "whole" : "none", again);
  const current = (place) => (place === at ? "true" : undefined);
  const show = (place) => {
    goTo(place);
    byId("verdict").scrollIntoView({ block: "nearest" }); // on a phone it may be under the board, which stays in sight
  };
  const entry = (ply, ...words) =>
    element("button", { type: "button", onclick: () => show(ply + 1), "aria-current": current(ply + 1) }, ...words);
  follow(
    byId("review-moves"),
    ...all.map(([ply, { kind, cost, human }]) =>
      element(
        "li",
        {},
        entry(
          ply,
          element("b", {}, nameOf(ply)),
          " ",
          element("span", { className: kind }, cost || (finished ? "not judged" : "")),
          " ",
          element("span", {}, human),
        ),
      ),
    ),
  );
  const read = verdicts ? "The engine is awaited." : "The game is being read.",
    awaited = engine ? "They are shown when the engine is done." : read,
    none = !finished ? awaited : whole ? "No move cost 10 points or more." : "No move that was judged cost 10 points or more.";
  byId("key-moves").hidden = finished && !moments.length && !told; // nothing tells which they are
  byId("panel-review").classList.toggle("uncosted", finished && !told);
  const entries = (finished ? moments : []).map(({ ply, by_rating: shares = [], ...moment }) => {
    const verdict = verdicts?.get(ply - 1),
      kind = verdict?.kind ?? moment.mark ?? "fault";
    const words = verdict ? [`${nameOf(ply - 1)}${verdict.name && ` · ${verdict.name}`}. `, verdict.text] : ["", moment.text];
    return element("li", {}, entry(ply - 1, element("b", { className: kind }, words[0]), words[1]), ...sharesOf(shares));
  });
  refill(byId("moments"), entries.length ? element("ol", {}, ...entries) : element("p", { className: "quiet" }, none));
}

/** How far the engine is, or why moves are not judged: it was `cut` short, or there is "none"; `again` has it go on. */
function showEngine(engine, finished, why, again) {
  const busy = Boolean(engine) && !finished;
  byId("engine-progress").hidden = !busy;
  byId("engine-again").hidden = busy || why !== "cut";
  byId("engine-again").onclick = again;
  if (busy) return showProgress(engine);
  const said = { cut: "The engine has stopped. It is asked again in a minute.", none: NO_ENGINE, whole: "" };
  say(byId("engine-said"), finished ? said[why] : "");
}

/** How far the engine is that looks at a game. */
export function showProgress({ done, of }) {
  Object.assign(byId("engine-progress"), { max: of || 1, value: done });
  say(byId("engine-said"), `The engine looks at ${of} positions.`);
}

/** How many players of some ratings play a move, as bars. */
function sharesOf(shares) {
  if (!shares.length) return [];
  const cells = shares.map(({ rating, probability }) =>
    element("li", {}, element("span", {}, `${rating}`), bar(probability), element("span", {}, percent(probability))),
  );
  return [element("ul", { className: "shares", "aria-label": "How many play it, by rating" }, ...cells)];
}

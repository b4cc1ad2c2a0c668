// Moves by rating: the sweep over ratings, or over networks of one rating each.

import { remembered } from "./api.js";
import { lineChart } from "./chart.js";
import { byId, percent, quiet, table } from "./dom.js";
import { SIDES, other } from "./match.js";
import { elo, played, position } from "./state.js";

const SHOWN = 6;

/**
 * Asks for the sweep of the position and shows it. `next` is the move that was played there; `current` says whether it is
 * still wanted.
 */
export async function showRatings(state, { answer, models, next, current }) {
  if (!answer.moves.length) return clearRatings("The game is over, so there is no move to compare.");
  const chosen = models.find((model) => model.name === answer.model.name);
  const others = ofOneRating(models);
  const byModel = !takesRatings(chosen);
  if (byModel && others.length < 2) {
    return clearRatings(
      `${chosen.name} plays at one rating only. Add networks of other ratings to the models folder to compare them here.`,
    );
  }
  const { self, opponent } = elo(state, answer.turn),
    rated = self === opponent ? {} : { vary: "self", elo: opponent }; // the answer's question at the chosen rating
  const of = byModel ? { models: others } : { model: chosen.name, ...rated },
    sweep = await remembered("v1/policy/sweep", { ...position(state, played(state)), include: ["san"], ...of });
  if (!current()) return;
  const shown = sweep.moves.slice(0, SHOWN);
  const playedMove = next && sweep.moves.find((move) => move.uci === next.uci);
  if (playedMove && !shown.includes(playedMove)) shown.push(playedMove);
  const names = sweep.points.map((point) => (byModel ? point.model.name : String(point.elo.self)));
  const xs = byModel ? names.map((_, index) => index) : sweep.points.map((point) => point.elo.self);
  const [side, otherSide] = [SIDES[answer.turn], SIDES[other(answer.turn)]],
    by = byModel ? "network" : self === opponent ? "rating of both players" : `rating of ${side}, against ${otherSide} rated ${opponent}`;
  lineChart(byId("chart"), {
    xs,
    names,
    series: shown.map((move) => ({ name: move.san, values: move.probabilities, emphasis: move === playedMove })),
    marks: [
      byModel
        ? { at: others.indexOf(chosen.name), name: "the chosen network" }
        : { at: Math.min(Math.max(self, xs[0]), xs[xs.length - 1]), name: "your chosen rating" },
    ],
    axis: by,
    label: `Probability of ${shown.map((move) => move.san).join(", ")} by ${by}`,
  });
  byId("chart-table").replaceChildren(
    table(
      "Moves by rating",
      ["Move", ...names],
      shown.map((move) => [move.san, ...move.probabilities.map(percent)]),
    ),
  );
  byId("surprise").textContent = surprise(next, answer, playedMove, names);
}

/** Whether a network has ratings among its inputs. */
export const takesRatings = (model) => Boolean(model?.contract?.inputs.elo_self || model?.contract?.inputs.elo_opponent);

function surprise(next, answer, playedMove, names) {
  if (!next || !playedMove) return `The likeliest move is ${answer.moves[0].san}, with ${percent(answer.moves[0].probability)}.`;
  const move = answer.moves.find((one) => one.uci === next.uci);
  const rank = answer.moves.indexOf(move) + 1;
  const nats = -Math.log(move.probability);
  const best = names[playedMove.probabilities.indexOf(Math.max(...playedMove.probabilities))];
  const share = `${move.san} was played: choice ${rank} of ${answer.moves.length}, with ${percent(move.probability)}`;
  return `${share}, a surprise of ${nats.toFixed(2)} nats. It is likeliest at ${best}.`;
}

/** The names of the served networks that play at one rating only. */
function ofOneRating(models) {
  return models
    .filter((model) => model.served && !takesRatings(model))
    .map((model) => model.name)
    .toSorted();
}

/** Takes the chart away, and says why. */
export function clearRatings(text = "") {
  byId("chart").replaceChildren(quiet(text));
  byId("chart-table").replaceChildren();
  byId("surprise").textContent = "";
}

// A verdict on a move in two parts that have nothing to do with each other: what it cost, and how human it was.
// Both figures are the service's; a move that costs much may be what most people play.

import { percent } from "./dom.js";

export const MARKS = { mistake: "?", blunder: "??" };
const NAMES = { mistake: "Mistake", blunder: "Blunder" };
const FACTS = {
  allows_mate: "It allows mate in one.",
  misses_mate: "It misses a mate in one.",
  stalemates: "It stalemates.",
  draws: "It leads to a dead position.",
};

/**
 * The verdict `{kind, name, cost, human, text}` on a move. `report` is what the service says of it; `rating` is the
 * mover's, undefined for a network that takes none. `kind` is "mistake", "blunder" or "".
 */
export function verdictOf({ probability, rank, lost, source, mark = "", fact, better }, rating) {
  const points = lost === undefined ? undefined : Math.round(100 * lost),
    who = rating ? `players rated ${rating}` : "players";
  return {
    kind: mark,
    name: NAMES[mark] ?? "",
    cost: [NAMES[mark], points === undefined ? "unknown" : `${points}`].filter(Boolean).join(", "),
    human: percent(probability),
    text: [FACTS[fact], costs(points, source), likely(probability, rank, who), better && `${better.san} costs less.`]
      .filter(Boolean)
      .join(" "),
  };
}

/** How many mistakes and blunders there are, in words. */
export function counted(verdicts) {
  const count = (kind, one, many) => {
    const found = verdicts.filter((verdict) => verdict.kind === kind).length;
    return `${found} ${found === 1 ? one : many}`;
  };
  return `${count("mistake", "mistake", "mistakes")}, ${count("blunder", "blunder", "blunders")}`;
}

/** Only the rules and evaluations know a cost; the network judges, and overlooks some. */
function costs(points, source) {
  if (points === undefined) return "What it cost is unknown: this network forecasts no results.";
  const judged = source === "network",
    amount = `${points} ${points === 1 ? "point" : "points"} of 100`;
  if (!points) return judged ? "The network sees no cost." : "It costs nothing.";
  return judged ? `By the network's judgement, it costs ${amount}.` : `It costs ${amount}.`;
}

function likely(probability, rank, who) {
  const share = probability < 0.001 ? `Hardly any ${who} would play it` : `${percent(probability)} of ${who} would play it`;
  return rank === 1 ? `${share}, more than any other move.` : `${share}.`;
}

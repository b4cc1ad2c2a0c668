// A verdict on a move in two parts that have nothing to do with each other: what it cost, by the engine, and how many would
// play it, by the network. Both figures are the service's.

import { percent } from "./dom.js";

export const MARKS = { inaccuracy: "?!", mistake: "?", blunder: "??" };
const NAMES = { inaccuracy: "Inaccuracy", mistake: "Mistake", blunder: "Blunder" };
const FACTS = {
  allows_mate: "It allows mate in one.",
  misses_mate: "It misses a mate in one.",
  stalemates: "It stalemates.",
  draws: "It leads to a dead position.",
};
const FAULTS = ["allows_mate", "misses_mate", "stalemates"];
const STRONGER = 400; // Elo points that the other players have whose share is told

/**
 * The verdict `{kind, name, cost, human, text}` on a move: what the service says of its cost and of its likelihood. `rating`
 * is the mover's, undefined for a network that takes none; `shares` are a key move's `{rating, probability}`. `kind` is a
 * mark; "fault" if nothing tells the cost of what the rules know to be one; or "".
 */
export function verdictOf({ lost, mark, fact }, { probability, rank }, rating, shares = []) {
  const points = lost === undefined ? "" : pointsOf(lost);
  return {
    kind: mark ?? (lost === undefined && FAULTS.includes(fact) ? "fault" : ""),
    name: NAMES[mark] ?? "",
    cost: [NAMES[mark], points].filter(Boolean).join(", "),
    human: percent(probability),
    text: [FACTS[fact], points && `It cost ${inPoints(points)}.`, likely(probability, rank, rating, shares)].filter(Boolean).join(" "),
  };
}

/** That a move costs less than the one that was played instead, where it does so in whole points; else "". */
export function betterThan(san, instead, lost) {
  const points = pointsOf(instead);
  return Number(points) > Number(pointsOf(lost)) ? `Better than ${san}, which cost ${inPoints(points)}. ` : "";
}

/** A cost in points, rounded down as the service does it: 9.6 points have the mark of less than 10. */
const pointsOf = (lost) => `${Math.floor(100 * lost + 1e-9)}`;

/** A number of points in words. */
const inPoints = (points) => (points === "0" ? "nothing" : `${points} ${points === "1" ? "point" : "points"}`);

/** How many inaccuracies, mistakes and blunders there are, in words. */
export function counted(verdicts) {
  const count = (kind, one, many) => {
    const found = verdicts.filter((verdict) => verdict.kind === kind).length;
    return `${found} ${found === 1 ? one : many}`;
  };
  const kinds = [
    ["inaccuracy", "inaccuracies"],
    ["mistake", "mistakes"],
    ["blunder", "blunders"],
  ];
  return kinds.map(([one, many]) => count(one, one, many)).join(", ");
}

/** Who plays a move, and of a key move, how many stronger or weaker players do. */
function likely(probability, rank, rating, shares) {
  if (probability === undefined) return "";
  const who = rating ? `players rated ${rating}` : "players";
  const share = probability < 0.001 ? `Hardly any ${who} play it` : `${percent(probability)} of ${who} play it`;
  const wanted = rating + (rating + STRONGER > shares.at(-1)?.rating ? -STRONGER : STRONGER);
  const other = shares.toSorted((a, b) => Math.abs(a.rating - wanted) - Math.abs(b.rating - wanted))[0];
  return `${share}${other ? `, at ${other.rating} ${percent(other.probability)}` : rank === 1 ? ", more than any other move" : ""}.`;
}

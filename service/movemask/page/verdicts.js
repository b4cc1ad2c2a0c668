// A verdict on a move in two parts that have nothing to do with each other: what it cost, by the engine, and how many would
// play it, by the network. Both figures are the service's.

import { counted, percent } from "./dom.js";

export const MARKS = { inaccuracy: "?!", mistake: "?", blunder: "??" };
const NAMES = { inaccuracy: "Inaccuracy", mistake: "Mistake", blunder: "Blunder" };
const BASES = { rules: "by the rules", evaluations: "by the PGN's evaluations" };
const KEYS = 5; // most key moves of a game
const SLIGHT = 3; // and of one without mistakes
const FEW = 0.2; // a surprising move is played by less
const FAULTS = ["allows_mate", "misses_mate", "stalemates"];
const CLEAR = 0.05; // of a full point, by which a move is called better
const STRONGER = 400; // Elo points that the other players have whose share is told

/**
 * The verdict `{kind, name, cost, basis, judged, human, text}` on a move: what the service says of its cost and of its likelihood.
 * `rating` is the mover's, undefined for a network that takes none; `shares` are a key move's `{rating, probability}`. `kind` is a
 * mark; "fault" if nothing tells the cost of what the rules know to be one; or "". `basis` is what the cost stands on; `judged` says
 * that it is more than the rules.
 */
export function verdictOf({ lost, mark, fact, reason, source, nodes }, { probability, rank }, rating, shares = []) {
  const points = lost === undefined ? "" : pointsOf(lost),
    basis = points && (BASES[source] ?? `by the engine at ${nodes?.toLocaleString("en")} nodes`);
  return {
    kind: mark ?? (lost === undefined && FAULTS.includes(fact) ? "fault" : ""),
    name: NAMES[mark] ?? "",
    cost: [NAMES[mark], points].filter(Boolean).join(", "),
    basis,
    judged: lost !== undefined && source !== "rules",
    human: percent(probability),
    text: [reason && `It ${reason}.`, points && `It cost ${inPoints(points)}, ${basis}.`, likely(probability, rank, rating, shares)]
      .filter(Boolean)
      .join(" "),
  };
}

/** That a move is better than the one that was played instead, where the difference is clear and it is no mistake; else "". */
export function betterThan(san, instead, { lost, mark }) {
  const better = instead - lost >= CLEAR && !["mistake", "blunder"].includes(mark);
  return better ? `Better than ${san}, which cost ${inPoints(pointsOf(instead))}. ` : "";
}

/**
 * The plies of the key moves, by the costs of all moves: the mistakes and blunders that cost most, and what the rules alone know
 * to be a fault. Where there are none and all is `known`, those of the costliest inaccuracies.
 */
export function keyPlies(costs, known) {
  const all = [...costs.entries()],
    faults = all.filter(
      ([, { lost, mark, fact }]) => ["mistake", "blunder"].includes(mark) || (lost === undefined && FAULTS.includes(fact)),
    ),
    slight = known ? all.filter(([, { mark }]) => mark) : [];
  const [keys, most] = faults.length ? [faults, KEYS] : [slight, SLIGHT];
  return pliesOf(
    keys.toSorted(([, a], [, b]) => (b.lost ?? 0) - (a.lost ?? 0)),
    most,
  );
}

/** The plies of the most surprising moves, by the reports on all moves: of those that few would play, those that fewest would. */
export const surprisingPlies = (reports) =>
  pliesOf(
    [...reports.entries()]
      .filter(([, { probability, rank }]) => rank > 1 && probability < FEW)
      .sort(([, a], [, b]) => a.probability - b.probability),
    KEYS,
  );

/** The plies of the first so many moves, in the order of the game. */
const pliesOf = (moves, most) =>
  moves
    .slice(0, most)
    .map(([ply]) => ply)
    .sort((a, b) => a - b);

/** A cost in points, rounded down as the service does it: 9.6 points have the mark of less than 10. */
const pointsOf = (lost) => `${Math.floor(100 * lost + 1e-9)}`;

/** A number of points in words. */
const inPoints = (points) => (points === "0" ? "nothing" : counted(Number(points), "point"));

/** How many inaccuracies, mistakes and blunders there are, in words. */
export function countsOf(verdicts) {
  const count = (wanted) => verdicts.filter(({ kind }) => kind === wanted).length;
  return Object.keys(MARKS)
    .map((mark) => counted(count(mark), mark))
    .join(", ");
}

/** Who plays a move, and of a key move, how many stronger or weaker players do. */
function likely(probability, rank, rating, shares) {
  if (probability === undefined) return "";
  const who = rating ? `players rated ${rating}` : "players";
  const share = `${percent(probability)} of ${who} play it`;
  const wanted = rating + (rating + STRONGER > shares.at(-1)?.rating ? -STRONGER : STRONGER);
  const other = shares.toSorted((a, b) => Math.abs(a.rating - wanted) - Math.abs(b.rating - wanted))[0];
  return `${share}${other ? `, at ${other.rating} ${percent(other.probability)}` : rank === 1 ? ", more than any other move" : ""}.`;
}

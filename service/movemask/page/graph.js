// The graph under the board: White's chances by the evaluations, and the surprise of each move. A click goes to the move.

import { percent, svg } from "./dom.js";

const NATS = 5; // surprise at the full height
const RARE = 0.05; // of a move; below, its bar is red, as its mark in the list

/**
 * `scores` are White's expected scores before each move and after the last, undefined where unknown; `reports` those
 * of the moves; `at` is the number of moves played on the board; `nameOf` gives the move that led to a ply; `moments`
 * are the plies of key moves.
 */
export function showGraph(root, { scores, reports, nameOf, moments, at, goTo }) {
  const count = Math.max(1, reports.length);
  const picture = svg("svg", { viewBox: `0 0 ${count} 1`, preserveAspectRatio: "none", role: "img", "aria-label": told(scores, reports) });
  const runs = runsOf(scores).map((run) => ({ from: run[0][0], to: run.at(-1)[0], line: run.map(([x, y]) => `${x},${y}`).join("L") }));
  const path = (kind, drawn) => runs.length && picture.append(svg("path", { class: kind, d: runs.map(drawn).join("") }));
  path("known", ({ from, to }) => `M${from},0H${to}V1H${from}Z`);
  path("area", ({ from, to, line }) => `M${from},1L${line}L${to},1Z`);
  picture.append(svg("path", { class: "half", d: `M0,.5H${count}` }));
  reports.forEach(({ surprise, probability }, ply) => {
    if (surprise === undefined || surprise === null) return;
    const height = Math.min(1, surprise / NATS);
    const kind = probability < RARE ? "surprise rare" : "surprise";
    picture.append(svg("rect", { class: kind, x: ply + 0.2, y: 1 - height, width: 0.6, height }));
  });
  path("score", ({ line }) => `M${line}`);
  for (const ply of moments) picture.append(svg("path", { class: "moment", d: `M${ply - 0.5},0V.2` }));
  if (reports.length) picture.append(svg("path", { class: "now", d: `M${at},0V1` }));
  const ply = (event) => {
    const box = picture.getBoundingClientRect();
    return Math.round((count * (event.clientX - box.left)) / box.width);
  };
  picture.addEventListener("click", (event) => goTo(ply(event)));
  picture.addEventListener("pointermove", (event) => {
    const here = Math.min(Math.max(0, ply(event)), reports.length);
    root.title = [here ? nameOf(here) : "the start", ...sentence(scores[here], reports[here - 1])].join(", ");
  });
  root.replaceChildren(picture);
}

/** The points `[x, y]` of the curve, in runs: where nothing is known of two positions or more, it has a gap. */
function runsOf(scores) {
  const runs = [];
  scores.forEach((score, ply) => {
    if (score === undefined) return;
    const run = runs.at(-1),
      point = [ply, (1 - score).toFixed(4)];
    if (run && ply - run.at(-1)[0] <= 2) run.push(point);
    else runs.push([point]);
  });
  return runs.filter((run) => run.length > 1);
}

function sentence(score, report) {
  const parts = [];
  if (score !== undefined) parts.push(`White ${percent(score)}`);
  if (report?.surprise !== undefined) parts.push(`surprise ${report.surprise?.toFixed(1) ?? "beyond numbers"} nats`);
  return parts;
}

function told(scores, reports) {
  const rare = reports.filter((report) => report.probability < RARE).length;
  const last = scores.findLast((score) => score !== undefined);
  const chances = last === undefined ? "" : ` White's final expected score: ${percent(last)}.`;
  return `White's chances and the surprise of ${reports.length} moves, ${rare} of them under 5 %.${chances}`;
}

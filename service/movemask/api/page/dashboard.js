// The dashboard: what has leaked so far, from the audit's figures. It asks again every few seconds while it is looked at.

import { call } from "./api.js";
import { lineChart } from "./chart.js";
import { byId, element, percent, table } from "./dom.js";
import { CAUSES } from "./lens.js";
import { bar } from "./moves.js";
import { picture } from "./squares.js";
import { hashOf } from "./state.js";

const EVERY = 5_000; // ms between looks at the figures; the rest is read only if they have changed
const WORST = 8;
const FLIPS = 0.25; // of the positions: above, monitoring/alerts.yml warns too
const GROUPS = { cause: "Cause", phase: "Phase", elo: "Rating" };

let timer, counted = "", said = () => {};

/** Shows the dashboard and follows it until `stop`; `report` is told of every error, and of its end by null. */
export function follow(report) {
  said = report;
  counted = "";
  return look();
}

export function stop() {
  clearTimeout(timer);
  timer = undefined;
}

/** Reads everything again, as after another choice of buckets. */
export function again() {
  counted = "";
  look();
}

async function look() {
  clearTimeout(timer);
  timer = setTimeout(look, EVERY);
  if (document.hidden) return;
  try {
    const figures = await call("v1/leakage");
    byId("fresh").textContent = `As of ${new Date(1000 * figures.freshness.as_of).toLocaleTimeString()}; read again every ${EVERY / 1000} seconds.`;
    const count = JSON.stringify(Object.entries(figures.models).map(([name, model]) => [name, model.digest, model.positions]));
    if (count !== counted && timer !== undefined) {
      cards(figures.models);
      const parts = await Promise.allSettled([history(), groups(), worst(), models()]);
      counted = count;
      const failed = parts.find((part) => part.status === "rejected"); // a key may not read the positions, say
      if (failed) throw failed.reason;
    }
    if (timer !== undefined) said(null);
  } catch (error) {
    if (timer === undefined) return; // another view is shown by now
    said(error);
    clearTimeout(timer);
    timer = setTimeout(look, 1000 * Math.max(error.retryAfter ?? 0, 2 * (EVERY / 1000)));
  }
}

function cards(models) {
  const entries = Object.entries(models);
  byId("cards").replaceChildren(...(entries.length ? entries.map(card) : [element("p", {}, "Nothing has been asked yet. ", element("a", { href: "#play" }, "Play a move"), " and come back.")]));
}

function card([name, model]) {
  const { raw, multiplied, served } = model.kinds;
  const findings = judged(model);
  return element("article", { className: findings.length ? "alarm" : "", "aria-label": name },
    element("h3", {}, name), element("p", { className: "verdict" }, findings.length ? findings.join(" ") : "Normal."),
    table(`Leakage of ${name}`, ["way to mask", "mean", "p99", "max", "top move changed"], [
      ["served", percent(served.mean), percent(served.p99), percent(served.max), "–"],
      ["no mask (raw)", percent(raw.mean), percent(raw.p99), percent(raw.max), share(raw)],
      ["multiplied", percent(multiplied.mean), percent(multiplied.p99), percent(multiplied.max), share(multiplied)],
    ]),
    element("p", { className: "quiet" }, `${model.positions.toLocaleString()} position${model.positions === 1 ? "" : "s"}. `,
      model.trained_with_mask ? "Trained with the mask: raw means nothing." : "Served is always 0; raw is how well the network knows the rules; multiplied is what that mistake would cost."));
}

const share = (kind) => (kind.count ? percent(kind.flips / kind.count) : "–");

/** What is not normal of a model's figures, by docs/leakage.md. */
function judged({ kinds: { raw, served }, trained_with_mask: masked }) {
  const found = [];
  if (served.max > 0) found.push("Not normal: an answer held illegal moves. Report this bug.");
  if (!masked && raw.count >= 20 && raw.flips / raw.count > FLIPS) {
    found.push("Not normal: an illegal move comes first in many positions. Run movemask models check --diagnose.");
  }
  return found;
}

async function history() {
  const { models } = await call(`v1/leakage/history?bucket=${byId("bucket").value}`);
  const starts = [...new Set(Object.values(models).flatMap((model) => model.buckets.map((bucket) => bucket.start)))].sort((one, other) => one - other);
  if (!starts.length) return byId("history").replaceChildren(element("p", { className: "quiet" }, "No figures yet."));
  const written = new Intl.DateTimeFormat(undefined, byId("bucket").value === "1d" ? { month: "short", day: "numeric" } : { hour: "2-digit", minute: "2-digit" });
  lineChart(byId("history"), {
    xs: starts, names: starts.map((start) => written.format(1000 * start)), axis: "time",
    label: "Mean leakage without a mask, by model, over time",
    series: Object.entries(models).map(([name, model]) => {
      const means = new Map(model.buckets.map((bucket) => [bucket.start, bucket.kinds.raw?.mean ?? null]));
      return { name, values: starts.map((start) => means.get(start) ?? null) };
    }),
  });
}

async function groups() {
  const answers = await Promise.all(Object.keys(GROUPS).map((by) => call(`v1/leakage?by=${by}`)));
  byId("groups").replaceChildren(...Object.entries(GROUPS).map(([by, title], index) => {
    const models = Object.entries(answers[index].models);
    const tables = models.filter(([, model]) => Object.keys(model.by?.[by] ?? {}).length).map(([name, model]) => {
      const rows = Object.entries(model.by?.[by] ?? {}).map(([group, figures]) => {
        const size = by === "cause" ? figures.share : figures.kinds.raw?.mean;
        return { group, size: size ?? 0, positions: figures.positions };
      });
      if (by === "cause") rows.sort((one, other) => other.size - one.size);
      const longest = by === "cause" ? 1 : Math.max(...rows.map((row) => row.size)) || 1;
      return table(`${name} by ${title.toLowerCase()}`, [name, by === "cause" ? "share of raw" : "mean raw", "positions"],
        rows.slice(0, 11).map((row) => [(CAUSES[row.group] ?? row.group).replaceAll("_", " "),
          element("span", { className: "measure" }, bar(row.size / longest, "illegal"), percent(row.size)), row.positions.toLocaleString()]));
    });
    return element("section", {}, element("h4", {}, title), ...tables);
  }));
}

async function worst() {
  const kind = byId("worst-kind").value;
  const { positions } = await call(`v1/leakage/worst?kind=${kind}&limit=${WORST}`);
  byId("worst").replaceChildren(...positions.map((position) => {
    const arrows = position.illegal.map((move) => ({ ...move, kind: "illegal" }));
    const said = `${position.model}, ${percent(position[kind])} to illegal moves`;
    const rating = position.elo ? { [position.turn]: position.elo } : {};
    const href = hashOf({ view: "lens", fen: position.fen, moves: [], at: 0, chess960: position.chess960, model: position.model, flip: position.turn === "black", opponent: "", ...rating });
    return element("a", { href }, picture(position.fen, { arrows, flip: position.turn === "black", label: `${said}: ${position.fen}` }),
      element("span", {}, `${position.model} ${percent(position[kind])}`));
  }));
  if (!positions.length) byId("worst").replaceChildren(element("p", { className: "quiet" }, "None yet."));
}

async function models() {
  const { models } = await call("v1/models");
  byId("models").replaceChildren(table("Models", ["Model", "State", "Licence", "Source", "Input", "Vocabulary", "Checks"], models.map((model) => {
    const failed = model.check?.find((step) => !step.passed);
    const checks = !model.check ? "–" : element("details", {},
      element("summary", {}, failed ? `${failed.name} failed` : `${model.check.length} passed`),
      element("ul", {}, ...model.check.map((step) => element("li", {}, `${step.name}: ${step.found}`))));
    return [model.name + (model.default ? " (default)" : ""), model.served ? "served" + (model.rejected ? `; a change was rejected: ${model.rejected}` : "") : `not served: ${model.failure}`,
      model.card?.licence ?? "–", model.card?.source ?? "–", model.contract?.terms.planes ?? "–", model.contract?.terms.vocabulary ?? "–", checks];
  })));
}

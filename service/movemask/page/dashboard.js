// The dashboard: what has leaked so far, from the ledger's figures. It asks again every few seconds while it is looked at.

import { call } from "./api.js";
import { lineChart } from "./chart.js";
import { byId, counted, element, percent, quiet, table } from "./dom.js";
import { CAUSES } from "./lens.js";
import { bar } from "./moves.js";
import { picture } from "./squares.js";

const EVERY = 5_000; // ms between looks at the figures; the rest is read only if they have changed
const WORST = 8;
const FLIPS = 0.25; // of the positions: above, monitoring/alerts.yml warns too
const GROUPS = { cause: "Cause", phase: "Phase", elo: "Rating" };

let timer,
  known = "",
  drawn = "",
  said,
  addressOf; // `known` and `drawn`: the figures and the worst positions shown

/**
 * Shows the dashboard and follows it until `stop`; `report` is told of every error, and of its end by null; `hashOf` gives
 * the address of a position.
 */
export function follow(report, hashOf) {
  said = report;
  addressOf = hashOf;
  known = "";
  return look();
}

export function stop() {
  clearTimeout(timer);
  timer = undefined;
}

/** Reads everything again, as after another choice of buckets. */
export function again() {
  known = "";
  look();
}

async function look() {
  clearTimeout(timer);
  timer = setTimeout(look, EVERY);
  if (document.hidden) return;
  try {
    const found = await figuresOf("v1/leakage?");
    await standing();
    const count = JSON.stringify(Object.entries(found.models).map(([name, model]) => [name, model.digest, model.positions]));
    if (count !== known && timer !== undefined) {
      offerFiles(found.models);
      offerKinds(Object.keys(found.models));
      figures(found.models);
      const parts = await Promise.allSettled([history(), groups(), worst(), models()]);
      known = count;
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

/** What the service says of the network's file that was chosen, or of the latest under each name. */
const figuresOf = (path) => call(`${path}${byId("file").value && `&digest=${byId("file").value}`}`);

/** Offers the other files that have answered under a model's name. */
function offerFiles(models) {
  if (byId("file").value) return; // what is shown now is one of them
  const others = Object.entries(models).flatMap(([name, { other_digests: digests = [] }]) =>
    digests.map((digest) => new Option(`${name}, file ${digest.slice(7, 15)}`, digest)),
  );
  byId("file").replaceChildren(new Option("the latest files", ""), ...others);
  byId("file-field").hidden = !others.length;
}

/** Offers what the worst positions are ranked by: a multiplied mask's leakage cannot be compared between networks. */
function offerKinds(names) {
  const select = byId("worst-kind"),
    kinds = names.map((name) => [`multiplied mask, ${name}`, `multiplied&model=${encodeURIComponent(name)}`]);
  const options = [["no mask (raw)", "raw"], ...kinds].map(([words, kind]) => new Option(words, kind, false, kind === select.value));
  const stands = options.map(({ value }) => value).join() === [...select.options].map(({ value }) => value).join();
  if (!stands) select.replaceChildren(...options); // else it may be open
}

/** The figures of every model, side by side. */
function figures(models) {
  const names = Object.keys(models),
    all = Object.values(models);
  const of = (kind) => [
    ...["mean", "p99", "max"].map((figure) => [figure, ({ kinds }) => percent(kinds[kind][figure])]),
    ["top move changed", ({ kinds }) => share(kinds[kind])],
  ];
  const under = (name, rows) => rows.map(([figure, cell]) => [`${name}, ${figure}`, cell]);
  const rows = [
    ["positions", (model) => model.positions.toLocaleString()],
    ["served, mean", ({ kinds }) => percent(kinds.served.mean)],
    ...under("no mask (raw)", of("raw")),
    ...under("multiplied", of("multiplied")),
  ].map(([name, cell]) => [name, ...all.map(cell)]);
  byId("verdicts").replaceChildren(...names.map((name) => verdict(name, models[name])));
  const masked = names
    .filter((name) => models[name].trained_with_mask)
    .map((name) => quiet(`${name} was trained with the mask: its raw means nothing.`));
  byId("figures").replaceChildren(
    ...(names.length
      ? [table("Leakage by model", ["figure", ...names], rows), ...masked]
      : [element("p", {}, "No positions yet. ", element("a", { href: "#play" }, "Play a move"), " and come back here.")]),
  );
}

/** Whether a model's figures are normal, and the three that say it. */
function verdict(name, model) {
  const found = judged(model),
    { served, raw } = model.kinds;
  const number = (what, value) => element("div", {}, element("dt", {}, what), element("dd", {}, value));
  return element(
    "article",
    { className: "verdict", "aria-label": name },
    element("h3", {}, name, element("span", { className: found.length ? "alarm" : "normal" }, found.length ? "not normal" : "normal")),
    element(
      "dl",
      {},
      number("positions", model.positions.toLocaleString()),
      number("served, mean", percent(served.mean)),
      number("no mask, mean", percent(raw.mean)),
    ),
    ...found.map((finding) => element("p", { className: "alarm" }, finding)),
  );
}

const share = (kind) => (kind.count ? percent(kind.flips / kind.count) : "–");

/** What is not normal of a model's figures, by docs/leakage.md. */
function judged({ kinds: { raw, served }, trained_with_mask: masked }) {
  const found = [];
  if (served.max > 0) found.push("Not normal: an answer had illegal moves and was withheld. Report this bug.");
  if (!masked && raw.count >= 20 && raw.flips / raw.count > FLIPS) {
    found.push("Not normal: an illegal move comes first in many positions. Run movemask models check --diagnose.");
  }
  return found;
}

async function history() {
  const { models } = await figuresOf(`v1/leakage/history?bucket=${byId("bucket").value}`);
  const starts = [...new Set(Object.values(models).flatMap((model) => model.buckets.map((bucket) => bucket.start)))].sort(
    (one, other) => one - other,
  );
  if (!starts.length) return byId("history").replaceChildren(quiet("No figures yet."));
  const written = new Intl.DateTimeFormat(
    undefined, // a day is the service's, from midnight in UTC
    byId("bucket").value === "1d" ? { month: "short", day: "numeric", timeZone: "UTC" } : { hour: "2-digit", minute: "2-digit" },
  );
  lineChart(byId("history"), {
    xs: starts,
    names: starts.map((start) => written.format(1000 * start)),
    axis: "time",
    label: "Mean leakage without a mask, by model, over time",
    series: Object.entries(models).map(([name, model]) => {
      const means = new Map(model.buckets.map((bucket) => [bucket.start, bucket.kinds.raw?.mean ?? null]));
      return { name, values: starts.map((start) => means.get(start) ?? null) };
    }),
  });
}

async function groups() {
  const answers = await Promise.all(Object.keys(GROUPS).map((by) => figuresOf(`v1/leakage?by=${by}`)));
  byId("groups").replaceChildren(
    ...Object.entries(GROUPS).map(([by, title], index) => {
      const models = Object.entries(answers[index].models).filter(([, model]) => Object.keys(model.by?.[by] ?? {}).length);
      const size = (figures) => (by === "cause" ? figures?.share : figures?.kinds.raw?.mean);
      const names = [...new Set(models.flatMap(([, model]) => Object.keys(model.by[by])))];
      const largest = (name) => Math.max(...models.map(([, model]) => size(model.by[by][name]) ?? 0));
      if (by === "elo") names.sort((one, other) => one.localeCompare(other, undefined, { numeric: true }));
      if (by === "cause") names.sort((one, other) => largest(other) - largest(one));
      const rest = (model) => Math.max(0, 1 - Object.values(model.by.cause ?? {}).reduce((sum, { share }) => sum + (share ?? 0), 0));
      const longest = by === "cause" ? 1 : Math.max(...names.map(largest)) || 1;
      const heads = models.flatMap(() => [by === "cause" ? "share of raw" : "mean raw", "positions"]);
      const measure = (share) => element("span", { className: "measure" }, bar((share ?? 0) / longest, "illegal"), percent(share));
      const shown = models.length > 1 ? percent : measure; // bars where there is room
      const heading = (name) => (CAUSES[name] ?? name).replaceAll("_", " ").replaceAll("-", "\u2011");
      const rows = names.map((name) => [
        heading(name),
        ...models.flatMap(([, model]) => {
          const found = model.by[by][name];
          return [shown(size(found)), found ? found.positions.toLocaleString() : "–"];
        }),
      ]);
      if (by === "cause" && rows.length && models.some(([, model]) => rest(model) > 0.001)) {
        rows.push(["the rest", ...models.flatMap(([, model]) => [shown(rest(model)), "–"])]);
      }
      const small = title.toLowerCase(),
        above = models.map(([name]) => name);
      const content = rows.length ? table(`By ${small}`, [small, ...heads], rows, above) : quiet("No figures yet.");
      const region = { className: "scroll", tabIndex: 0, role: "region", "aria-label": title };
      return element("section", region, element("h4", {}, title), content);
    }),
  );
}

async function worst() {
  const ranked = byId("worst-kind").value,
    [kind] = ranked.split("&");
  const { positions } = await figuresOf(`v1/leakage/worst?kind=${ranked}&limit=${WORST}`);
  const found = JSON.stringify([ranked, positions]);
  if (byId("worst-kind").value !== ranked) return; // another was chosen meanwhile
  if (found === drawn) return; // a link that is replaced while it is pressed is not followed
  drawn = found;
  byId("worst").replaceChildren(
    ...positions.map((position) => {
      const { fen, chess960, model, turn, elo, raw, illegal } = position,
        leaked = position[kind];
      const arrows = illegal.map((move) => ({ ...move, kind: "illegal" })),
        flip = turn === "black",
        label = `${model}, ${percent(leaked)} to illegal moves: ${fen}`;
      const ratings = elo ? { white: elo, black: elo } : {}, // the opponent's is not known
        line = { fen, chess960, recorded: raw ?? 0, moves: [], at: 0, game: "", you: "", headers: {} };
      const href = addressOf({ view: "lens", ...line, model, flip, ...ratings });
      return element("a", { href }, picture(fen, { arrows, flip, label }), element("span", {}, `${model} ${percent(leaked)}`));
    }),
  );
  if (!positions.length) byId("worst").replaceChildren(quiet("None yet."));
}

async function models() {
  const { models } = await call("v1/models");
  const state = (model) => (model.served ? "served" : `not served: ${model.failure}`);
  const checks = ({ check }) => {
    if (!check) return "–";
    const failed = check.find((step) => !step.passed);
    return element(
      "details",
      {},
      element("summary", {}, failed ? `${failed.name} failed` : `${check.length} passed`),
      element("ul", {}, ...check.map((step) => element("li", {}, `${step.name}: ${step.found}`))),
    );
  };
  const rows = {
    State: state,
    Licence: (model) => model.card?.licence ?? "–",
    Source: (model) => model.card?.source ?? "–",
    Input: (model) => model.contract?.terms.planes ?? "–",
    Vocabulary: (model) => model.contract?.terms.vocabulary ?? "–",
    Checks: checks,
  };
  byId("models").replaceChildren(
    table(
      "Models",
      ["model", ...models.map((model) => model.name + (model.default ? " (default)" : ""))],
      Object.entries(rows).map(([name, cell]) => [name, ...models.map(cell)]),
    ),
  );
}

/** The state of the service in one line. Where keys are set, only some see the queue. */
async function standing() {
  const { waiting, ledger } = await call("readyz");
  const parts = [`refreshed every ${EVERY / 1000} s`];
  if (ledger) {
    const lost = ledger.lost ? `, ${ledger.lost} lost` : "";
    parts.unshift(`queue: ${counted(waiting, "position")}`, `${counted(ledger.waiting, "record")} waiting${lost}`);
  }
  byId("fresh").textContent = `${parts.join(" · ")}.`;
}

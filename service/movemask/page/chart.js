// Line charts in SVG: names at the lines' ends, a rule under the pointer, and the same figures as a table.

import { element, percent, svg } from "./dom.js";

const HEIGHT = 300;
const TOP = 12,
  BOTTOM = 34;
const ASIDE = 0.35; // of the width, for names at the ends; longer ones stand below
export const COLOURS = 7; // .series-0 to .series-6 in style.css

const pen = document.createElement("canvas").getContext("2d");
pen.font = `600 12px ${getComputedStyle(document.body).fontFamily}`; // the widest text of a chart: names at the lines' ends
const widest = (texts) => Math.max(...texts.map((text) => pen.measureText(text).width));

/**
 * Draws `series`, each with a name and a value (0 to 1, or null) for every x.
 * `marks` are labelled rules across the chart, `label` says what a screen reader is told.
 */
export function lineChart(root, { xs, names = xs.map(String), series, marks = [], label, axis }) {
  const top = niceTop(Math.max(0.001, ...series.flatMap((one) => one.values.filter((value) => value !== null))));
  const width = Math.min(720, Math.max(320, root.clientWidth || 640)); // so that letters keep their size
  const steps = [0, 1, 2, 3, 4].map((step) => (top * step) / 4);
  const labelOf = (value) => `${Number((100 * value).toPrecision(3))}\u00a0%`;
  const left = 10 + widest(steps.map(labelOf));
  const aside = 10 + widest(series.map((one) => one.name));
  const below = aside > ASIDE * width;
  const right = below ? 32 : aside;
  const [low, high] = [xs[0], xs[xs.length - 1]];
  const x = (value) => (high === low ? left + (width - left - right) / 2 : left + ((value - low) / (high - low)) * (width - left - right));
  const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label });

  for (const value of steps) {
    picture.append(
      svg("path", { class: "grid", d: `M${left},${y(value)}H${width - right}` }),
      svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, labelOf(value)),
    );
  }
  const room = 10 + widest(names);
  const every = Math.max(1, Math.ceil((xs.length * room) / (width - left - right)));
  xs.forEach((value, index) => {
    if (index % every) return;
    picture.append(svg("text", { x: x(value), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, names[index]));
  });
  picture.append(svg("text", { x: (left + width - right) / 2, y: HEIGHT - 3, "text-anchor": "middle", class: "axis" }, axis));
  for (const mark of marks) {
    picture.append(svg("path", { class: "mark", d: `M${x(mark.at)},${TOP}V${HEIGHT - BOTTOM}` }, svg("title", {}, mark.name)));
  }

  const ends = [];
  series.forEach((one, index) => {
    const points = xs.map((value, place) => [x(value), one.values[place]]).filter(([, value]) => value !== null);
    if (!points.length) return;
    const colour = `series series-${index % COLOURS} ${one.emphasis ? "emphasis" : ""}`;
    picture.append(
      svg("path", {
        class: colour,
        d: points.map(([px, value], place) => `${place ? "L" : "M"}${px.toFixed(1)},${y(value).toFixed(1)}`).join(""),
      }),
    );
    if (points.length < 3)
      picture.append(...points.map(([px, value]) => svg("circle", { class: `${colour} dot`, cx: px, cy: y(value), r: 3 })));
    const [, lastValue] = points[points.length - 1];
    ends.push({ at: y(lastValue), name: one.name, colour });
  });
  spread(ends, 13, TOP + 4, HEIGHT - BOTTOM);
  if (!below)
    for (const end of ends) picture.append(svg("text", { x: width - right + 6, y: end.at + 4, class: `end ${end.colour}` }, end.name));

  const rule = svg("path", { class: "rule", hidden: "" });
  picture.append(rule);
  const told = element("p", { className: "told quiet", "aria-hidden": "true" }, "\u00a0");
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const px = ((event.clientX - box.left) / box.width) * width;
    const nearest = xs.reduce((best, value, index) => (Math.abs(x(value) - px) < Math.abs(x(xs[best]) - px) ? index : best), 0);
    rule.removeAttribute("hidden");
    rule.setAttribute("d", `M${x(xs[nearest])},${TOP}V${HEIGHT - BOTTOM}`);
    told.textContent = `${names[nearest]}: ${series.map((one) => `${one.name} ${percent(one.values[nearest])}`).join(", ")}`;
  });
  picture.addEventListener("pointerleave", () => {
    rule.setAttribute("hidden", "");
    told.textContent = "\u00a0";
  });
  const colours = ends.flatMap((end) => [element("span", { className: end.colour }, end.name), " "]);
  const legend = below ? [element("p", { className: "names" }, ...colours)] : [];
  root.replaceChildren(picture, ...legend, told);
}

/** The next round number above, so that the axis has four even steps. */
function niceTop(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return Math.min(1, power * [1, 2, 4, 6, 8, 10].find((top) => value <= power * top));
}

/** Moves labels apart until each has `room`. */
function spread(labels, room, top, bottom) {
  labels.sort((one, other) => one.at - other.at);
  let least = top;
  for (const label of labels) {
    label.at = Math.max(label.at, least);
    least = label.at + room;
  }
  let most = bottom;
  for (const label of [...labels].reverse()) {
    label.at = Math.min(label.at, most);
    most = label.at - room;
  }
}

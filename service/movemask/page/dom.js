// Elements in one call, and numbers as text.

const SVG = "http://www.w3.org/2000/svg";

/** @type {(id: string) => any} */
export const byId = (id) => document.getElementById(id);

/**
 * An HTML element. Properties are set as such; those with a dash, and `role`, as attributes.
 * @returns {any}
 */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined) continue;
    if (name.includes("-") || name === "role") made.setAttribute(name, value);
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made[name] = value;
  }
  made.append(...children);
  return made;
}

/**
 * An SVG element with attributes.
 * @returns {any}
 */
export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** A button. Without `does`, its surroundings listen. */
export const button = (does, properties = {}, ...children) =>
  element("button", { type: "button", onclick: does, ...properties }, ...children);

/** A paragraph that stands back. */
export const quiet = (text) => element("p", { className: "quiet" }, text);

/**
 * A table with a caption that only screen readers show; cells of the first column are headings. `groups` are headings
 * above the others, each of as many columns.
 */
export function table(caption, heads, rows, groups = []) {
  const above = groups.map((name) => element("th", { scope: "colgroup", colSpan: (heads.length - 1) / groups.length }, name));
  return element(
    "table",
    {},
    element("caption", { className: "spoken" }, caption),
    element(
      "thead",
      {},
      ...(above.length ? [element("tr", {}, element("td"), ...above)] : []),
      element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head))),
    ),
    element(
      "tbody",
      {},
      ...rows.map(([first, ...rest]) =>
        element("tr", {}, element("th", { scope: "row" }, first), ...rest.map((cell) => element("td", {}, cell))),
      ),
    ),
  );
}

/** Shows other children in an element. A button of it that has the focus hands it to the one in its place, or else to the element. */
export function refill(root, ...children) {
  const buttons = () => [...root.querySelectorAll("button")],
    place = buttons().indexOf(document.activeElement);
  root.replaceChildren(...children);
  if (place >= 0) (buttons()[place] ?? buttons().at(-1) ?? Object.assign(root, { tabIndex: -1 })).focus({ preventScroll: true });
}

/** As `refill`, of a list of buttons that scrolls: the current one comes into sight where it is another. True if it is. */
export function follow(root, ...children) {
  const current = () => [...root.querySelectorAll("button")].findIndex((button) => button.hasAttribute("aria-current")),
    before = current();
  refill(root, ...children);
  if (current() === before) return false;
  requestAnimationFrame(() => {
    // by then the browser has laid it out anyway
    const button = root.querySelector("[aria-current]");
    if (button) root.scrollTop = button.offsetTop - root.clientHeight / 2;
  });
  return true;
}

/** Writes words into a live region, unless they stand there: what is written again is read out again. */
export function say(root, ...words) {
  if (root.textContent !== words.map((word) => word.textContent ?? word).join("")) root.replaceChildren(...words);
}

/** A probability as text: two digits that matter, three from 10 % on, "< 0.001 %" for less, "0 %" only for nothing at all. */
export function percent(share) {
  if (share === null || share === undefined) return "–";
  const value = 100 * share;
  if (value === 100) return "100\u00a0%";
  if (value === 0) return "0\u00a0%";
  if (value >= 9.95) return `${value > 99.9 ? Math.min(value, 99.99).toFixed(2) : value.toFixed(1)}\u00a0%`;
  return value < 0.001 ? "<\u00a00.001\u00a0%" : `${value.toPrecision(2)}\u00a0%`;
}

/** A number of things: "1 game", "1,200 inaccuracies". */
export const counted = (number, thing) => `${number.toLocaleString("en")} ${number === 1 ? thing : `${thing.replace(/y$/, "ie")}s`}`;

/** A time to wait, as people say it: "about 20 minutes". */
export function lasting(ms) {
  const minutes = ms / 60_000;
  if (minutes < 1) return "less than a minute";
  if (minutes >= 90) return `about ${counted(Math.round(minutes / 60), "hour")}`;
  return `about ${counted(minutes < 10 ? Math.round(minutes) : 5 * Math.round(minutes / 5), "minute")}`;
}

/** Runs `work` once, `wait` ms after the last call. */
export function settled(work, wait) {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), wait);
  };
}

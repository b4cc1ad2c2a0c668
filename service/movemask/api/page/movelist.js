// The moves of a game in two columns, with its comments and variations between them.

import { element, percent } from "./dom.js";
import { GLYPHS, numbered, pathTo, readable } from "./tree.js";

/** Shows a tree; `current` is the node on the board, `reportOf` says how likely a move was, `goTo` gets a path. */
export function showMoves(root, { tree, first, current, reportOf, goTo }) {
  const list = { current, reportOf, goTo };
  root.replaceChildren(...comment(tree.root.comment), ...columns(tree.root, first, list));
  requestAnimationFrame(() => { // by then the browser has laid it out anyway
    const button = root.querySelector("[aria-current]");
    root.scrollTop = button ? button.offsetTop - root.clientHeight / 2 : 0;
  });
}

/** The main line: a number, White's move and Black's in each row; comments and variations take a row of their own. */
function columns(node, ply, list) {
  const cells = [];
  const number = () => element("span", { className: "number quiet" }, numbered(ply, "."));
  const gap = () => element("span", { className: "gap quiet" }, "…");
  let open = false; // whether the row has White's move and waits for Black's
  for (; node.children.length; node = node.children[0], ply++) {
    const [main, ...others] = node.children;
    if (ply % 2 && !open) cells.push(number(), gap());
    else if (!(ply % 2)) cells.push(number());
    cells.push(button(main, list));
    open = ply % 2 === 0;
    const between = [...comment(main.comment), ...others.map((other) => variation(other, ply, list))];
    if (!between.length) continue;
    if (open) cells.push(gap());
    cells.push(...between);
    open = false;
  }
  return cells;
}

const comment = (text) => (readable(text) ? [element("p", { className: "comment" }, readable(text))] : []);

/** A variation in running text, those inside it in brackets. */
function variation(node, ply, list) {
  return element("p", { className: "variation" }, ...inline(node, ply, list));
}

function inline(node, ply, list) {
  const words = [readable(node.before), numbered(ply), button(node, list), readable(node.comment)];
  let told = Boolean(readable(node.comment));
  for (ply++; node.children.length; node = node.children[0], ply++) {
    const [main, ...others] = node.children;
    if (told || ply % 2 === 0) words.push(numbered(ply));
    words.push(button(main, list), readable(main.comment), ...others.flatMap((other) => ["(", ...inline(other, ply, list), ")"]));
    told = Boolean(readable(main.comment)) || others.length > 0;
  }
  return words.filter(Boolean).flatMap((word) => [word, " "]);
}

function button(node, { current, reportOf, goTo }) {
  const glyphs = (node.nags ?? []).map((nag) => GLYPHS[nag] ?? "").join("");
  const made = element("button", { type: "button", onclick: () => goTo(pathTo(node)) }, node.san + glyphs);
  const { probability, rank } = reportOf(node);
  if (probability !== undefined) {
    made.title = `${percent(probability)}, choice ${rank}`;
    made.classList.add(probability >= 0.2 ? "expected" : probability >= 0.05 ? "rare" : "surprising");
  }
  if (node === current) made.setAttribute("aria-current", "true");
  return made;
}

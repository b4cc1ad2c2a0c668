// The moves of a game in two columns, with its comments and variations between them.

import { button, element, follow, percent } from "./dom.js";
import { GLYPHS, firstPly, numbered, readable } from "./tree.js";

/**
 * Shows a tree; `current` is the node on the board, `reportOf` says how likely a node's move was, `markOf` what it cost, such
 * as "?"; `goTo` gets a path.
 */
export function showMoves(root, { tree, current, reportOf, markOf, goTo }) {
  const list = { tree, current, reportOf, markOf, goTo };
  const moved = follow(root, ...comment(tree.nodes[0].comment), ...columns(list));
  if (moved && !current) root.scrollTop = 0;
}

/** The main line: a number, White's move and Black's in each row; comments and variations take a row of their own. */
function columns(list) {
  const { tree } = list,
    cells = [];
  let ply = firstPly(tree.fen);
  const number = () => element("span", { className: "number quiet" }, numbered(ply, "."));
  const gap = () => element("span", { className: "gap quiet" }, "…");
  let open = false; // whether the row has White's move and waits for Black's
  for (let index = 0; tree.children(index).length; index = tree.children(index)[0], ply++) {
    const [main, ...others] = tree.children(index);
    if (ply % 2 && !open) cells.push(number(), gap());
    else if (!(ply % 2)) cells.push(number());
    cells.push(moveButton(main, list));
    open = ply % 2 === 0;
    const between = [...comment(tree.nodes[main].comment), ...others.map((other) => variation(other, ply, list))];
    if (!between.length) continue;
    if (open) cells.push(gap());
    cells.push(...between);
    open = false;
  }
  return cells;
}

const comment = (text) => (readable(text) ? [element("p", { className: "comment" }, readable(text))] : []);

/** A variation in running text, those inside it in brackets. */
function variation(index, ply, list) {
  return element("p", { className: "variation" }, ...inline(index, ply, list));
}

function inline(index, ply, list) {
  const { tree } = list,
    node = tree.nodes[index];
  const words = [readable(node.before), numbered(ply), moveButton(index, list), readable(node.comment)];
  let told = Boolean(readable(node.comment));
  for (ply++; tree.children(index).length; index = tree.children(index)[0], ply++) {
    const [main, ...others] = tree.children(index),
      said = readable(tree.nodes[main].comment);
    if (told || ply % 2 === 0) words.push(numbered(ply));
    words.push(moveButton(main, list), said, ...others.flatMap((other) => ["(", ...inline(other, ply, list), ")"]));
    told = Boolean(said) || others.length > 0;
  }
  return words.filter(Boolean).flatMap((word) => [word, " "]);
}

function moveButton(index, { tree, current, reportOf, markOf, goTo }) {
  const node = tree.nodes[index],
    glyphs = (node.nags ?? []).map((nag) => GLYPHS[nag] ?? "").join("") || markOf(index);
  const made = button(() => goTo(tree.path(index)), { "aria-current": index === current ? "true" : undefined }, node.san + glyphs);
  const { probability, rank } = reportOf(index);
  if (probability !== undefined) {
    made.title = `${percent(probability)}, choice ${rank}`;
    made.classList.add(probability >= 0.2 ? "expected" : probability >= 0.05 ? "rare" : "surprising");
  }
  return made;
}

// A coach's view: one player over many games, with positions to try again; to print, and as a PGN.

import { remembered } from "./api.js";
import { button, byId, counted, element, percent, quiet, table } from "./dom.js";
import { pgnOf, shared } from "./pgn.js";
import { gamesOf, likeness, playersOf, profileOf } from "./profile.js";
import { save } from "./share.js";
import { picture } from "./squares.js";
import { position } from "./state.js";
import { readStored, writeStored } from "./storage.js";
import { Tree, firstPly, numbered } from "./tree.js";

const MERGED = "movemask-names"; // under which the browser keeps which names are of one player

let games = []; // those of the list
let tryAgain, readAll; // plays a position again; has reports asked for
let named, modelOf; // what a request says of the model; a model by its name
let store; // of the page's state, which has the player who is looked at
let drawn = 0; // which drawing is the newest
let told = ""; // what is drawn, in brief

/**
 * Starts the view of the player whom the state of a store names. `again` is given `{pgn, ply, side}` of a move to find a better one for,
 * `model` gives what a request says of the model, `models` a model by its name, `read` has the games without reports read again.
 */
export function start({ store: one, again, model, models, read }) {
  [store, tryAgain, named, modelOf, readAll] = [one, again, model, models, read];
  byId("coach-player").onchange = ({ target }) => store.dispatch({ type: "set", name: "player", value: target.value });
  store.subscribe((state, before) => state.player !== before.player && show());
}

/** Which names are of one player, by the keys of the others. */
const merged = () => readStored(MERGED) ?? {};

/** Offers the players of the games that are listed, and shows the chosen one as far as the reports go. */
export function show(all = games) {
  games = all;
  const { player } = store.state,
    players = playersOf(all, merged()),
    chosen = players.find(({ key }) => key === player);
  const options = players.map(({ key, names, games: count }) => new Option(`${names[0]} (${count})`, key, false, key === player));
  byId("coach-player").replaceChildren(new Option("nobody", ""), ...options);
  byId("coach").hidden = !chosen;
  if (!chosen) return;
  const own = gamesOf(all, player, merged()),
    profile = profileOf(own, (name) => modelOf(name)?.card?.resemblance),
    brief = JSON.stringify([player, merged(), own.length, profile.read, profile.judged, Boolean(modelOf(profile.model))]);
  if (brief === told) return; // it keeps what is open and where the focus is
  told = brief;
  byId("coach-heading").textContent = chosen.names[0];
  byId("coach-body").replaceChildren(
    summary(profile, own),
    names(chosen, players),
    section("By phase of the game", phases(profile)),
    section(`By opening (${profile.openings.length})`, openings(profile)),
    section("Try again", costliest(profile)),
    differences(profile),
  );
  byId("coach-print").onclick = () => print();
  byId("coach-save").onclick = () => save("positions.pgn", "application/x-chess-pgn", shared(pgnOfPositions(profile)));
}

const section = (title, ...parts) => element("section", {}, element("h3", {}, title), ...parts);

/** A number with a digit after the point; a dash for none. */
const figure = (value) => value?.toFixed(1) ?? "–";

/** What was lost, in points. */
const points = (lost) => figure(lost === null ? null : 100 * lost);

/** A resembled rating in words. */
function rated(like) {
  if (!like) return "–";
  const rating = Math.round(like.rating / 10) * 10;
  if (like.end) return `${rating} or ${like.end === "low" ? "less" : "more"}`;
  return `${rating} ± ${Math.max(10, Math.round(like.within / 10) * 10)}`;
}

/** How many games there are and how far they are judged, accuracy and the resembled rating. */
function summary({ games: count, read, judged, accuracy, accurate, all, whole, model }, own) {
  const unread = count - read;
  const words = [
    `${counted(count, "game")}, ${judged} of them judged. ${all.judged} of ${all.moves} moves are judged: ` +
      `${counted(all.inaccuracies, "inaccuracy")}, ${counted(all.mistakes, "mistake")}, ${counted(all.blunders, "blunder")}.`,
    accuracy === null
      ? "No game is judged whole, so there is no accuracy."
      : `Accuracy by lichess's formula: ${figure(accuracy)} % (mean of ${accurate}).`,
    whole
      ? `The moves 7 to 36 are likeliest among players rated ${rated(whole)} on the network's scale, 9 of 10 times.`
      : "A resembled rating needs five games with moves 7 and more, and a network that takes ratings.",
    whole && !modelOf(model)?.card?.resemblance ? "This network's estimate has not been calibrated." : "",
  ];
  const readOthers = () => readAll(own.filter(({ game }) => !game.report).map(({ game }) => game));
  return element("p", {}, words.filter(Boolean).join(" "), ...(unread ? [" ", button(readOthers, {}, `Read the other ${unread}`)] : []));
}

/** The names that count as the player's, and others that may. */
function names(chosen, players) {
  const player = chosen.key,
    others = players
      .filter(({ key }) => key !== player)
      .map((other) => ({ ...other, like: likeness(other.key, player) }))
      .sort((a, b) => b.like - a.like || a.names[0].localeCompare(b.names[0], "en", { numeric: true }));
  const known = Object.entries(merged()).filter(([, main]) => main === player);
  const set = (key, on) => {
    const all = merged();
    if (on) for (const [other, main] of Object.entries(all)) if (main === key) all[other] = player;
    if (on) all[key] = player;
    else delete all[key];
    writeStored(MERGED, all);
    show();
  };
  const box = (key, text, checked) =>
    element("label", {}, element("input", { type: "checkbox", checked, onchange: ({ target }) => set(key, target.checked) }), ` ${text}`);
  return element(
    "details",
    { className: "unprinted", open: byId("coach-body").querySelector("details")?.open },
    element("summary", {}, `Names: ${chosen.names.join(", ")}`),
    quiet("Tick what else is a name of this player."),
    element(
      "div",
      { className: "inline spellings" },
      ...known.map(([key]) => box(key, key, true)),
      ...others.map(({ key, names: spelt }) => box(key, spelt[0], false)),
    ),
  );
}

/** Marks, cost and resembled rating by phase, and of all. */
function phases({ phases: found, all, whole }) {
  /** @type {(name: string, tally: any, like: any) => any[]} */
  const row = (name, { moves, judged, lost, inaccuracies, mistakes, blunders }, like) => [
    name,
    `${judged} of ${moves}`,
    points(lost),
    ...(judged ? [inaccuracies, mistakes, blunders].map(String) : ["–", "–", "–"]),
    rated(like),
  ];
  return scrolled(
    table(
      "By phase",
      ["Phase", "Moves judged", "Points lost a move", "Inaccuracies", "Mistakes", "Blunders", "Plays like"],
      [...found.map(({ name, like, ...tally }) => row(name, tally, like)), row("all", all, whole)],
    ),
  );
}

function openings({ openings: found }) {
  const rows = found.map(({ name, games: count, score, accuracy, judged, lost, mistakes, blunders }) => [
    name,
    String(count),
    percent(score),
    figure(accuracy),
    points(lost),
    judged ? figure((mistakes + blunders) / count) : "–",
  ]);
  return scrolled(
    table("By opening", ["Opening", "Games", "Score", "Accuracy, %", "Points lost a move", "Mistakes and blunders a game"], rows),
  );
}

const scrolled = (made) =>
  element("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": made.caption.textContent }, made);

/** A move of a game with its number. */
const nameOf = ({ game, ply, san }) => `${numbered(firstPly(game.tags?.FEN ?? "startpos") + ply)} ${san}`;

const who = ({ game }) => `${game.tags?.White ?? "?"} – ${game.tags?.Black ?? "?"}${game.tags?.Date ? `, ${game.tags.Date}` : ""}`;

/** The costliest moves as positions. */
function costliest({ costliest: found, all }) {
  if (!found.length) return quiet(all.judged ? "No move that was judged cost 5 points or more." : "No move is judged.");
  const cards = found.map((one) =>
    element(
      "li",
      {},
      picture(one.fen, { flip: one.side === "black", label: `The position before ${one.text}` }),
      element("p", {}, one.text),
      quiet(who(one)),
      button(() => tryAgain({ pgn: one.game.pgn, ply: one.ply, side: one.side }), { className: "unprinted" }, "Try again"),
    ),
  );
  return element("ul", { className: "again" }, ...cards);
}

/** The moves that stronger players make less often, and once the service has answered, what those play. */
function differences({ differences: found, whole }) {
  if (!found.length) return "";
  const ticket = ++drawn,
    [{ rating }] = found,
    [own, stronger] = [rating, rating + 200].map((value) => Math.round(value / 10) * 10);
  const items = found.map((one) => {
    const shares = `${percent(one.own)} of players rated ${own} play it, ${percent(one.stronger)} of those rated ${stronger}.`,
      words = `${nameOf(one)}: ${shares}`;
    const instead = element("span");
    const moves = one.game.report.moves.slice(0, one.ply).map(([uci]) => uci),
      tree = { fen: one.game.tags?.FEN ?? "startpos", chess960: /960|fischer/i.test(one.game.tags?.Variant ?? "") };
    const question = { ...position({ tree }, moves), ...named(), elo: stronger, include: ["san"], top_k: 3 };
    remembered("v1/policy", question).then(
      (answer) => {
        if (ticket !== drawn) return;
        const likeliest = answer.moves.find(({ uci }) => uci !== one.uci);
        if (likeliest) instead.textContent = ` More often: ${likeliest.san}.`;
      },
      () => {}, // the moves stand without it
    );
    return element("li", {}, words, instead, element("span", { className: "quiet" }, ` ${who(one)}`));
  });
  const uncertain = whole.within > 100 ? " The resembled rating is uncertain, so take these as examples." : "";
  return section(
    "Where players 200 points stronger choose otherwise",
    quiet(`The moves that differ most.${uncertain}`),
    element("ol", {}, ...items),
  );
}

/** The costliest positions as games of a PGN: the better move, and in a comment what was played. */
function pgnOfPositions({ costliest: found }) {
  return found
    .map(({ game, fen, text, better }) => {
      const { tags = {} } = game,
        headers = { Event: "Try again", White: tags.White, Black: tags.Black, Date: tags.Date };
      const nodes = [{ comment: text }, ...(better ? [{ parent: 0, ...better }] : [])];
      return pgnOf(new Tree({ fen, headers, nodes }), {}, "*");
    })
    .join("\n");
}

import assert from "node:assert/strict";
import { test } from "node:test";
import { profile } from "./modules.js";

const { gamesOf, keyOf, kept, likeness, playersOf, profileOf, resembled } = profile;
const RATINGS = [800, 1000, 1200, 1400, 1600, 1800, 2000, 2200, 2400];

/** Surprises of moves that players of a rating make most often. */
const like = (rating, count = 1) => RATINGS.map((at) => count * (1 + ((at - rating) / 400) ** 2));

/** A report of the service: moves of both sides in turn, each with a cost and, if `rating` is given, probabilities. */
function answer({ lost = [0.02, 0.3], rating = 1430, accuracy = 80 } = {}) {
  const moves = lost.map((cost, ply) => ({
    ply: ply + 1,
    turn: ply % 2 ? "black" : "white",
    uci: "e2e4",
    san: "e4",
    phase: ply < 2 ? "opening" : "middlegame",
    ...(cost === undefined ? {} : { lost: cost, mark: cost >= 0.15 ? "blunder" : undefined }),
    ...(rating ? { at_ratings: like(rating).map((surprise) => Math.exp(-surprise)) } : {}),
  }));
  const moments = moves.flatMap(({ ply, lost: cost, mark }) =>
    mark ? [{ ply, lost: cost, mark, text: `${ply}`, fen: "8/8/8/8/8/8/8/8 w - - 0 1" }] : [],
  );
  return { white: { accuracy }, black: { accuracy }, moves, moments, ...(rating ? { ratings: RATINGS } : {}) };
}

const game = (White, Black, report, more = {}) => ({
  tags: { White, Black, Result: "1-0" },
  opening: { name: "Italian Game: Giuoco Piano" },
  judged: true,
  ...(report ? { report: kept(report, "m") } : {}),
  ...more,
});

test("names are matched whatever their spelling, and others are merged by hand", () => {
  assert.equal(keyOf("Müller, Anna"), keyOf("anna muller"));
  const games = [game("Pupil, Anna", "Bob"), game("Bob", "anna pupil"), game("annap99", "Bob")];
  assert.deepEqual(
    playersOf(games).map(({ names, games: count }) => [names.join("|"), count]),
    [
      ["Bob", 3],
      ["Pupil, Anna|anna pupil", 2],
      ["annap99", 1],
    ],
  );
  const merged = { annap99: keyOf("Anna Pupil") };
  assert.deepEqual(
    gamesOf(games, keyOf("Anna Pupil"), merged).map(({ side }) => side),
    ["white", "black", "white"],
  );
  assert.equal(playersOf(games, merged)[1].games, 3);
});

test("names are alike that share most of the shorter one's letters", () => {
  const like = (name) => likeness(keyOf(name), keyOf("Pupil, Anna"));
  for (const name of ["anna", "A. Pupil", "AnnaP", "annap99"]) assert.ok(like(name) > 0.5, name);
  for (const name of ["Bob", "Opponent 12", "A", "Paul Nimzo"]) assert.equal(like(name), 0, name);
});

test("marks are counted over the moves of the player that were judged", () => {
  const own = gamesOf([game("Ann", "Bob", answer({ lost: [0.3, 0.2, undefined, 0.4] })), game("Bob", "Ann")], "ann");
  const { all, phases, costliest, read, games } = profileOf(own);
  assert.deepEqual([games, read], [2, 1]);
  assert.deepEqual([all.moves, all.judged, all.blunders, all.lost], [2, 1, 1, 0.3]);
  assert.deepEqual(
    phases.map(({ name, judged, moves }) => [name, judged, moves]),
    [
      ["opening", 1, 1],
      ["middlegame", 0, 1],
      ["endgame", 0, 0],
    ],
  );
  assert.deepEqual(
    costliest.map(({ ply }) => ply),
    [1],
  );
});

test("a game without judged moves is no game without mistakes", () => {
  const own = gamesOf([game("Ann", "Bob", answer({ lost: [undefined, undefined], accuracy: null }), { judged: false })], "ann"),
    found = profileOf(own);
  assert.deepEqual([found.judged, found.all.judged, found.all.lost, found.accuracy, found.openings[0].lost], [0, 0, null, null, null]);
});

test("moves without an alternative, which the rules judge, are no moves without mistakes", () => {
  const report = answer({ lost: [0, undefined, 0] });
  const judgedBy = (source) => ({ ...report, moves: report.moves.map((move) => ({ ...move, ...("lost" in move ? { source } : {}) })) });
  const judged = (source) => profileOf(gamesOf([game("Ann", "Bob", judgedBy(source))], "ann")).all.judged;
  assert.deepEqual([judged("rules"), judged("engine")], [0, 2]);
});

test("openings are counted by colour, with their score", () => {
  const own = gamesOf([game("Ann", "Bob", answer()), game("Bob", "Ann", answer()), game("Ann", "Cid", answer())], "ann");
  assert.deepEqual(
    profileOf(own).openings.map(({ name, games, score }) => [name, games, score]),
    [
      ["Italian Game, White", 2, 1],
      ["Italian Game, Black", 1, 0],
    ],
  );
});

test("the resembled rating is where the moves are likeliest, and is not guessed below five games", () => {
  const five = Array(5).fill(like(1430, 20));
  assert.equal(resembled(five.slice(1), RATINGS), null);
  assert.ok(Math.abs(resembled(five, RATINGS).rating - 1430) < 10);
  assert.equal(resembled(five, RATINGS).within, 0); // all games say the same
  const wide = [1000, 1200, 1400, 1600, 1800].map((rating) => like(rating, 20)),
    calibrated = resembled(wide, RATINGS, { slope: 1, intercept: 50, error: 40 });
  assert.ok(Math.abs(calibrated.rating - 1450) < 10);
  assert.ok(calibrated.within > 1.6 * 40);
  assert.equal(resembled(Array(5).fill(like(3000)), RATINGS).end, "high");
});

test("moves that stronger players make less often are named, from five games on", () => {
  const games = Array.from({ length: 5 }, () => game("Ann", "Bob", answer()));
  const { whole, differences, phases } = profileOf(gamesOf(games, "ann"), () => ({ whole: { intercept: 100 } }));
  assert.ok(Math.abs(whole.rating - 1530) < 10);
  assert.equal(differences.length, 5);
  assert.ok(differences.every(({ own, stronger }) => stronger < own));
  assert.equal(phases[2].like, null); // no move of an endgame
});

// The names under which the player has played, so that verdicts are on the right side's moves.

const KEPT = "movemask-names"; // in the browser
const MOST = 20;
const HERE = "You"; // the name of whoever plays here

const names = () => [HERE, ...JSON.parse(localStorage.getItem(KEPT) ?? "[]")];

/** Which side of a game is the player's own, by its headers: "white", "black" or "". */
export function ownSide({ White, Black }) {
  const known = names();
  return known.includes(White) ? "white" : known.includes(Black) ? "black" : "";
}

/** Notes that a name is the player's, who has chosen its side. */
export function noteName(name) {
  if (!name || name === "?" || names().includes(name)) return;
  localStorage.setItem(KEPT, JSON.stringify([name, ...names().slice(1)].slice(0, MOST)));
}

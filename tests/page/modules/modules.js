// The page's modules that need no browser.

const page = new URL("../../../service/movemask/page/", import.meta.url);

export const { clocksAfter, command, controlOf, face, inSeconds, remaining } = await import(new URL("clock.js", page));
export const { lasting } = await import(new URL("dom.js", page));
export const { useKey } = await import(new URL("api.js", page));
export const { Costs } = await import(new URL("costs.js", page));
export const match = await import(new URL("match.js", page));
export const { Tree, firstPly, numbered, turnAfter } = await import(new URL("tree.js", page));
export const { START, game, trying } = await import(new URL("state.js", page));
export const { forecastIn } = await import(new URL("moves.js", page));
export const { reduce } = await import(new URL("reducer.js", page));
export const { hashOf, readHash, writeHash } = await import(new URL("address.js", page));
export const { betterThan, countsOf, keyPlies, surprisingPlies, verdictOf } = await import(new URL("verdicts.js", page));
export const { fenIn, isPosition, read } = await import(new URL("reading.js", page));
export const profile = await import(new URL("profile.js", page));
export const { percent } = await import(new URL("dom.js", page));
export const { wrong } = await import(new URL("words.js", page));

// What an answer of the service says of its position: how the game ended there, and White's chances.

/** The result if the game is over: "1-0", "0-1", "1/2-1/2", or undefined. */
export function resultOf({ status, draw, turn }) {
  if (status === "checkmate") return turn === "white" ? "0-1" : "1-0";
  return status === "stalemate" || draw?.claimable === false ? "1/2-1/2" : undefined;
}

/** How it ended, `{result, how}`; undefined if it goes on. */
export function endingBy(answer) {
  const result = resultOf(answer);
  return result && { result, how: ["checkmate", "stalemate"].includes(answer.status) ? answer.status : answer.draw.reason };
}

/** White's expected score, 0 to 1, by an answer or by a report on a move; undefined if the network forecasts none. */
export function whiteScore({ value, forecast = value, turn }) {
  if (!forecast) return undefined;
  return turn === "white" ? forecast.score : 1 - forecast.score;
}

/** The score of a result for White. */
export const SCORES = { "1-0": 1, "1/2-1/2": 0.5, "0-1": 0 };

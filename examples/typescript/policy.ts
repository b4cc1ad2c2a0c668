// The move distribution of a position, typed by the service's own OpenAPI document. See README.md beside it.
import type { components } from "./api.js";

type PolicyIn = components["schemas"]["PolicyIn"];
type PolicyOut = components["schemas"]["PolicyOut"];
type Problem = components["schemas"]["Problem"];

const url = process.argv[2] ?? "http://127.0.0.1:8000";

async function policy(asked: PolicyIn): Promise<PolicyOut> {
  const response = await fetch(`${url}/v1/policy`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(asked),
  });
  if (!response.ok) {
    const problem = (await response.json()) as Problem;
    throw new Error(`${problem.status} ${problem.type}: ${problem.detail}`);
  }
  return (await response.json()) as PolicyOut;
}

const answer = await policy({ fen: "startpos", moves: ["e4", "e5"], elo: 1500, include: ["san"] });
console.log(`${answer.turn} to move, by ${answer.model.name}`);
for (const move of answer.moves.slice(0, 5)) {
  console.log(`${(move.san ?? move.uci).padEnd(6)} ${(100 * move.probability).toFixed(1)} %`);
}

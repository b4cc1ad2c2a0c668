// The same by openapi-fetch, which types paths, bodies, answers and errors. See README.md beside it.
import createClient from "openapi-fetch";
import type { paths } from "./api.js";

// Both media types: `data` is the JSON alone, and `error` is a problem.
const client = createClient<paths, "application/json" | "application/problem+json">({
  baseUrl: process.argv[2] ?? "http://127.0.0.1:8000",
});

const { data, error } = await client.POST("/v1/policy/batch", {
  body: { positions: [{ fen: "startpos" }, { fen: "nonsense" }], include: ["san"] },
});
if (error) {
  const { status, type, detail }: { status: number; type: string; detail: string } = error;
  throw new Error(`${status} ${type}: ${detail}`);
}
for (const result of data.results) {
  if ("error" in result) {
    console.log(`${result.error.status} ${result.error.detail}`);
  } else {
    console.log(`${result.turn} to move: ${result.moves[0].san}`);
  }
}

const refused = await client.POST("/v1/policy", { body: { fen: "nonsense" } });
console.log(refused.error?.type);

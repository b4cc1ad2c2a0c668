// The service: requests, the problems it answers with, and answers that are kept for a while.

const KEY = "movemask-key";
const KEPT = 1000; // answers
const KEPT_FOR = 60_000; // ms; a model may be replaced meanwhile

/** What the service says is wrong (RFC 9457). */
class Problem extends Error {
  constructor(status, problem, retryAfter) {
    super(problem.detail ?? problem.title ?? `status ${status}`);
    this.status = status;
    this.title = problem.title ?? `Status ${status}`;
    this.retryAfter = retryAfter;
  }
}

/** The service does not answer at all. */
class Gone extends Error {
  retryAfter = 2; // s
}

const answers = new Map(); // by path and body: the promise of an answer, and when it was asked for

export function useKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
  answers.clear();
}

export const hasKey = () => sessionStorage.getItem(KEY) !== null;

/** The JSON of an answer, or its text if `accept` names a type; a GET without a body. Throws Problem or Gone. */
export async function call(path, body, accept) {
  const response = await asked(path, body, { accept }),
    text = await arrived(response.text());
  if (response.ok && accept) return text;
  const json = parsed(text);
  if (response.ok && json !== undefined) return json;
  throw problem(response, json);
}

/** Hands each line of a streamed answer to `take`, as it comes, until `signal` is aborted. Throws Problem or Gone. */
export async function stream(path, body, take, signal) {
  const response = await asked(path, body, { accept: "application/x-ndjson", signal });
  if (!response.ok) throw problem(response, parsed(await arrived(response.text())));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ; ) {
    const { value, done } = await arrived(reader.read());
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) take(JSON.parse(line));
  }
}

/**
 * The response to a request.
 * @type {(path: string, body: any, how: {accept?: string, signal?: AbortSignal}) => Promise<any>}
 */
function asked(path, body, { accept, signal }) {
  const key = sessionStorage.getItem(KEY);
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  if (accept) headers.Accept = accept;
  const options = { headers, signal };
  if (body) {
    options.method = "POST";
    options.body = JSON.stringify(body);
    headers["Content-Type"] = "application/json";
  }
  return arrived(fetch(new URL(path, document.baseURI), options));
}

/** What comes over the network. Throws Gone if it does not. */
async function arrived(coming) {
  try {
    return await coming;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Gone("The service does not answer.");
  }
}

/** What is wrong, by the JSON of a response, or by none: a proxy in front may answer with a page of its own. */
function problem(response, json) {
  const { status } = response,
    why = json ?? { title: `Status ${status}`, detail: "The service gave no reason." };
  return new Problem(status, why, Number(response.headers.get("Retry-After")) || undefined);
}

/** As `call`, but the same request is not sent again for a minute. */
export function remembered(path, body) {
  const key = path + JSON.stringify(body);
  const known = answers.get(key);
  if (known && performance.now() - known.asked < KEPT_FOR) return known.answer;
  const answer = call(path, body);
  answers.delete(key);
  answers.set(key, { answer, asked: performance.now() });
  answer.catch(() => answers.delete(key));
  if (answers.size > KEPT) answers.delete(answers.keys().next().value);
  return answer;
}

/** Keeps an answer that has come another way, for as long as there is room. */
export function know(path, body, answer) {
  answers.set(path + JSON.stringify(body), { answer: Promise.resolve(answer), asked: Infinity });
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

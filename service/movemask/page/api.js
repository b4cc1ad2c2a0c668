// The service: requests, the problems it answers with, and answers that are kept for a while.

const KEY = "movemask-key";
const KEPT = 1000; // answers
const KEPT_FOR = 60_000; // ms; a model may be replaced meanwhile

/** What the service says is wrong (RFC 9457). */
export class Problem extends Error {
  constructor(status, problem, retryAfter) {
    super(problem.detail ?? problem.title ?? `status ${status}`);
    this.status = status;
    this.title = problem.title ?? `Status ${status}`;
    this.statuses = problem.statuses; // of an impossible position: what is wrong with it
    this.retryAfter = retryAfter;
  }
}

/** The service does not answer at all. */
export class Gone extends Error {}

const answers = new Map(); // by path and body: the promise of an answer, and when it was asked for

export function useKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
  answers.clear();
}

/** The JSON of an answer, or its text if `accept` names a type; a GET without a body. Throws Problem or Gone. */
export async function call(path, body, accept) {
  const key = sessionStorage.getItem(KEY);
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  if (accept) headers.Accept = accept;
  const options = { headers };
  if (body) {
    options.method = "POST";
    options.body = JSON.stringify(body);
    headers["Content-Type"] = "application/json";
  }
  let response, text;
  try {
    response = await fetch(new URL(path, document.baseURI), options);
    text = await response.text();
  } catch {
    throw new Gone("The service does not answer.");
  }
  if (response.ok && accept) return text;
  const json = parsed(text);
  if (response.ok && json !== undefined) return json;
  // A proxy in front may answer with a page of its own.
  const problem = json ?? { title: `Status ${response.status}`, detail: "The service gave no reason." };
  throw new Problem(response.status, problem, Number(response.headers.get("Retry-After")) || undefined);
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

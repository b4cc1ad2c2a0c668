// Games that the browser keeps, in IndexedDB: thousands are more than its smaller stores take.

const STORE = "games";

const tabs = new BroadcastChannel("movemask-games"); // the database tells no other tab what has changed

let database; // the promise of it

/** All kept games, in the order in which they were added. Throws what the browser says when it refuses. */
export const kept = () => within("readonly", (store) => store.getAll());

/** The games that were added last, the last first. Throws as `kept`. */
export async function latest(count) {
  const found = [];
  await within("readonly", (store) => {
    store.openCursor(null, "prev").onsuccess = ({ target: { result: cursor } }) => {
      if (cursor && found.push(cursor.value) < count) cursor.continue();
    };
  });
  return found;
}

/** Keeps games, or their new state, by their `id`: all of them or, where it throws, none. */
export async function keep(games) {
  await within("readwrite", (store) => games.forEach((game) => store.put(game)));
  tabs.postMessage({ games });
}

/** Takes games away, by their `id`. */
export async function drop(ids) {
  await within("readwrite", (store) => ids.forEach((id) => store.delete(id)));
  tabs.postMessage({ ids });
}

export async function forget() {
  await within("readwrite", (store) => store.clear());
  tabs.postMessage({ all: true });
}

/** `listener` gets what another tab has changed: `{games}` it has kept, `{ids}` it has dropped, or `{all}` if it has dropped all. */
export function watch(listener) {
  tabs.onmessage = ({ data }) => listener(data);
}

/** What a request gives, once its transaction is written. */
async function within(mode, work) {
  const transaction = (await (database ??= opened())).transaction(STORE, mode);
  const request = work(transaction.objectStore(STORE));
  await new Promise((done, failed) => {
    transaction.oncomplete = done;
    transaction.onabort = () => failed(transaction.error);
  });
  return request?.result;
}

function opened() {
  return new Promise((done, failed) => {
    const request = indexedDB.open("movemask", 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" });
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(request.error);
  });
}

// Games that the browser keeps, in IndexedDB: thousands are more than its smaller stores take.

const STORE = "games";

let database; // the promise of it

/** All kept games, in the order in which they were added. Throws what the browser says when it refuses. */
export const kept = () => within("readonly", (store) => store.getAll());

/** Keeps games, or their new state, by their `id`: all of them or, where it throws, none. */
export const keep = (games) => within("readwrite", (store) => games.forEach((game) => store.put(game)));

/** Takes games away, by their `id`. */
export const drop = (ids) => within("readwrite", (store) => ids.forEach((id) => store.delete(id)));

export const forget = () => within("readwrite", (store) => store.clear());

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

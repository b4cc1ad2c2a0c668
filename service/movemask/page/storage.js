// What the browser keeps for the page as JSON: beyond the tab, or for as long as the tab is open.

/** What is kept under a key; null if there is nothing. */
export const readStored = (key, storage = localStorage) => JSON.parse(storage.getItem(key) ?? "null");

/** Keeps a value under a key. False if the browser has no room for it. */
export function writeStored(key, value, storage = localStorage) {
  try {
    storage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

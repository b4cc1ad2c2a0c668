"""The models that are served now, each behind its queue: follows its folder, and keeps to a limit of memory.

A changed file goes through the check before it takes the place of the one that is served; what fails it changes nothing
but its entry, which says so. Requests under way hold a lease and finish on the model they began with. Over the limit,
models that nobody uses are unloaded, the least recently used first, and loaded again when they are asked for.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from movemask.errors import ModelUnavailable
from movemask.inference.model import Model
from movemask.inference.onnx import Provider
from movemask.inference.registry import Entry, Registry, contract_files, load_entry, network_file

log = logging.getLogger(__name__)

Print = tuple[tuple[int, int, int], ...]  # of each file: modified, size, inode


class Runner(Protocol):
    """What answers for a loaded model: a pipeline."""

    @property
    def alive(self) -> bool:
        """Whether it takes work."""
        ...

    def close(self) -> None:
        """Finishes what waits, and ends."""
        ...


S = TypeVar("S", bound=Runner)


@dataclass(slots=True, eq=False)
class _Held(Generic[S]):
    """A loaded model: how many requests use it, and when it was last asked for."""

    runner: S
    size: int
    users: int = 0
    used: int = 0
    retired: bool = False


class Serving(Generic[S]):
    """Loads every model of `folder` through its check, and follows the folder until it is closed.

    Parameters
    ----------
    default : the model for requests that name none; the first served by name if None
    threads, provider : as `OnnxSession` takes them
    start : makes what answers for a model
    memory : bytes of network files that are loaded at once; None for no limit
    poll_seconds : how often the folder is looked at; None for never
    """

    def __init__(
        self,
        folder: Path,
        default: str | None,
        threads: int,
        start: Callable[[Model], S],
        *,
        provider: Provider = Provider.CPU,
        memory: int | None = None,
        poll_seconds: float | None = None,
    ) -> None:
        self._folder, self._default, self._start = folder, default, start
        self._threads, self._provider = threads, provider
        self._memory = memory
        self._lock = threading.RLock()
        self._loading = threading.Lock()  # one model is loaded at a time
        self._clock = count(1)
        self._held: dict[str, _Held[S]] = {}
        self._prints: dict[str, Print] = {}
        self._seen: dict[str, Print] = {}
        entries = {}
        for name, file in contract_files(folder, default).items():
            self._prints[name] = _print(file, None)
            entries[name] = self._taken(self._entry(file))
            self._make_room(name)
        self.registry = Registry.of(entries, default)
        self._stop = threading.Event()
        self._watcher: threading.Thread | None = None
        if poll_seconds is not None:
            self._watcher = threading.Thread(target=self._watch, args=(poll_seconds,), name="models", daemon=True)
            self._watcher.start()

    @asynccontextmanager
    async def lease(self, name: str | None) -> AsyncIterator[S]:
        """What answers for a served model, kept alive until the lease ends; loads it first if it was unloaded.

        Raises UnknownModel or ModelUnavailable.
        """
        held = self._lent(name)
        if held is None:
            held = await asyncio.get_running_loop().run_in_executor(None, self._loaded, name)
        try:
            yield held.runner
        finally:
            self._returned(held)

    def refresh(self) -> bool:
        """Looks at the folder; takes over what has changed since and stands still now. True if anything did.

        A change is taken over when it looks the same twice, so that a file being copied is not read half.
        """
        files = _files(self._folder)
        if not files:
            return False  # an empty or unmounted folder is no wish to serve nothing
        entries = {entry.name: entry for entry in self.registry}
        now = {name: _print(file, entries.get(name)) for name, file in files.items()}
        settled = {name for name, found in now.items() if self._seen.get(name) == found}
        changed = [name for name in now if name in settled and now[name] != self._prints.get(name)]
        gone = [name for name in self._prints if name not in now and name not in self._seen]
        self._seen = now
        with self._loading:
            for name in changed:
                self._prints[name] = now[name]
                entries[name] = self._replaced(entries.get(name), self._entry(files[name]))
                self._make_room(name)
            for name in gone:
                log.info("model %s is gone from the folder and no longer served", name)
                self._prints.pop(name)
                entries.pop(name, None)
                self._retire(name)
            if changed or gone:
                with self._lock:
                    current = self.registry.default
                    default = self._default or (current if current in entries else None)
                    self.registry = Registry.of(entries, default)
        return bool(changed or gone)

    def stopped(self) -> list[str]:
        """Models whose thread has died."""
        with self._lock:
            return [name for name, held in self._held.items() if not held.runner.alive]

    def loaded(self) -> frozenset[str]:
        """Models that are in memory."""
        with self._lock:
            return frozenset(self._held)

    def close(self) -> None:
        """Ends the watcher; finishes what waits for every model."""
        self._stop.set()
        if self._watcher is not None:
            self._watcher.join()
        with self._lock:
            held = list(self._held.values())
            self._held.clear()
        for one in held:
            one.runner.close()

    def _entry(self, file: Path) -> Entry:
        return load_entry(file, self._threads, self._provider)

    def _lent(self, name: str | None) -> _Held[S] | None:
        """Counts a user in; None if the model is served but not loaded."""
        with self._lock:
            entry = self.registry.entry(name)
            if not entry.served:
                raise ModelUnavailable(f"model {entry.name!r} failed its check and is not served: {entry.failure}")
            held = self._held.get(entry.name)
            if held is not None:
                held.users += 1
                held.used = next(self._clock)
            return held

    def _returned(self, held: _Held[S]) -> None:
        with self._lock:
            held.users -= 1
            over = held.retired and held.users == 0
        if over:
            _close(held)
        elif self._memory is not None:
            self._make_room(None)

    def _loaded(self, name: str | None) -> _Held[S]:
        """Loads an unloaded model again, through its check."""
        with self._loading:
            held = self._lent(name)
            if held is not None:  # somebody else loaded it while we waited
                return held
            wanted = self.registry.entry(name).name
            entry = self._entry(self._folder / f"{wanted}.toml")
            if entry.model is None:
                raise ModelUnavailable(f"model {wanted!r} could not be loaded again: {entry.failure}")
            with self._lock:
                self._taken(entry)
                held = self._lent(wanted)
                assert held is not None
            self._make_room(wanted)
            return held

    def _replaced(self, old: Entry | None, new: Entry) -> Entry:
        """The entry to go on with: the new one if it passed, else the old one if that is served."""
        if new.model is None and old is not None and old.served:
            log.error("model %s: its changed files are not served: %s", new.name, new.failure)
            return replace(old, rejected=new.failure)
        if new.model is None:
            log.error("model %s is not served: %s", new.name, new.failure)
        else:
            log.info("model %s is served as %s", new.name, new.digest)
        self._retire(new.name)
        return self._taken(new)

    def _taken(self, entry: Entry) -> Entry:
        """Starts what answers for a loaded model; the entry is kept without it, so that unloading frees its memory."""
        if entry.model is not None:
            with self._lock:
                size = network_file(self._folder / f"{entry.name}.toml", entry.model.contract)
                held = _Held(self._start(entry.model), size.stat().st_size if size else 0, used=next(self._clock))
                self._held[entry.name] = held
        return replace(entry, model=None)

    def _retire(self, name: str) -> None:
        """Takes a model out of service; what answers for it ends when its last user has gone."""
        with self._lock:
            held = self._held.pop(name, None)
            if held is not None:
                held.retired = True
        if held is not None and held.users == 0:
            _close(held)

    def _make_room(self, keep: str | None) -> None:
        """Unloads the least recently used models that nobody uses, until the limit is kept; never `keep`."""
        if self._memory is None:
            return
        while True:
            with self._lock:
                idle = [name for name, held in self._held.items() if not held.users and name != keep]
                if sum(held.size for held in self._held.values()) <= self._memory or not idle or len(self._held) == 1:
                    return
                name = min(idle, key=lambda one: self._held[one].used)
            log.info("model %s is unloaded to keep to the limit of memory", name)
            self._retire(name)

    def _watch(self, seconds: float) -> None:
        while not self._stop.wait(seconds):
            try:
                self.refresh()
            except Exception:
                log.exception("the models folder could not be looked at; trying again")


def _files(folder: Path) -> dict[str, Path]:
    return {file.stem: file for file in sorted(folder.glob("*.toml"))}


def _print(file: Path, entry: Entry | None) -> Print:
    """What changes when a model's files do."""
    network = network_file(file, entry.contract if entry else None) or file.with_suffix(".onnx")
    found = []
    for one in (file, network):
        try:
            stat = one.stat()
        except OSError:
            found.append((0, -1, 0))
        else:
            found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return tuple(found)


def _close(held: _Held[Any]) -> None:
    """Off this thread, since threads are joined."""
    threading.Thread(target=held.runner.close, name="retiring", daemon=True).start()

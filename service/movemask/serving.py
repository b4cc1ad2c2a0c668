"""`Serving`: the loaded models of a folder, reloaded when their files change, within a memory limit.

A changed file must pass the check before it replaces the served one; if it fails, its entry says why and the old model
stays. Requests hold a lease and finish on the model they began with. Above the memory limit, unused models are
unloaded, the least recently used first, and loaded again on demand.

A network that is not shipped is tried in a process of its own first (`network.trial`): one that crashes, hangs or takes
all memory is an error of its model, and the others are served on.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from movemask.errors import ModelUnavailable, SettingsError, ShuttingDown
from movemask.network.files import ModelFolders
from movemask.network.model import Model
from movemask.network.onnx import Provider
from movemask.network.registry import Entry, Registry, load_entry, network_file
from movemask.network.trial import Trial
from movemask.pipeline import Pipeline

log = logging.getLogger(__name__)

#: Of each file of a model: modification time, size, inode.
Fingerprint = tuple[tuple[int, int, int], ...]


@dataclass(slots=True, eq=False)
class _Loaded:
    """A loaded model, and how many requests use it."""

    pipeline: Pipeline
    size: int
    users: int = 0
    retired: bool = False


class Serving:
    """Loads and checks every model of `where`, a folder or several, and follows its changes until closed.

    Parameters
    ----------
    default : the model for requests that name none; the first served by name if None
    threads : batches that a model runs at once, a thread each
    provider : what onnxruntime runs them on
    start : makes the pipeline of a model
    memory : limit of loaded network files, in bytes; None for no limit
    poll_seconds : interval between looks at the folder; None to never look
    trial_seconds : how long a network's trial may take; 0 to open it without one
    on_change : called with the registry, at first and whenever it changes
    """

    def __init__(
        self,
        where: Path | ModelFolders,
        default: str | None,
        threads: int,
        start: Callable[[Model], Pipeline],
        *,
        provider: Provider = Provider.CPU,
        memory: int | None = None,
        poll_seconds: float | None = None,
        trial_seconds: float = 0,
        on_change: Callable[[Registry], None] = lambda registry: None,
    ) -> None:
        self._folders, self._default, self._start = ModelFolders.of(where), default, start
        self._threads, self._provider = threads, provider
        self._memory = memory
        self._trial = Trial(trial_seconds) if trial_seconds else None
        self._on_change = on_change
        self._stop = threading.Event()
        self._lock = threading.RLock()
        self._loading = threading.Lock()  # one model is loaded at a time
        self._models: dict[str, _Loaded] = {}  # the least recently used first
        self._unreadable: dict[str, str] = {}  # why a model could not be loaded again
        self._current: dict[str, Fingerprint] = {}  # of the files behind the entries
        self._seen: dict[str, Fingerprint] = {}  # at the last look
        entries = {}
        self._files = self._folders.files(default)
        for name, file in self._files.items():
            self._current[name] = _fingerprint(file, None)
            entries[name] = self._started(self._tried(file) or self._opened(file))
            self._make_room(name)
        self.registry = Registry(entries, default, self._folders.preferred)
        on_change(self.registry)
        self._watcher: threading.Thread | None = None
        if poll_seconds is not None:
            self._watcher = threading.Thread(target=self._watch, args=(poll_seconds,), name="models", daemon=True)
            self._watcher.start()

    @asynccontextmanager
    async def lease(self, name: str | None) -> AsyncIterator[Pipeline]:
        """The pipeline of a served model, kept alive until the lease ends; loads the model if it was unloaded.

        Raises UnknownModel or ModelUnavailable.
        """
        loaded = self._acquire(name)
        if loaded is None:
            loaded = await asyncio.get_running_loop().run_in_executor(None, self._load, name)
        try:
            yield loaded.pipeline
        finally:
            self._release(loaded)

    def refresh(self) -> bool:
        """Looks at the folder and applies settled changes; True if there were any.

        A change is settled when two looks in a row see the same, so that a file is not read while it is being copied.
        """
        try:
            files = self._folders.found()
        except SettingsError:
            files = {}
        if not files:
            return False  # an unmounted folder must not stop the service
        self._files = {**self._files, **files}
        entries = {entry.name: entry for entry in self.registry}
        now = {name: _fingerprint(file, entries.get(name)) for name, file in files.items()}
        changed = [name for name in now if now[name] == self._seen.get(name) and now[name] != self._current.get(name)]
        gone = [name for name in self._current if name not in now and name not in self._seen]
        self._seen = now
        failed = {name: self._tried(files[name]) for name in changed}
        with self._loading:
            for name in changed:
                self._current[name] = now[name]
                entries[name] = self._replaced(entries.get(name), failed[name] or self._opened(files[name]))
                self._make_room(name)
            for name in gone:
                log.info("model %s is gone from the folder and no longer served", name)
                self._current.pop(name)
                entries.pop(name, None)
                self._retire(name)
            if changed or gone:
                with self._lock:
                    previous = self.registry.default
                    default = self._default or (previous if previous in entries else None)
                    self.registry = Registry(entries, default, self._folders.preferred)
                    self._on_change(self.registry)
        return bool(changed or gone)

    def faults(self) -> list[str]:
        """Why models that passed their check cannot answer: a network hangs, a thread has died, or the default model
        was unloaded and cannot be loaded again."""
        with self._lock:
            faults = [loaded.pipeline.fault for loaded in self._models.values()]
            faults += [why for name, why in self._unreadable.items() if name == self.registry.default]
        return [fault for fault in faults if fault is not None]

    def waiting(self) -> int:
        """Positions that wait for any model."""
        with self._lock:
            return sum(loaded.pipeline.waiting for loaded in self._models.values())

    def loaded(self) -> frozenset[str]:
        """Models in memory."""
        with self._lock:
            return frozenset(self._models)

    def close(self) -> None:
        """Ends the watcher, and finishes the waiting work of every model."""
        self._stop.set()
        if self._trial is not None:
            self._trial.close()
        if self._watcher is not None:
            self._watcher.join()
        with self._lock:
            models = list(self._models.values())
            self._models.clear()
        for loaded in models:
            loaded.pipeline.close()

    def _tried(self, file: Path) -> Entry | None:
        """The entry of a model whose network must not be opened here."""
        if self._trial is None or file.parent == self._folders.trusted:
            return None
        return self._trial.failed(file)

    def _opened(self, file: Path) -> Entry:
        if self._stop.is_set():
            raise ShuttingDown("the service is stopping", retry_after=5)
        return load_entry(file, 1, self._provider, runs=self._threads)

    def _acquire(self, name: str | None) -> _Loaded | None:
        """The model with one more user; None if it is served but not loaded."""
        with self._lock:
            wanted = self.registry.default if name is None else name
            loaded = self._models.pop(wanted, None)
            if loaded is not None:
                loaded.users += 1
                self._models[wanted] = loaded  # now the most recently used
                return loaded
            entry = self.registry.entry(wanted)
            if not entry.served:
                raise ModelUnavailable(f"model {wanted!r} failed its check and is not served: {entry.failure}")
            return None

    def _release(self, loaded: _Loaded) -> None:
        with self._lock:
            loaded.users -= 1
            over = loaded.retired and loaded.users == 0
        if over:
            _close(loaded)
        elif self._memory is not None:
            self._make_room(None)

    def _load(self, name: str | None) -> _Loaded:
        """Loads and checks an unloaded model again, and acquires it."""
        with self._loading:
            loaded = self._acquire(name)
            if loaded is not None:  # another request loaded it meanwhile
                return loaded
            wanted = self.registry.entry(name).name
            entry = self._tried(self._files[wanted]) or self._opened(self._files[wanted])
            if entry.model is None:
                self._unreadable[wanted] = f"model {wanted!r} could not be loaded again: {entry.failure}"
                raise ModelUnavailable(self._unreadable[wanted])
            with self._lock:
                self._unreadable.pop(wanted, None)
                self._started(entry)
                loaded = self._acquire(wanted)
                assert loaded is not None
            self._make_room(wanted)
            return loaded

    def _replaced(self, old: Entry | None, new: Entry) -> Entry:
        """The entry to serve: the new one if it passed its check, else the old one if that is served."""
        if new.model is None and old is not None and old.served:
            log.error("model %s: its changed files are not served: %s", new.name, new.failure)
            return replace(old, rejected=new.failure)
        if new.model is None:
            log.error("model %s is not served: %s", new.name, new.failure)
        else:
            log.info("model %s is served as %s", new.name, new.digest)
        self._retire(new.name)
        return self._started(new)

    def _started(self, entry: Entry) -> Entry:
        """Starts the pipeline of a loaded model. The entry comes back without the model, so that unloading frees it."""
        if entry.model is not None:
            with self._lock:
                file = network_file(self._files[entry.name], entry.model.contract)
                pipeline = self._start(entry.model)
                self._models[entry.name] = _Loaded(pipeline, file.stat().st_size)
        return replace(entry, model=None)

    def _retire(self, name: str) -> None:
        """Takes a model out of service; its pipeline ends when its last user has gone."""
        with self._lock:
            loaded = self._models.pop(name, None)
            if loaded is not None:
                loaded.retired = True
        if loaded is not None and loaded.users == 0:
            _close(loaded)

    def _make_room(self, keep: str | None) -> None:
        """Unloads unused models, the least recently used first, down to the memory limit; never `keep`."""
        if self._memory is None:
            return
        while True:
            with self._lock:
                idle = [name for name, loaded in self._models.items() if not loaded.users and name != keep]
                size = sum(loaded.size for loaded in self._models.values())
                if size <= self._memory or not idle or len(self._models) == 1:
                    return
            log.info("model %s is unloaded to keep to the limit of memory", idle[0])
            self._retire(idle[0])

    def _watch(self, seconds: float) -> None:
        while not self._stop.wait(seconds):
            try:
                self.refresh()
                for name in list(self._unreadable):
                    with suppress(ModelUnavailable):
                        self._release(self._load(name))
            except ShuttingDown:
                return
            except Exception:
                log.exception("the models folder could not be looked at; trying again")


def _fingerprint(file: Path, entry: Entry | None) -> Fingerprint:
    """The state of a model's TOML and network file; changes when either does."""
    network = network_file(file, entry.contract if entry else None)
    states = []
    for path in (file, network):
        try:
            stat = path.stat()
        except OSError:
            states.append((0, -1, 0))
        else:
            states.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return tuple(states)


def _close(loaded: _Loaded) -> None:
    """Closes a pipeline on a thread of its own, since closing joins threads."""
    threading.Thread(target=loaded.pipeline.close, name="retiring", daemon=True).start()

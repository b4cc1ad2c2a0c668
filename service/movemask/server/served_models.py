"""`ServedModels`: the loaded models, reloaded when their files change.

A changed file must pass the check before its model replaces the old one. If it fails, its entry says why, and the old
model stays. Requests hold a lease and finish on the model they began with.

A network that is not shipped is tried in a process of its own first (`network.trial`). If it crashes, hangs or takes
all memory, its model has an error, and the other models are served.

All processes of a service have the same default model, which they share in the tally. A process that cannot serve it
says so, and does not answer with another model instead.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from movemask.errors import ModelUnavailable, SettingsError, ShuttingDown
from movemask.network.model import Model
from movemask.network.onnx import provider_named
from movemask.network.registry import Entry, Registry, load_entry, network_file
from movemask.network.trial import Trial
from movemask.server.pipeline import Pipeline
from movemask.server.settings import Settings
from movemask.server.tally import DEFAULT, Tally

log = logging.getLogger(__name__)

#: Seconds between two looks at the models folders.
_POLL_SECONDS = 1.0

#: Modification time, size and inode of each file of a model.
Fingerprint = tuple[tuple[int, int, int], ...]


@dataclass(slots=True, eq=False)
class _Loaded:
    """A loaded model and the number of its users: requests, and the service while it serves the model."""

    pipeline: Pipeline
    users: int = 1


class ServedModels:
    """Loads and checks every model of the settings' folders, and follows changes until closed.

    `registry` has the models that are served now; it is a new object after each change.

    Parameters
    ----------
    start : makes the pipeline of a model
    on_change : called with the registry at the start and after each change
    tally : shared by the processes of the service; None if there is only this process
    poll_seconds : time between two looks at the folders; 0 to look never
    """

    def __init__(
        self,
        settings: Settings,
        start: Callable[[Model], Pipeline],
        on_change: Callable[[Registry], None] = lambda registry: None,
        tally: Tally | None = None,
        poll_seconds: float = _POLL_SECONDS,
    ) -> None:
        self._folders, self._default, self._start = settings.model_folders, settings.default_model, start
        self._threads, self._provider = settings.threads, provider_named(settings.provider)
        self._tally = tally or Tally()
        self._trial = Trial(settings.trial_seconds, self._tally.name) if settings.trial_seconds else None
        self._on_change = on_change
        self._stop = threading.Event()
        self._lock = threading.RLock()
        self._models: dict[str, _Loaded] = {}
        files = self._folders.files(self._default)
        self._current = {name: _fingerprint(file, None) for name, file in files.items()}  # of the entries' files
        self._seen: dict[str, Fingerprint] = {}  # at the last look
        entries = {name: self._started(self._opened(file)) for name, file in files.items()}
        self.registry = self._registry(entries, self._shared_default(entries, None))
        self.registry.log_failures()
        on_change(self.registry)
        self._watcher: threading.Thread | None = None
        if poll_seconds:
            self._watcher = threading.Thread(target=self._watch, args=(poll_seconds,), name="models", daemon=True)
            self._watcher.start()

    @contextmanager
    def lease(self, name: str | None) -> Iterator[Pipeline]:
        """The pipeline of a served model, kept alive until the lease ends. Raises UnknownModel or ModelUnavailable."""
        with self._lock:
            loaded = self._models.get(self.registry.default if name is None else name)
            if loaded is None:
                entry = self.registry.entry(name)
                if not entry.served:
                    raise ModelUnavailable(f"model {entry.name!r} failed its check and is not served: {entry.failure}")
                raise ShuttingDown("the service is stopping", retry_after=5)
            loaded.users += 1
        try:
            yield loaded.pipeline
        finally:
            self._release(loaded)

    def refresh(self) -> bool:
        """Looks at the folders and applies settled changes; True if there were any.

        A change is settled when two looks in a row see the same files, so that no file is read while it is copied.
        """
        try:
            files = self._folders.found()
        except SettingsError:
            files = {}
        if not files:
            return False  # an unmounted folder must not stop the service
        entries = {entry.name: entry for entry in self.registry}
        now = {name: _fingerprint(file, entries.get(name)) for name, file in files.items()}
        changed = [name for name in now if now[name] == self._seen.get(name) and now[name] != self._current.get(name)]
        gone = [name for name in self._current if name not in now and name not in self._seen]
        self._seen = now
        for entry in [self._opened(files[name]) for name in changed]:
            self._current[entry.name] = now[entry.name]
            entries[entry.name] = self._replaced(entries.get(entry.name), entry)
        for name in gone:
            log.info("model %s was removed from the folder and is no longer served", name)
            self._current.pop(name)
            entries.pop(name, None)
        previous = self.registry.default
        default = self._shared_default(entries, previous)
        if not changed and not gone and default == previous:
            return False
        with self._lock:
            self.registry = self._registry(entries, default)
            for name in gone:
                self._retire(name)
            self._on_change(self.registry)
        if self.registry.default != previous:
            log.info("the default model is now %s, before it was %s", self.registry.default, previous)
        return True

    def faults(self) -> list[str]:
        """Why models that passed their check cannot answer: a network hangs, or a thread has died."""
        with self._lock:
            faults = [loaded.pipeline.queue.fault for loaded in self._models.values()]
        return [fault for fault in faults if fault is not None]

    @property
    def waiting(self) -> int:
        """Positions that wait for a network of this process."""
        with self._lock:
            return sum(loaded.pipeline.queue.waiting for loaded in self._models.values())

    def close(self) -> None:
        """Ends the watcher, and finishes the waiting queries of every model."""
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

    def _shared_default(self, entries: Mapping[str, Entry], previous: str | None) -> str | None:
        """The default model: by the settings, or else by the latest choice of any process, although this process may be
        unable to serve it. Without either, `previous`; None if it has no entry."""
        shared = self._default or self._tally.latest_name(DEFAULT, entries)
        return shared or (previous if previous in entries else None)

    def _registry(self, entries: Mapping[str, Entry], default: str | None) -> Registry:
        """The entries with their default. If `default` is None, one is chosen, for all processes."""
        registry = Registry(entries, default, self._folders.first)
        if default is None:
            self._tally.put_name(DEFAULT, registry.default)
        return registry

    def _opened(self, file: Path) -> Entry:
        """A model's entry. It holds the network only if the checks passed.

        A network outside the trusted folder is first tried in a process of its own.
        """
        if self._trial is not None and file.parent != self._folders.trusted:
            failed = self._trial.failed(file)
            if failed is not None:
                return failed
        if self._stop.is_set():
            raise ShuttingDown("the service is stopping", retry_after=5)
        return load_entry(file, 1, self._provider, runs=self._threads)

    def _replaced(self, old: Entry | None, new: Entry) -> Entry:
        """The entry to serve: the new one if its model passed the check, otherwise the old one if it is served."""
        if new.model is None and old is not None and old.served:
            log.error("model %s: its changed files are not served: %s", new.name, new.failure)
            return replace(old, rejected=new.failure)
        if new.model is None:
            log.error("model %s is not served: %s", new.name, new.failure)
        else:
            log.info("model %s is served as %s", new.name, new.digest)
        with self._lock:  # no request finds the model missing
            self._retire(new.name)
            return self._started(new)

    def _started(self, entry: Entry) -> Entry:
        """Starts the pipeline of a loaded model; returns the entry without the model, so that retiring frees it."""
        if entry.model is not None:
            self._models[entry.name] = _Loaded(self._start(entry.model))
        return replace(entry, model=None)

    def _retire(self, name: str) -> None:
        """Takes a model out of service. The caller has the lock."""
        if name in self._models:
            self._release(self._models.pop(name))

    def _release(self, loaded: _Loaded) -> None:
        """Ends a use of a model. After the last, its pipeline is closed on another thread, because closing waits."""
        with self._lock:
            loaded.users -= 1
            if not loaded.users:
                threading.Thread(target=loaded.pipeline.close, name="retiring", daemon=True).start()

    def _watch(self, seconds: float) -> None:
        while not self._stop.wait(seconds):
            try:
                self.refresh()
            except ShuttingDown:
                return
            except Exception:
                log.exception("the models folder could not be read; trying again")


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

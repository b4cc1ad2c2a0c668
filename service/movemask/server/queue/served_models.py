"""`ServedModels`: the models of the folders, loaded and checked once, behind their queues."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum

from movemask.errors import ModelUnavailable, SettingsError
from movemask.network.files import ModelFolders
from movemask.network.model import Model
from movemask.network.onnx import Provider
from movemask.network.registry import Registry, load_entry
from movemask.server.queue.pipeline import Pipeline

log = logging.getLogger(__name__)


class Needed(Enum):
    """The models that must pass their check for a worker to serve."""

    NONE = "none"  # when the service starts: it says what fails
    DEFAULT = "default"  # when a worker takes the place of one that ended
    ALL = "all"  # after a reload: the old workers serve what they have


class ServedModels:
    """Every model of the folders. One that fails is not served, and its entry of `registry` says why.

    Raises SettingsError if there is no model, or a needed one fails.

    Parameters
    ----------
    default : name of the model of requests that name none; None: the shipped one, else the first by name
    start : makes the pipeline of a model that passed its check
    needed : the models that must pass it
    threads : runs of a network at once
    """

    def __init__(
        self,
        folders: ModelFolders,
        default: str | None,
        start: Callable[[Model], Pipeline],
        needed: Needed = Needed.NONE,
        *,
        threads: int,
        provider: Provider,
    ) -> None:
        files = folders.files(default)
        loaded = {name: load_entry(file, 1, provider, runs=threads) for name, file in files.items()}
        self.registry = Registry(loaded, default, folders.first)
        self.registry.log_failures()
        wanted = [] if needed is Needed.NONE else loaded if needed is Needed.ALL else [self.registry.default]
        if failed := [name for name in wanted if not loaded[name].served]:
            raise SettingsError(
                f"models_dir: {', '.join(str(files[name]) for name in failed)}: "
                f"{'; '.join(str(loaded[name].failure) for name in failed)}"
            )
        self._pipelines = {name: start(entry.model) for name, entry in loaded.items() if entry.model is not None}

    def pipeline(self, name: str | None) -> Pipeline:
        """The pipeline of a model, by default of the default model. Raises UnknownModel or ModelUnavailable."""
        entry = self.registry.entry(name)
        if entry.name not in self._pipelines:
            raise ModelUnavailable(f"model {entry.name!r} failed its check and is not served: {entry.failure}")
        return self._pipelines[entry.name]

    def faults(self) -> list[str]:
        """Why models that passed their check cannot answer: a network hangs, or a thread has died."""
        faults = [pipeline.queue.fault for pipeline in self._pipelines.values()]
        return [fault for fault in faults if fault is not None]

    @property
    def waiting(self) -> int:
        """Positions that wait for a network of this process."""
        return sum(pipeline.queue.waiting for pipeline in self._pipelines.values())

    def close(self) -> None:
        """Finishes the waiting queries of every model."""
        for pipeline in self._pipelines.values():
            pipeline.close()

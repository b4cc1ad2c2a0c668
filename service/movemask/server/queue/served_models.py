"""`ServedModels`: the models of the folders, loaded and checked once, behind their queues."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection

from movemask.errors import SettingsError
from movemask.network.files import ModelFolders
from movemask.network.model import Model
from movemask.network.onnx import Provider
from movemask.network.registry import MISSING, Registry, load_entry
from movemask.server.queue.pipeline import Pipeline

log = logging.getLogger(__name__)


class ServedModels:
    """Every model of the folders. One that fails is not served, and its entry of `registry` says why.

    Raises SettingsError if there is no model, or a needed one fails.

    Parameters
    ----------
    default : name of the model of requests that name none; None: the one that the folders record, else the shipped
        one, else the first by name that is served
    start : makes the pipeline of a model that passed its check
    needed : names of the models that must pass their check if their file is there; None: every model of the folders
    runs : number of runs of a network at once, each on one core
    provider : the hardware that runs the networks
    """

    def __init__(
        self,
        folders: ModelFolders,
        default: str | None,
        start: Callable[[Model], Pipeline],
        needed: Collection[str] | None = (),
        *,
        runs: int,
        provider: Provider,
    ) -> None:
        files = folders.files(default)
        loaded = {
            name: load_entry(file, threads=1, provider=provider, runs=runs)
            for name, file in files.items()
        }
        self.registry = Registry(loaded, folders.default(default))
        self.registry.log_failures()
        if failed := [
            name
            for name, entry in loaded.items()
            if not entry.served and (needed is None or name in needed)
        ]:
            raise SettingsError(
                f"models_dir: {', '.join(str(files[name]) for name in failed)}: "
                f"{'; '.join(str(loaded[name].failure) for name in failed)}"
            )
        self._pipelines = {
            name: start(entry.model) for name, entry in loaded.items() if entry.model is not None
        }

    def pipeline(self, name: str | None) -> Pipeline:
        """Returns the pipeline of a model, by default of the default model.

        Raises UnknownModel or ModelUnavailable.
        """
        return self._pipelines[self.registry.get(name).name]

    @property
    def digests(self) -> dict[str, str]:
        """A digest of the network and the contract of each served model, by name."""
        texts = {
            entry.name: f"{entry.digest} {entry.contract.model_dump_json()}"
            for entry in self.registry
            if entry.served and entry.contract is not None
        }
        return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}

    @property
    def faults(self) -> dict[str, str]:
        """Why models cannot answer, by name: they failed their check, or a run of their network hangs."""
        failed = {self.registry.default: MISSING}
        for entry in self.registry:
            failed.pop(entry.name, None)
            if not entry.served:
                failed[entry.name] = f"failed its check: {entry.failure}"
        hanging = {name: pipeline.queue.fault for name, pipeline in self._pipelines.items()}
        return failed | {name: fault for name, fault in hanging.items() if fault is not None}

    @property
    def waiting(self) -> dict[str, int]:
        """Positions that wait for each network of this process."""
        return {name: pipeline.queue.waiting for name, pipeline in self._pipelines.items()}

    def close(self) -> None:
        """Finishes the waiting queries of every model."""
        for pipeline in self._pipelines.values():
            pipeline.close()

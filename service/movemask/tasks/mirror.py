"""`Mirror`: a local copy of a models folder in object storage, kept up to date."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

from movemask.audit.files import Folder
from movemask.errors import MovemaskError

log = logging.getLogger(__name__)


class Mirror:
    """Copies NAME.toml and NAME.onnx files of a URI into a local folder, at once and then every `poll_seconds`; only
    once if that is None. A network is copied before its contract, so that a new contract never meets an old network."""

    def __init__(self, source: str, to: Path, poll_seconds: float | None) -> None:
        self._source, self._to, self._poll = Folder(source), to, poll_seconds
        self._known: dict[str, tuple[object, int]] = {}
        self._ended = threading.Event()
        self.copy()
        self._thread = threading.Thread(target=self._run, name="models-mirror", daemon=True)
        if poll_seconds is not None:
            self._thread.start()

    @property
    def stopped(self) -> bool:
        """Whether it should be copying and is not."""
        return self._poll is not None and not self._ended.is_set() and not self._thread.is_alive()

    def close(self) -> None:
        self._ended.set()

    def copy(self) -> None:
        """Brings the copy up to date. Raises OSError or MovemaskError if the folder cannot be read."""
        there = {
            info.base_name: (info.mtime_ns, info.size) for info in self._source.infos() if _is_model(info.base_name)
        }
        for name in sorted(there, key=lambda name: (name.endswith(".toml"), name)):
            if self._known.get(name) != there[name]:
                partial = self._to / f".{name}.partial"
                partial.write_bytes((self._source / name).read_bytes())
                os.replace(partial, self._to / name)
        for name in self._known.keys() - there.keys():
            (self._to / name).unlink(missing_ok=True)
        self._known = there

    def _run(self) -> None:
        while not self._ended.wait(self._poll):
            try:
                self.copy()
            except (OSError, MovemaskError) as error:
                log.error("%s: cannot be copied, the models stay as they are: %s", self._source, error)


def _is_model(name: str) -> bool:
    return name.endswith((".toml", ".onnx"))

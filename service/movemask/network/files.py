"""The files of models folders: where they are looked for, and how they are read. They may be anything: pipes, devices,
networks whose weights lie elsewhere.

A network is read once. Its digest, the search for external weights and onnxruntime get the same bytes: what is served
is what was checked, whatever happens to the file.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from movemask.errors import ContractError, SettingsError

#: Bytes of the largest message that protocol buffers can hold.
LARGEST = 2**31 - 1

#: What comes before the word `location` where it is the key of a tensor's `external_data`: tags and lengths, also where
#: they are written longer than they need be.
_KEY = re.compile(rb"(\x0a|\x8a\x80*\x00)(\x08|\x88\x80*\x00)\Z")
_LONGEST_KEY = 20

#: A pipe must not block where it is opened; only Windows has text files, and it has no such pipes.
_FLAGS: int = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


@dataclass(frozen=True, slots=True)
class ModelFolders:
    """Folders of `NAME.toml` and `NAME.onnx` files. Of two models with one name, that in the earlier folder counts.

    With several folders, those that are not there are passed over. The default is chosen among models of the names
    `preferred` first, then as a folder's file `default` says, so that a model that was added is never the default
    unless it is named. The networks of the folder `trusted` are opened without a trial.
    """

    folders: tuple[Path, ...]
    preferred: frozenset[str] = frozenset()
    trusted: Path | None = None

    @classmethod
    def of(cls, where: Path | ModelFolders) -> ModelFolders:
        """One folder, or the folders themselves."""
        return where if isinstance(where, ModelFolders) else cls((where,))

    def found(self) -> dict[str, Path]:
        """The contracts' files by name; raises SettingsError for a folder that cannot be read."""
        files: dict[str, Path] = {}
        for folder in self.folders:
            for file in self._contracts(folder):
                files.setdefault(file.stem, file)
        return dict(sorted(files.items()))

    def files(self, default: str | None) -> dict[str, Path]:
        """As `found`; raises SettingsError if there are none, or no `default`."""
        files = self.found()
        if not files:
            raise SettingsError(f"MOVEMASK_MODELS_DIR: no model in {self}: it needs NAME.toml and NAME.onnx")
        if default is not None and default not in files:
            raise SettingsError(f"MOVEMASK_DEFAULT_MODEL: no model {default!r}; available: {', '.join(files)}")
        return files

    def ranked(self, default: str | None) -> dict[str, Path]:
        """As `files`, but first the model that answers requests without a name."""
        order = [default, *self.first]
        return dict(sorted(self.files(default).items(), key=lambda item: (*order, item[0]).index(item[0])))

    @property
    def first(self) -> tuple[str, ...]:
        """Names in the order in which a default is chosen, before any other: shipped ones, then those that the folders
        keep."""
        kept = [name for name in map(_kept_default, self.folders) if name is not None]
        return (*sorted(self.preferred), *kept)

    def keep_default(self, folder: Path, added: str, before: str | None) -> None:
        """Keeps the default of a folder to which a model was `added`, in its file `default`, unless that file names a
        model already. `before` is the name of the default before it was added."""
        if _kept_default(folder) not in self.found():
            with suppress(OSError):  # read-only by now: the default is then chosen by name
                (folder / DEFAULT).write_text(f"{before or added}\n", encoding="utf-8")

    def __str__(self) -> str:
        return " or ".join(repr(str(folder)) for folder in self.folders)

    def _contracts(self, folder: Path) -> list[Path]:
        try:
            return [file for file in map(folder.joinpath, os.listdir(folder)) if file.suffix == ".toml"]
        except (FileNotFoundError, NotADirectoryError):
            if len(self.folders) > 1:
                return []
            raise SettingsError(f"MOVEMASK_MODELS_DIR: {str(folder)!r} is not a folder") from None
        except OSError as error:
            raise SettingsError(f"MOVEMASK_MODELS_DIR: {str(folder)!r} cannot be read: {error.strerror}") from None


#: In a models folder: the name of its default model, so that a model that is added later does not take its place.
DEFAULT = "default"


def _kept_default(folder: Path) -> str | None:
    try:
        return read_regular(folder / DEFAULT, 256).decode().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def read_regular(file: Path, most: int) -> bytes:
    """The bytes of a file, or if it has more than `most`, one more than these. Raises OSError, also for a pipe or a
    device, which could block or have no end."""
    if not stat.S_ISREG(os.stat(file).st_mode):  # opening alone can do something to a device
        raise OSError(errno.EINVAL, "is not a regular file", str(file))
    with os.fdopen(os.open(file, os.O_RDONLY | _FLAGS), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):  # it was replaced meanwhile
            raise OSError(errno.EINVAL, "is not a regular file", str(file))
        return stream.read(most + 1)


def read_onnx(file: Path, *, external: bool = False) -> bytes:
    """The bytes of an ONNX file; raises ContractError if it cannot be read, or is none or, unless they are allowed, has
    external weights."""
    try:
        network = read_regular(file, LARGEST)
    except OSError as error:
        raise ContractError(f"{file.name}: {error.strerror}") from None
    if len(network) > LARGEST:
        raise ContractError(f"{file.name}: larger than {LARGEST} bytes")
    if not external:
        refuse_external(network, file.name)
    return network


def refuse_external(network: bytes, name: str) -> None:
    """Raises ContractError for external weights: they would be read from a path that the file chooses, the digest does
    not cover them, and onnxruntime maps them into memory, where a truncated file ends the process."""
    for word in re.finditer(b"location", network):
        if _KEY.search(network, max(0, word.start() - _LONGEST_KEY), word.start()):
            raise ContractError(
                f"{name}: its weights are in another file; save it as one file "
                "(onnx.save with save_as_external_data=False)"
            )

"""Finds the files of models folders and reads them safely: one may be a pipe, a device, or have external weights.

A network is read once. Its digest, the search for external weights and onnxruntime get the same bytes. A later change
of the file cannot change the served network.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from movemask.errors import ContractError, SettingsError

log = logging.getLogger(__name__)

#: The variable that names a folder of models: the only one that the library reads.
_MODELS_DIR = "MOVEMASK_MODELS_DIR"

#: Largest network in bytes: the limit of a protocol buffers message.
MAX_NETWORK_BYTES = 2**31 - 1

#: Tags and lengths before the word `location`, if it is a key in a tensor's `external_data`. Also matches longer
#: encodings than needed. `_LONGEST_KEY` is the longest match in bytes.
_KEY = re.compile(rb"(\x0a|\x8a\x80*\x00)(\x08|\x88\x80*\x00)\Z")
_LONGEST_KEY = 20

#: Opening a pipe must not block. Windows lacks O_NONBLOCK and has no such pipes; only Windows has O_BINARY.
_FLAGS: int = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def shipped_models() -> Path:
    """The folder with the shipped network: in the installed package, or `models/` in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "shipped_models"
    return installed if installed.is_dir() else package.parents[1] / "models"


def user_models() -> Path:
    """The user's own models folder, at the platform's usual place. It may not exist."""
    return platformdirs.user_data_path("movemask", appauthor=False) / "models"


@dataclass(frozen=True, slots=True)
class ModelFolders:
    """Folders of `NAME.toml` and `NAME.onnx` files. The earlier folder wins if a name is in two.

    With several folders, a missing folder is passed over. The default model is the one that a folder's file `default`
    names (`movemask models default`), or else one of the names in `preferred`, or else the first by name.
    """

    folders: tuple[Path, ...]
    preferred: frozenset[str] = frozenset()

    @classmethod
    def chosen(cls, models_dir: Path | None = None) -> ModelFolders:
        """This folder, or the one that MOVEMASK_MODELS_DIR names, or the user's own folder and the shipped one."""
        named = models_dir or os.environ.get(_MODELS_DIR)
        shipped = shipped_models()
        names = frozenset(cls((shipped,)).found() if shipped.is_dir() else ())
        return cls((Path(named),) if named else (user_models(), shipped), names)

    @classmethod
    def of(cls, where: Path | ModelFolders) -> ModelFolders:
        """`where` itself if it is a ModelFolders, otherwise that one folder."""
        return where if isinstance(where, ModelFolders) else cls((where,))

    def found(self) -> dict[str, Path]:
        """The contracts' files by name. Raises SettingsError for a folder that cannot be read."""
        files: dict[str, Path] = {}
        for folder in self.folders:
            for file in self._contracts(folder):
                files.setdefault(file.stem, file)
        return dict(sorted(files.items()))

    def files(self, default: str | None) -> dict[str, Path]:
        """Like `found`, but raises SettingsError if there are no models, or no model named `default`."""
        files = self.found()
        if not files:
            raise SettingsError(f"models_dir: no model in {self}: it needs NAME.toml and NAME.onnx")
        if default is not None and default not in files:
            raise SettingsError(
                f"MOVEMASK_DEFAULT_MODEL: no model {default!r}; available: {', '.join(files)}"
            )
        return files

    def ranked(self, default: str | None) -> dict[str, Path]:
        """Like `files`, with the default model first."""
        order = [default, *self.first]
        return dict(
            sorted(self.files(default).items(), key=lambda item: (*order, item[0]).index(item[0]))
        )

    @property
    def first(self) -> tuple[str, ...]:
        """Names in the order in which a default is chosen: those of the files `default`, then shipped models."""
        named = [name for name in map(_named_default, self.folders) if name is not None]
        return (*named, *sorted(self.preferred))

    def __str__(self) -> str:
        return " or ".join(repr(str(folder)) for folder in self.folders)

    def _contracts(self, folder: Path) -> list[Path]:
        try:
            files = [
                file for file in map(folder.joinpath, os.listdir(folder)) if file.suffix == ".toml"
            ]
        except (FileNotFoundError, NotADirectoryError):
            if len(self.folders) > 1:
                return []
            hint = "; name one by --models-dir, models_dir or MOVEMASK_MODELS_DIR"
            raise SettingsError(f"models_dir: {str(folder)!r} is not a folder{hint}") from None
        except OSError as error:
            raise SettingsError(
                f"models_dir: {str(folder)!r} cannot be read: {error.strerror}"
            ) from None
        if strange := [
            file
            for file in files
            if not (file.stem.isprintable() and any(map(str.isalnum, file.stem)))
        ]:
            log.error(
                "no models, for the characters in their names: %s",
                ascii(sorted(file.name for file in strange)),
            )
        return [file for file in files if file not in strange]


#: File in a models folder with the name of its default model.
DEFAULT = "default"


def _named_default(folder: Path) -> str | None:
    try:
        return read_regular(folder / DEFAULT, 256).decode().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def read_regular(file: Path, most: int) -> bytes:
    """The bytes of a regular file, cut off after `most + 1`, so that the caller sees that it is too large.

    Raises OSError, also for a pipe or a device: reading it could block or never end.
    """
    if not stat.S_ISREG(
        os.stat(file).st_mode
    ):  # before opening: a device may react to being opened
        raise OSError(errno.EINVAL, "is not a regular file", str(file))
    with os.fdopen(os.open(file, os.O_RDONLY | _FLAGS), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):  # the file was replaced in between
            raise OSError(errno.EINVAL, "is not a regular file", str(file))
        return stream.read(most + 1)


def read_onnx(file: Path, *, external: bool = False) -> bytes:
    """The bytes of an ONNX file.

    Raises ContractError if the file cannot be read, is larger than protocol buffers allow, or has external weights
    without `external`.
    """
    try:
        network = read_regular(file, MAX_NETWORK_BYTES)
    except OSError as error:
        raise ContractError(f"{file.name}: {error.strerror}") from None
    if len(network) > MAX_NETWORK_BYTES:
        raise ContractError(f"{file.name}: larger than {MAX_NETWORK_BYTES} bytes")
    if not external:
        refuse_external(network, file.name)
    return network


def refuse_external(network: bytes, name: str) -> None:
    """Raises ContractError if a network has external weights.

    The file chooses their path, the digest does not cover them, and onnxruntime maps them into memory, where a
    truncated file ends the process. The search is a heuristic over the bytes: it looks for the key `location`.
    """
    for word in re.finditer(b"location", network):
        if _KEY.search(network, max(0, word.start() - _LONGEST_KEY), word.start()):
            raise ContractError(
                f"{name}: its weights are in another file; save it as one file "
                "(onnx.save with save_as_external_data=False)"
            )

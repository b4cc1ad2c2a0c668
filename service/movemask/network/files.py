"""Finds the files of models folders and reads them safely: one may be a pipe, a device, or have external weights.

An ONNX file is read once. Its digest, the search for external weights and onnxruntime get the same bytes. A later
change of the file cannot change the served network. Weights in another file are too large for that: onnxruntime reads
them itself.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from movemask.atomic_writes import atomic_write
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
    """Returns the folder with the shipped network: in the installed package, or `models/` in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "shipped_models"
    return installed if installed.is_dir() else package.parents[1] / "models"


def user_models() -> Path:
    """Returns the user's own models folder, at the platform's usual place. It may not exist."""
    return platformdirs.user_data_path("movemask", appauthor=False) / "models"


@dataclass(frozen=True, slots=True)
class ModelFolders:
    """Folders of `NAME.toml` and `NAME.onnx` files. The earlier folder wins if a name is in two.

    With several folders, a missing folder is passed over. `preferred` holds the names of the shipped models.
    """

    folders: tuple[Path, ...]
    preferred: frozenset[str] = frozenset()

    @classmethod
    def chosen(cls, models_dir: Path | None = None) -> ModelFolders:
        """Returns this folder, or else the one that MOVEMASK_MODELS_DIR names.

        Without either, returns the user's own folder and the shipped one.
        """
        named = models_dir or os.environ.get(_MODELS_DIR)
        shipped = shipped_models()
        names = frozenset(cls((shipped,)).found() if shipped.is_dir() else ())
        return cls((Path(named),) if named else (user_models(), shipped), names)

    @classmethod
    def of(cls, where: Path | ModelFolders) -> ModelFolders:
        """Returns `where` itself if it is a ModelFolders, otherwise that one folder."""
        return where if isinstance(where, ModelFolders) else cls((where,))

    def found(self) -> dict[str, Path]:
        """Returns the contracts' files by name. Raises SettingsError for a folder that cannot be read."""
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
        first = self.default(default)
        return dict(sorted(self.files(default).items(), key=lambda item: item[0] != first))

    def default(self, name: str | None = None) -> str | None:
        """Returns the default model: `name`, or else the recorded one, or else a shipped one.

        It may be one that cannot be served. None if there is no such model: then the default is the
        first by name that is served.
        """
        shipped = (
            name
            for name in sorted(self.preferred)
            if any((folder / f"{name}.toml").exists() for folder in self.folders)
        )
        return name or self.recorded or next(shipped, None)

    @property
    def recorded(self) -> str | None:
        """The name in a folder's file `default`; `models default`, `models add` and `models import` write it."""
        return next(filter(None, map(_named_default, self.folders)), None)

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


def record_default(folder: Path, name: str) -> None:
    """Makes `name` the default model of a folder."""
    with atomic_write(folder / DEFAULT) as file:
        file.write(f"{name}\n".encode())


def _named_default(folder: Path) -> str | None:
    try:
        return read_regular(folder / DEFAULT, 256).decode().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def read_regular(file: Path, most: int) -> bytes:
    """Returns the bytes of a regular file, cut off after `most + 1`, so that the caller sees that it is too large.

    Raises OSError, also for a pipe or a device: reading it could block or never end.
    """
    regular_size(file)  # before opening: a device may react to being opened
    with os.fdopen(os.open(file, os.O_RDONLY | _FLAGS), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):  # the file was replaced in between
            raise OSError(errno.EINVAL, "is not a regular file", str(file))
        return stream.read(most + 1)


def regular_size(file: Path) -> int:
    """Returns the size of a regular file in bytes. Raises OSError, also for a pipe or a device."""
    status = os.stat(file)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "is not a regular file", str(file))
    return status.st_size


def digest_of(file: Path) -> str:
    """Returns the SHA-256 of a file in hexadecimal, taken in a stream.

    Raises OSError, also for a pipe or a device.
    """
    regular_size(file)
    with os.fdopen(os.open(file, os.O_RDONLY | _FLAGS), "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_onnx(file: Path, *, external: bool = False, data: str | None = None) -> bytes:
    """Returns the bytes of an ONNX file.

    data : the file that may hold its weights; with `external`, any file may

    Raises ContractError if the file cannot be read, is larger than protocol buffers allow, or has weights elsewhere.
    """
    try:
        size = regular_size(file)
        if size <= MAX_NETWORK_BYTES:
            network = read_regular(file, MAX_NETWORK_BYTES)
            size = len(network)
    except OSError as error:
        raise ContractError(f"{file.name}: {error.strerror}") from None
    if size > MAX_NETWORK_BYTES:
        raise ContractError(
            f"{file.name}: it has {size:,} bytes, and an ONNX file at most {MAX_NETWORK_BYTES:,}; export it with "
            "external data, or with float16 weights"
        )
    if not external:
        refuse_external(network, file.name, data)
    return network


def external_files(network: bytes) -> set[str]:
    """Returns the names of the files that an ONNX file says hold its weights.

    They are told from its bytes, as far as possible.
    """
    names = set()
    for word in _locations(network):
        value = network[word : word + 130]
        if value[:1] == b"\x12" and value[1:2] < b"\x80":
            names.add(value[2 : 2 + value[1]].decode(errors="replace"))
    return names


def _locations(network: bytes) -> Iterator[int]:
    """Yields where the values of the keys `location` begin."""
    for word in re.finditer(b"location", network):
        if _KEY.search(network, max(0, word.start() - _LONGEST_KEY), word.start()):
            yield word.end()


def refuse_external(network: bytes, name: str, data: str | None = None) -> None:
    """Raises ContractError if a network has external weights in another file than `data`.

    The ONNX file chooses their path, its digest does not cover them, and onnxruntime maps them into memory, where a
    truncated file ends the process. The search is a heuristic over the bytes: it looks for the key `location`.
    """
    place = (data or "").encode()
    value = b"\x12" + bytes([len(place)]) + place if 0 < len(place) < 128 else None
    for word in _locations(network):
        if value is None or not network.startswith(value, word):
            raise ContractError(
                f"{name}: its weights are in another file; `movemask models add {name}` takes them in"
                if data is None
                else f"{name}: some of its weights are in another file than network.data, {data!r}"
            )

"""`ModelFolders`: where models are looked for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from movemask.errors import SettingsError


@dataclass(frozen=True, slots=True)
class ModelFolders:
    """Folders of `NAME.toml` and `NAME.onnx` files. Of two models with one name, that in the earlier folder counts.

    With several folders, those that are not there are passed over. Among models of the names `preferred`, the default
    is chosen first, so that a model that was added is never the default unless it is named.
    """

    folders: tuple[Path, ...]
    preferred: frozenset[str] = frozenset()

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
            raise SettingsError(f"MOVEMASK_MODELS_DIR: no model in {self}: it needs a NAME.toml beside NAME.onnx")
        if default is not None and default not in files:
            raise SettingsError(f"MOVEMASK_DEFAULT_MODEL: no model {default!r}; there are {', '.join(files)}")
        return files

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

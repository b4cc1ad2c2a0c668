"""`NetworkSettings`: which networks and engine run, and on what. Commands that need no service read them.

`server.settings` adds those of the service. The library reads only MOVEMASK_MODELS_DIR (`network/files.py`).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal, Self, get_args, get_origin

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from movemask.cores import available_cores
from movemask.errors import SettingsError
from movemask.network.files import ModelFolders

PREFIX = "MOVEMASK_"


class NetworkSettings(BaseSettings):
    """Settings of networks and the engine. A field `name` is the variable MOVEMASK_NAME."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="ignore", allow_inf_nan=False
    )

    #: What the value of a field must be, in words, where its type and its bounds do not say it.
    expected: ClassVar[Mapping[str, str]] = {}

    models_dir: Path | None = Field(
        None,
        description="Folder of NAME.toml and NAME.onnx files, used instead of your own and the shipped one.",
    )
    default_model: str | None = Field(None, description="Model for requests that name none.")
    trial_seconds: float = Field(
        60, ge=0, description="Time limit of the trial in `models add`; 0: none."
    )
    provider: Literal["cpu", "cuda"] = Field(
        "cpu", description="Device: cpu, or cuda with onnxruntime-gpu."
    )
    threads: int = Field(
        default_factory=available_cores,
        ge=1,
        le=256,
        description="Threads of a network in commands.",
    )

    engine: str | None = Field(
        None,
        description="UCI engine that judges moves, by its name on PATH or its path; empty: none.",
    )

    @property
    def engine_program(self) -> str | None:
        """The path of the engine; None without one. Raises SettingsError if the one that is named does not exist."""
        if self.engine == "":
            return None
        program = shutil.which(self.engine or "stockfish")
        if self.engine is not None and program is None:
            raise SettingsError(
                f"{PREFIX}ENGINE: there is no program {self.engine!r}, by name on PATH or by path"
            )
        return program

    @property
    def model_folders(self) -> ModelFolders:
        """The folders with models: `models_dir`, or the user's own folder and the shipped one."""
        return ModelFolders.chosen(self.models_dir)

    @classmethod
    def read(cls, **flags: object) -> Self:
        """Reads the settings from flags and, where a flag is None, from the environment.

        Raises SettingsError, which names the variable, for an invalid value.
        """
        try:
            return cls(**{name: value for name, value in flags.items() if value is not None})  # type: ignore[arg-type]
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name, value = str(first["loc"][0]), first["input"]
            if first["type"] == "value_error":
                fault = f"{first['msg'].removeprefix('Value error, ')}, got {value!r}"
            else:
                fault = f"{value or repr(value)} is not {cls._expected(name)}"
            raise SettingsError(f"{PREFIX}{name.upper()}: {fault}") from None

    @classmethod
    def _expected(cls, name: str) -> str:
        """Returns what the value of a field must be, in words."""
        field = cls.model_fields[name]
        if name in cls.expected:
            return cls.expected[name]
        if get_origin(field.annotation) is Literal:
            *others, last = get_args(field.annotation)
            return f"{', '.join(others)} or {last}"
        if field.annotation is bool:
            return "true or false"
        bounds = {
            bound: getattr(limit, bound)
            for limit in field.metadata
            for bound in ("ge", "gt", "le")
            if hasattr(limit, bound)
        }
        noun = "a number" if field.annotation is float else "a whole number"
        if "le" in bounds:
            return f"{noun} from {bounds['ge']} to {bounds['le']}"
        return (
            f"{noun} above {bounds['gt']}"
            if "gt" in bounds
            else f"{noun} of at least {bounds['ge']}"
        )

"""`Settings`: the service's settings, from MOVEMASK_* environment variables and the flags of `movemask serve`.

docs/settings.md lists them; a test compares the two.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, SecretStr, field_validator

from movemask.cores import available_cores
from movemask.errors import SettingsError
from movemask.settings import PREFIX, NetworkSettings

#: Defaults of `max_batch`.
_BATCH_CPU, _BATCH_GPU = 32, 512

LogLevel = Literal["critical", "error", "warning", "info", "debug"]

#: A web page's origin as browsers send it: scheme, host and port, without a path.
_ORIGIN = r"https?://(?:\[[0-9a-f:.]+\]|[a-z0-9.-]+)(?::\d{1,5})?"


#: A host's name, an IPv4 address, an IPv6 address with brackets or without, `*.NAME` or `*`.
_HOST = re.compile(
    r"\*|(\*\.)?[\w-]+(\.[\w-]+)*|\[[0-9a-f:.]+\]|[0-9a-f]*:[0-9a-f.]*:[0-9a-f:.]*", re.I
)

#: The names of this machine, with which a service on loopback is asked.
_LOOPBACK = ("localhost", "*.localhost", "127.0.0.0/8", "::1")

#: Of a path prefix; nothing that HTML or a header would have to escape.
ROOT_PATH = r"(/[A-Za-z0-9._~-]+)+"


class Settings(NetworkSettings):
    """The service's settings, and those of its networks. A field `name` is the variable MOVEMASK_NAME and the flag
    --name of `movemask serve`, but for those in `of_commands`.
    """

    #: Settings that the service does not use.
    of_commands: ClassVar = frozenset({"threads", "trial_seconds"})

    expected: ClassVar[Mapping[str, str]] = {
        "port": "a port; use 0 to 65535",
        "workers": "auto or a whole number from 1 to 64",
        "root_path": "a path prefix such as /chess: a slash at the beginning, none at the end, and letters, digits and "
        ". _ ~ - only",
        "cors_origins": "* or origins such as https://example.org,http://localhost:3000: in lower case, without "
        "blanks, paths or a slash at the end",
    }

    host: str = Field("127.0.0.1", description="Address to listen on, or unix:FILE.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    workers: Annotated[int, Field(ge=1, le=64)] | Literal["auto"] = Field(
        "auto", description="Worker processes, 1 to 64; auto: one per core, at most 4."
    )
    log_level: LogLevel = Field("info", description="critical, error, warning, info or debug.")
    log_format: Literal["text", "json"] = Field(
        "text", description="Format of log lines: text or json."
    )

    api_keys: SecretStr | None = Field(
        None,
        description="API keys, comma-separated: KEY, or KEY:SCOPE+SCOPE; without keys, everything is open.",
    )
    api_keys_file: Path | None = Field(
        None, description="File with hashes of API keys (movemask keys new)."
    )

    trusted_hosts: str = Field(
        "", description="Host names served, comma-separated; *.NAME for subdomains, * for any."
    )
    proxies: int = Field(
        0, ge=0, le=10, description="Number of trusted proxies in front (X-Forwarded-For)."
    )
    root_path: Annotated[str, Field(pattern=rf"^({ROOT_PATH})?$")] = Field(
        "", description="Path prefix under which a proxy serves the service, such as /chess."
    )
    tls_cert: Path | None = Field(
        None, description="PEM file of the TLS certificate and its chain; serves HTTPS."
    )
    tls_key: Path | None = Field(None, description="PEM file of the certificate's key.")

    runs: int = Field(
        default_factory=available_cores,
        ge=1,
        le=256,
        description="Runs of a network at once, one thread each.",
    )

    mcp: bool = Field(
        False, description="Whether /mcp offers tools for language models (Model Context Protocol)."
    )
    page: bool = Field(
        True, description="Whether GET / serves the page with the board and the dashboard."
    )
    cors_origins: Annotated[str | None, Field(pattern=rf"^(\*|{_ORIGIN}(,{_ORIGIN})*)$")] = Field(
        None,
        description="Origins whose pages may call the service, comma-separated: https://example.org; or *.",
    )

    database_url: str = Field(
        "sqlite:///movemask.db",
        description="Database of the ledger: sqlite:///FILE or postgresql://USER@HOST/NAME.",
    )
    ledger_kinds: str = Field(
        "raw,multiplied,served", description="Kinds of leakage measured for all requests, or all."
    )
    ledger_share: float = Field(
        0.05, ge=0, le=1, description="Share of batches for which all kinds are measured."
    )
    ledger_positions: Literal["on", "off"] = Field(
        "on", description="Whether the ledger keeps positions (FENs)."
    )
    ledger_keep_days: float = Field(
        30, gt=0, description="Days that single positions are kept; figures stay."
    )
    ledger_keep_positions: int = Field(
        1_000_000, ge=1, description="Most single positions to keep; the newest stay."
    )

    max_batch: int | None = Field(None, ge=1, le=4096, description="Most positions in one run.")
    max_queue: int = Field(
        4096, ge=1, description="Positions that may wait; beyond that, requests get a 503."
    )
    max_positions: int = Field(
        1024, ge=1, le=1024, description="Positions in a batch, moves in a games request."
    )
    max_moves: int = Field(1024, ge=0, description="Most moves in the `moves` of one position.")
    max_body_bytes: int = Field(
        2 * 2**20, ge=1024, description="Most bytes in a body; some routes have lower limits."
    )
    client_rate: float = Field(
        0, ge=0, description="Positions per second for each key or address; 0: no limit."
    )
    client_burst: int = Field(
        2048, ge=1, description="Burst: positions an idle client may request at once."
    )
    max_connections: int = Field(
        2048, ge=1, description="Most open connections, for all workers together."
    )
    max_connections_per_address: int = Field(
        256, ge=1, description="Most open connections from one address."
    )
    head_seconds: float = Field(
        10, gt=0, description="Seconds in which a connection must send a request's head."
    )
    body_seconds: float = Field(
        60, gt=0, description="Seconds in which a request's body must arrive."
    )
    read_seconds: float = Field(
        30, gt=0, description="Seconds that a client may read slower than 1 kB/s."
    )
    keep_alive_seconds: float = Field(
        5, ge=0, description="Seconds that an idle connection stays open."
    )
    drain_seconds: int = Field(
        20, ge=1, description="Seconds that in-flight requests have to finish at shutdown."
    )

    @field_validator("log_level", mode="before")
    @classmethod
    def _in_lower_case(cls, level: object) -> object:
        return level.lower() if isinstance(level, str) else level

    @field_validator("trusted_hosts")
    @classmethod
    def _only_names(cls, names: str) -> str:
        for name in names.split(",") if names else ():
            if not _HOST.fullmatch(name.strip()):
                raise ValueError(
                    f"must be host names without scheme, port and path; {name.strip()!r} is none"
                )
        return names

    @property
    def worker_processes(self) -> int:
        """Number of worker processes. `auto`: one per core, at most 4; with a GPU, or without fork (Windows), one."""
        if self.workers != "auto":
            return self.workers
        return 1 if self.provider != "cpu" or not hasattr(os, "fork") else min(4, available_cores())

    @property
    def positions_a_run(self) -> int:
        """Most positions in one run of a network: `max_batch`, or 32 on a CPU and 512 on a GPU.

        docs/performance.md has the measurements.
        """
        return self.max_batch or (_BATCH_CPU if self.provider == "cpu" else _BATCH_GPU)

    @property
    def listed_keys(self) -> str:
        """The text of `api_keys`, which is hidden in logs; empty without keys."""
        return self.api_keys.get_secret_value() if self.api_keys else ""

    @property
    def origins(self) -> list[str]:
        """The origins of `cors_origins`."""
        return self.cors_origins.split(",") if self.cors_origins else []

    def hosts(self, *, keyed: bool) -> list[str]:
        """Returns the names that the service answers to, in lower case and without brackets.

        They are the names of `trusted_hosts`, if it is set. Otherwise the service answers to any
        name. But on loopback without keys, proxies and CORS for all, it answers only to this
        machine's names.
        """
        if self.trusted_hosts:
            return [name.strip("[] ").lower() for name in self.trusted_hosts.split(",")]
        shared = keyed or self.proxies or self.cors_origins == "*"
        return ["*"] if shared or not _is_loopback(self.host) else [*_LOOPBACK]

    @classmethod
    def default_shown(cls, name: str) -> str:
        """Returns the default of a setting as text; in words if it depends on the machine."""
        field = cls.model_fields[name]
        return _DEFAULTS_IN_WORDS.get(name) or str(field.default)

    @classmethod
    def read(cls, **flags: object) -> Self:
        """As `NetworkSettings.read`. Raises SettingsError for an unknown MOVEMASK_* variable too."""
        for name, value in os.environ.items():
            if name.upper().startswith(PREFIX) and not _is_service_link(name, value):
                _refuse_unknown(name)
        return super().read(**flags)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # another name, or a Unix socket
        return False


#: Defaults that depend on the machine or the models.
_DEFAULTS_IN_WORDS = {
    "api_keys": "none: everything is open",
    "api_keys_file": "no file",
    "root_path": "none",
    "tls_cert": "none: plain HTTP",
    "tls_key": "in the certificate's file",
    "models_dir": "your own models folder and the shipped one",
    "trusted_hosts": "this machine's names if it listens on loopback without keys, proxies and CORS for all, else any",
    "cors_origins": "none",
    "default_model": "the recorded one (movemask models default, add or import), else the shipped one, else the "
    "first by name that is served",
    "engine": "stockfish, if it is on PATH",
    "threads": "the cores the process may use",
    "runs": "the cores the process may use",
    "max_batch": "32, or 512 on a GPU",
}

_LINK_NAME = re.compile(
    r".*(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?)", re.I
)
_LINK_VALUE = re.compile(r"(tcp|udp|sctp)://")


def _is_service_link(name: str, value: str) -> bool:
    """Returns whether Kubernetes or Docker set a variable because a service is named `movemask…`."""
    return bool(_LINK_NAME.fullmatch(name) or _LINK_VALUE.match(value))


def _refuse_unknown(variable: str) -> None:
    """Raises SettingsError for a variable that is no setting, with the most similar setting."""
    known = [PREFIX + name.upper() for name in Settings.model_fields]
    if variable.upper() not in known:
        nearest = difflib.get_close_matches(variable.upper(), known, n=1, cutoff=0)[0]
        raise SettingsError(
            f"{variable}: there is no such setting; did you mean {nearest}? (movemask serve --help lists all)"
        )

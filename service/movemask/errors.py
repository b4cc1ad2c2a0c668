"""The errors that this project raises, as a tree. HTTP status codes are in `movemask.api.problems`.

MovemaskError
├── RequestError                the request is at fault; the message names the offending input
│   ├── InvalidFen              not a FEN
│   ├── InvalidPosition         a FEN, but no legal chess position
│   ├── IllegalMove             a move in `moves` that cannot be played
│   ├── UnsupportedVariant      Chess960 asked of a network that cannot tell its castling moves
│   ├── InvalidRule             normaliser, alpha and filters that do not go together
│   ├── NotCalibrated           the calibrated temperature of a model that has none
│   ├── InvalidPgn              no game in it, or one that cannot be played through
│   ├── UnknownModel            no model of that name
│   ├── UnknownKind             no leakage of that kind
│   ├── InvalidParameter        a parameter that cannot be read
│   ├── InvalidSweep            ratings for a network that takes none, or an empty sweep
│   ├── InvalidAudit            numbers to audit that fit no vocabulary, or are no policy
│   └── LimitExceeded           more than a limit allows
├── CapacityError               the service cannot take it now; retry later
│   ├── Overloaded              the queue is full
│   ├── RateLimited             the client exceeds its rate
│   └── ShuttingDown            the service is stopping
├── ModelError                  the network or its contract is at fault
│   ├── ContractError           the TOML file, or an ONNX file that does not match it
│   ├── WeightsError            a weight file that cannot be converted
│   ├── MoveOutsideVocabulary   a legal move that has no slot of its own
│   ├── InvalidLogits           a legal logit that is NaN or +inf, or none that is finite
│   ├── InferenceFailed         the runtime raised, or returned another shape
│   └── ModelUnavailable        the model failed its check and is not served
├── ServedLeakage               movemask's answer has an illegal move or does not sum to 1
├── StoreError                  the audit store cannot be opened or read
│   └── StoreUnreachable        the database server does not answer now
├── SourceError                 a file of games or positions that cannot be read
├── EngineFailed                a UCI engine that cannot be started, or that stops answering
├── BulkError                   an audit of files that cannot continue with these arguments
├── KeysError                   a file of API keys that cannot be read, or a key that cannot be made
├── MissingExtra                a command whose optional dependencies are not installed
├── ApiError                    a service answered movemask's client with a problem
├── ServiceUnreachable          a service does not answer movemask's client
├── InvalidResponse             what answered movemask's client is no movemask, or a broken one
└── SettingsError               the service cannot start with its settings
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any


class MovemaskError(Exception):
    """Base class of every error raised on purpose; `str(error)` can be shown to a user."""


class RequestError(MovemaskError): ...


class InvalidFen(RequestError): ...


class InvalidPosition(RequestError):
    """A FEN of an impossible position; `statuses` are python-chess's names for the reasons."""

    def __init__(self, message: str, statuses: tuple[str, ...]) -> None:
        super().__init__(message)
        self.statuses = statuses


class IllegalMove(RequestError): ...


class UnsupportedVariant(RequestError): ...


class InvalidRule(RequestError): ...


class NotCalibrated(RequestError): ...


class InvalidPgn(RequestError): ...


class UnknownModel(RequestError): ...


class UnknownKind(RequestError): ...


class InvalidParameter(RequestError): ...


class InvalidSweep(RequestError): ...


class InvalidAudit(RequestError): ...


class LimitExceeded(RequestError): ...


class CapacityError(MovemaskError):
    """The request is valid, but cannot be served now. `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Overloaded(CapacityError): ...


class RateLimited(CapacityError): ...


class ShuttingDown(CapacityError): ...


class ModelError(MovemaskError): ...


class ContractError(ModelError): ...


class WeightsError(ModelError): ...


class MoveOutsideVocabulary(ModelError): ...


class InvalidLogits(ModelError): ...


class InferenceFailed(ModelError): ...


class ModelUnavailable(ModelError): ...


class ServedLeakage(MovemaskError): ...


class StoreError(MovemaskError): ...


class StoreUnreachable(StoreError): ...


class SourceError(MovemaskError): ...


class EngineFailed(MovemaskError): ...


class BulkError(MovemaskError): ...


class KeysError(MovemaskError): ...


class MissingExtra(MovemaskError): ...


class ApiError(MovemaskError):
    """The problem (RFC 9457) that a service answered with: its fields, and in `extra` those of its type."""

    def __init__(
        self,
        status: int,
        type: str,
        title: str,
        detail: str,
        request_id: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.type = type
        self.title = title
        self.detail = detail
        self.request_id = request_id
        self.extra = dict(extra or {})

    @property
    def name(self) -> str:
        """The last part of `type`, such as `illegal-move`."""
        return self.type.rpartition(":")[2]


class ServiceUnreachable(MovemaskError):
    """No whole answer: the connection failed, or the time was over."""


class InvalidResponse(MovemaskError):
    """An answer that is not movemask's: too long, no JSON, or other fields. The address may be another server's."""


class SettingsError(MovemaskError): ...


#: The modules of each optional dependency of pyproject.toml, by the names they are imported by.
EXTRAS = {
    "audit": ("duckdb", "jinja2", "matplotlib", "pyarrow", "tqdm"),
    "client": ("httpx2",),
    "import": ("onnx",),
    "mcp": ("mcp",),
    "ray": ("ray",),
}


def require(extra: str, what: str) -> None:
    """Raises MissingExtra if a module of `extra` is not installed; `what` is the command or file that needs it."""
    missing = [module for module in EXTRAS[extra] if find_spec(module) is None]
    if missing:
        raise MissingExtra(
            f"{what} needs {', '.join(missing)}: pip install 'movemask[{extra}]', or in Docker the target `tools`"
        )

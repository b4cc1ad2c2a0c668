"""All errors that movemask raises on purpose, as a tree. `movemask.server.problems` has their HTTP status codes.

MovemaskError
├── RequestError                an invalid request; the message names the offending input
│   ├── InvalidFen              not a FEN
│   ├── InvalidPosition         a FEN of an illegal position
│   ├── IllegalMove             a move in `moves` that is illegal or no move
│   ├── UnsupportedVariant      Chess960 castling, for which the network's vocabulary has no slots
│   ├── InvalidRule             normaliser and alpha that do not go together
│   ├── NotCalibrated           the model has no calibrated temperature
│   ├── InvalidPgn              no game, or a game with an illegal move
│   ├── UnknownModel            no model of that name
│   ├── UnknownKind             no leakage of that kind
│   ├── InvalidParameter        a parameter with an invalid value
│   ├── InvalidSweep            a sweep over ratings of a network that takes none, or over nothing
│   ├── InvalidAudit            another program's numbers that fit no vocabulary, or are no policy
│   └── LimitExceeded           more than a limit allows
├── CapacityError               the service is busy; retry later
│   ├── Overloaded              the queue or another limit of the service is full
│   ├── RateLimited             the client exceeds its rate
│   └── ShuttingDown            the service is stopping
├── ModelError                  the network or its contract is at fault
│   ├── ContractError           the TOML file, or an ONNX file that does not match it
│   ├── WeightsError            a weight file that cannot be converted
│   ├── MoveOutsideVocabulary   a legal move that has no slot of its own
│   ├── InvalidLogits           a legal logit is NaN or +inf, or all are -inf
│   ├── InferenceFailed         onnxruntime failed, or returned a wrong shape
│   └── ModelUnavailable        the model is not served, because it failed its check
├── ServedLeakage               an answer of movemask has an illegal move, or does not sum to 1
├── StoreError                  the audit's database cannot be opened, read or written
│   └── StoreUnreachable        the database server does not answer
├── SourceError                 a file of games or positions cannot be read
├── EngineFailed                a UCI engine cannot be started, or stops answering
├── BulkError                   `movemask audit` cannot continue with these arguments
├── KeysError                   a file of API keys cannot be read, or a key cannot be made
├── MissingExtra                optional dependencies of a command are not installed
├── ApiError                    a service answered the client with a problem
├── ServiceUnreachable          a service does not answer the client
├── InvalidResponse             what answered the client is not movemask, or is broken
└── SettingsError               the service cannot start with its settings
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any


class MovemaskError(Exception):
    """Base class. `str(error)` is a message for users."""


class RequestError(MovemaskError): ...


class InvalidFen(RequestError): ...


class InvalidPosition(RequestError):
    """`statuses` are python-chess's names of what is wrong with the position."""

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
    """`retry_after` : seconds after which a retry may succeed"""

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
    """A problem (RFC 9457) that a service answered with. `extra` has the fields that only its type has."""

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
    """The connection failed or timed out."""


class InvalidResponse(MovemaskError):
    """An answer that is not movemask's: too long, no JSON, or other fields. The address may be another server's."""


class SettingsError(MovemaskError): ...


#: The modules of the optional dependencies in pyproject.toml, by the names under which they are imported.
EXTRAS = {
    "audit": ("jinja2", "matplotlib", "pyarrow", "tqdm"),
    "client": ("httpx2",),
    "import": ("onnx",),
    "mcp": ("mcp",),
    "ray": ("ray",),
}


def require(extra: str, what: str) -> None:
    """Raises MissingExtra if a module of `extra` is not installed. `what` is the command or file that needs it."""
    missing = [module for module in EXTRAS[extra] if find_spec(module) is None]
    if missing:
        raise MissingExtra(
            f"{what} needs {', '.join(missing)}: pip install 'movemask[{extra}]', or in Docker the target `tools`"
        )

"""The errors that movemask raises on purpose. `movemask.server.problems` has their HTTP status codes."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

#: Characters of a client's text that a message shows.
LONGEST_INPUT = 80


def shown(text: str) -> str:
    """Returns a client's text, shortened, with escapes for characters that UTF-8 cannot express."""
    cut = text if len(text) <= LONGEST_INPUT else text[:LONGEST_INPUT] + "…"
    return cut.encode("utf-8", "backslashreplace").decode()


class MovemaskError(Exception):
    """Base class. `str(error)` is a message for users."""


class RequestError(MovemaskError):
    """An invalid request; the message names the offending input."""


class InvalidFen(RequestError):
    """Not a FEN."""


#: What to do with a FEN that is valid as Chess960 only, in the words of HTTP and Python.
ASK_AS_CHESS960 = "ask with chess960 true"


class InvalidPosition(RequestError):
    """A FEN of an illegal position. `statuses` are python-chess's names of what is wrong with it."""

    def __init__(self, message: str, statuses: tuple[str, ...]) -> None:
        super().__init__(message)
        self.statuses = statuses


class IllegalMove(RequestError):
    """A move in `moves` that is illegal or no move."""


class UnsupportedVariant(RequestError):
    """Another variant, or Chess960 castling for which the network's vocabulary has no slots."""


class InvalidRule(RequestError):
    """Normaliser and alpha that do not go together."""


class NotCalibrated(RequestError):
    """The model has no calibrated temperature."""


class InvalidPgn(RequestError):
    """No game, or a game with an illegal move."""


class UnknownModel(RequestError):
    """No model of that name."""


class UnknownKind(RequestError):
    """No leakage of that kind."""


class InvalidParameter(RequestError):
    """A parameter with an invalid value."""


class InvalidSweep(RequestError):
    """A sweep over ratings of a network that takes none, or over nothing."""


class InvalidAudit(RequestError):
    """Another program's numbers that fit no vocabulary, or are no policy."""


class LimitExceeded(RequestError):
    """More than a limit allows."""


class CapacityError(MovemaskError):
    """The service is busy. `retry_after` : seconds after which a retry may succeed"""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Overloaded(CapacityError):
    """The queue or another limit of the service is full."""


class RateLimited(CapacityError):
    """The client exceeds its rate. `positions` : what it asked for, as far as that was known"""

    def __init__(self, message: str, retry_after: int, positions: int) -> None:
        super().__init__(message, retry_after)
        self.positions = positions


class ShuttingDown(CapacityError):
    """The service is stopping."""


class ModelError(MovemaskError):
    """The network or its contract is at fault."""


class ContractError(ModelError):
    """The TOML file, or an ONNX file that does not match it."""


class WeightsError(ModelError):
    """A weight file that cannot be converted."""


class MoveOutsideVocabulary(ModelError):
    """A legal move that has no slot of its own."""


class InvalidLogits(ModelError):
    """A legal logit is NaN or +inf, all are -inf, or a number of the value is not finite."""


class InferenceFailed(ModelError):
    """onnxruntime failed, or returned a wrong shape."""


class ModelUnavailable(ModelError):
    """The model is not served, because it failed its check."""


class ServedLeakage(MovemaskError):
    """An answer of movemask has an illegal move, or does not sum to 1."""


class LedgerError(MovemaskError):
    """The ledger's database cannot be opened, read or written."""


class LedgerUnreachable(LedgerError):
    """The database server does not answer."""


class UnknownLedgerVersion(LedgerError):
    """The database has tables of another version of movemask, which this one never writes."""


class SourceError(MovemaskError):
    """A file of games or positions cannot be read."""


class BulkError(MovemaskError):
    """`movemask audit` cannot continue with these arguments."""


class KeysError(MovemaskError):
    """A file of API keys cannot be read, or a key cannot be made."""


class MissingExtra(MovemaskError):
    """Optional dependencies of a command are not installed."""


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


class SettingsError(MovemaskError):
    """The service cannot start with its settings."""


#: The modules of the optional dependencies in pyproject.toml, by the names under which they are imported.
EXTRAS = {
    "serve": (
        *(
            "fastapi",
            "fastapi_offline",
            "httptools",
            "opentelemetry",
            "orjson",
            "prometheus_client",
        ),
        *("psycopg", "sqlalchemy", "uvicorn"),
    ),
    "client": ("httpx2",),
    "audit": ("jinja2", "matplotlib", "pyarrow", "tqdm"),
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

"""The errors that this project raises, as a tree. HTTP status codes are in `movemask.api.problems`.

MovemaskError
├── RequestError                the request is at fault
│   ├── InvalidFen              not a FEN
│   ├── InvalidPosition         a FEN, but no legal chess position
│   ├── IllegalMove             a move in `moves` that cannot be played
│   ├── UnsupportedVariant      Chess960 asked of a network that cannot tell its castling moves
│   ├── InvalidRule             normaliser, alpha and the like that do not go together
│   ├── NotCalibrated           the calibrated temperature of a model that has none
│   ├── InvalidPgn              no game in it, or one that cannot be played through
│   ├── UnknownModel            no model of that name
│   ├── UnknownKind             no leakage of that kind
│   ├── InvalidParameter        a query parameter that cannot be read
│   ├── InvalidAudit            numbers to audit that fit no vocabulary, or are no policy
│   └── LimitExceeded           more than a limit allows
├── CapacityError               the service cannot take it now; retry later
│   ├── Overloaded              the queue is full
│   └── ShuttingDown            the service is stopping
├── ModelError                  the network or its contract is at fault
│   ├── ContractError           the TOML file, or an ONNX file that does not match it
│   ├── WeightsError            a weight file that cannot be converted
│   ├── MoveOutsideVocabulary   a legal move that has no slot of its own
│   ├── InvalidLogits           a legal logit that is NaN or +inf, or none that is finite
│   ├── InferenceFailed         the runtime raised, or returned another shape
│   └── ModelUnavailable        the model failed its check and is not served
├── ServedLeakage               an answer of ours has an illegal move or does not sum to 1
├── StoreError                  the audit store cannot be opened or read
│   └── StoreUnreachable        the database server does not answer now
├── SourceError                 a file of games or positions that cannot be read
├── AuditError                  an audit of files that cannot continue with these arguments
├── MissingExtra                a command whose optional dependencies are not installed
└── SettingsError               the service cannot start with its settings
"""

from __future__ import annotations


class MovemaskError(Exception):
    """Base class of every error raised on purpose; `str(error)` can be shown to a user."""


class RequestError(MovemaskError):
    """The request is at fault, and the message names the offending input."""


class InvalidFen(RequestError):
    """Not a FEN."""


class InvalidPosition(RequestError):
    """A FEN of an impossible position; `statuses` are python-chess's names for the reasons."""

    def __init__(self, message: str, statuses: tuple[str, ...]) -> None:
        super().__init__(message)
        self.statuses = statuses


class IllegalMove(RequestError):
    """A move in `moves` that is not UCI, or not legal in its position."""


class UnsupportedVariant(RequestError):
    """Chess960 asked of a network whose vocabulary cannot tell its castling moves."""


class InvalidRule(RequestError):
    """Normaliser, alpha and the like that do not go together."""


class NotCalibrated(RequestError):
    """The calibrated temperature was requested of a model that has none."""


class InvalidPgn(RequestError):
    """A PGN without a game, or a game that cannot be played through."""


class UnknownModel(RequestError):
    """No model of that name in the registry."""


class UnknownKind(RequestError):
    """No leakage of that kind is recorded."""


class InvalidParameter(RequestError):
    """A query parameter that cannot be read; the message names it."""


class InvalidAudit(RequestError):
    """Logits or probabilities to audit that do not fit the vocabulary, or are no policy."""


class LimitExceeded(RequestError):
    """More than a limit of the service allows."""


class CapacityError(MovemaskError):
    """The request is valid, but cannot be served now. `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Overloaded(CapacityError):
    """The queue in front of the network is full."""


class ShuttingDown(CapacityError):
    """The service is stopping and accepts no more work."""


class ModelError(MovemaskError):
    """The network, or the contract it is served under, is at fault."""


class ContractError(ModelError):
    """A contract that cannot be read, or an ONNX file that does not match it."""


class WeightsError(ModelError):
    """A weight file that is damaged, or of a kind that cannot be converted."""


class MoveOutsideVocabulary(ModelError):
    """A legal move that has no slot of its own in the vocabulary."""


class InvalidLogits(ModelError):
    """Legal logits that define no distribution."""


class InferenceFailed(ModelError):
    """The runtime raised, or returned something other than the contract says."""


class ModelUnavailable(ModelError):
    """The model is known, but failed its check and is not served."""


class ServedLeakage(MovemaskError):
    """An answer has probability on an illegal move, or does not sum to 1."""


class StoreError(MovemaskError):
    """The audit store cannot be opened or read."""


class StoreUnreachable(StoreError):
    """The audit store's database server does not answer; it may come back."""


class SourceError(MovemaskError):
    """A file of games or positions cannot be read."""


class AuditError(MovemaskError):
    """An audit of files cannot continue with these arguments."""


class MissingExtra(MovemaskError):
    """A command needs packages of an extra that is not installed; the message names them."""


class SettingsError(MovemaskError):
    """The service cannot start with its settings."""

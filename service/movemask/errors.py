"""What can go wrong, as one tree. No HTTP here: `movemask.api.problems` has the status table.

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
├── CapacityError               nobody's fault: come back later
│   ├── Overloaded              the queue is full
│   └── ShuttingDown            the service is stopping
├── ModelError                  the network or its contract is at fault
│   ├── ContractError           the TOML file, or what the ONNX file is against it
│   ├── WeightsError            a weight file that cannot be converted
│   ├── MoveOutsideVocabulary   a legal move that has no slot of its own
│   ├── InvalidLogits           a legal logit that is NaN or +inf, or none that is finite
│   ├── InferenceFailed         the runtime raised, or returned another shape
│   └── ModelUnavailable        the model failed its check and is not served
├── ServedLeakage               our own answer held an illegal move or did not sum to 1
├── StoreError                  the audit store cannot be opened or read
│   └── StoreUnreachable        its server does not answer now
├── SourceError                 a file of games or positions that cannot be read
├── AuditError                  an audit of files that cannot go on as it is asked for
├── MissingExtra                a command whose optional dependencies are not installed
└── SettingsError               the service cannot start as it is set
"""

from __future__ import annotations


class MovemaskError(Exception):
    """Root of every error this project raises on purpose; `str(error)` is fit to show to a user."""


class RequestError(MovemaskError):
    """The request is at fault, and the message names the offending input."""


class InvalidFen(RequestError):
    """Not a FEN."""


class InvalidPosition(RequestError):
    """A FEN of a position that cannot be; `statuses` holds python-chess's names for why."""

    def __init__(self, message: str, statuses: tuple[str, ...]) -> None:
        super().__init__(message)
        self.statuses = statuses


class IllegalMove(RequestError):
    """A move in `moves` that is not UCI, or not legal where it stands."""


class UnsupportedVariant(RequestError):
    """Chess960 asked of a network whose vocabulary cannot tell its castling moves."""


class InvalidRule(RequestError):
    """Normaliser, alpha and the like that do not go together."""


class NotCalibrated(RequestError):
    """The calibrated temperature was asked of a model that has none."""


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
    """The request is fine; it cannot be served now. `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Overloaded(CapacityError):
    """The queue in front of the network is full."""


class ShuttingDown(CapacityError):
    """The service is stopping and takes no more work."""


class ModelError(MovemaskError):
    """The network, or the contract it is served under, is at fault."""


class ContractError(ModelError):
    """A contract that cannot be read, or an ONNX file that does not keep it."""


class WeightsError(ModelError):
    """A weight file that is damaged, or of a kind that cannot be converted."""


class MoveOutsideVocabulary(ModelError):
    """A legal move that has no slot of its own in the vocabulary."""


class InvalidLogits(ModelError):
    """Legal logits from which no distribution can be made."""


class InferenceFailed(ModelError):
    """The runtime raised, or returned what the contract does not say."""


class ModelUnavailable(ModelError):
    """The model is known, but failed its check and is not served."""


class ServedLeakage(MovemaskError):
    """The finished answer holds probability on a move that is not legal, or does not sum to 1."""


class StoreError(MovemaskError):
    """The audit store cannot be opened or read."""


class StoreUnreachable(StoreError):
    """The audit store's server does not answer; it may come back."""


class SourceError(MovemaskError):
    """A file of games or positions cannot be read."""


class AuditError(MovemaskError):
    """An audit of files cannot go on as it is asked for."""


class MissingExtra(MovemaskError):
    """A command needs packages of an extra that is not installed; the message names it."""


class SettingsError(MovemaskError):
    """The service cannot start as it is set."""

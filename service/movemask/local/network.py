"""`load` and `Network`: a network in this process, without HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Unpack

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.moves import moves_of, read_move
from movemask.board.position import Elo, Position, status_names
from movemask.board.rating import MAX_RATING
from movemask.board.variants import check_variant
from movemask.client.fields import quoted, ratings_of
from movemask.client.options import Ratings, RuleOptions
from movemask.cores import available_cores
from movemask.encoding.encoders import plane_encoder
from movemask.encoding.vocabularies import vocabulary as _vocabulary
from movemask.errors import (
    IllegalMove,
    InvalidParameter,
    InvalidPosition,
    ModelUnavailable,
    MovemaskError,
    UnknownModel,
)
from movemask.evaluate import Answer, Query, answered
from movemask.local.distribution import Policy
from movemask.local.rule import rule_of
from movemask.network.contract import is_moves_file, read_contract, read_moves_file
from movemask.network.files import ModelFolders
from movemask.network.model import Model
from movemask.network.onnx import provider_named
from movemask.network.registry import load_entry


def load(
    model: str | Path | None = None,
    *,
    models_dir: str | Path | None = None,
    threads: int | None = None,
    provider: Literal["cpu", "cuda"] = "cpu",
) -> Network:
    """Returns a network, loaded and checked.

    Parameters
    ----------
    model : its name; or an ONNX file, whose contract is the TOML file of the same name beside it;
        the default if None
    models_dir : a folder of models; by default MOVEMASK_MODELS_DIR, or your own models folder and
        the shipped folder
    threads : threads of a run of the network; by default the cores that the process may use
    provider : `cuda` runs it on a GPU, with onnxruntime-gpu

    Raises UnknownModel, ModelUnavailable for a network that fails its check, or SettingsError.
    """
    if model is not None and str(model).endswith(".onnx"):
        files = {str(model): _contract_beside(Path(model))}
    else:
        folders = ModelFolders.chosen(None if models_dir is None else Path(models_dir))
        files = folders.files(None)
        model = folders.default() if model is None else model
    if model is not None and str(model) not in files:
        raise UnknownModel(f"model: no model {str(model)!r}; available: {', '.join(files)}")
    # Without a chosen default: the first that is served. The registry chooses the same, but loads all models.
    names = list(files) if model is None else [str(model)]
    failures = []
    for name in names:
        entry = load_entry(files[name], threads or available_cores(), provider_named(provider))
        if entry.model is not None:
            return Network(
                entry.model,
                partial(load, name, models_dir=models_dir, threads=threads, provider=provider),
            )
        failures.append(f"model {name!r} failed its check: {entry.failure}")
    raise ModelUnavailable("; ".join(failures))


def _contract_beside(network: Path) -> Path:
    """Returns the contract of an ONNX file. Raises UnknownModel if one of the two is missing."""
    contract = network.with_suffix(".toml")
    if not network.is_file():
        raise UnknownModel(f"model: {str(network)!r}: no such file")
    if not contract.is_file():
        raise UnknownModel(
            f"model: {str(network)!r} has no contract, {contract.name}, beside it: write one, or let `movemask models "
            f"add {network.name}` write it into your models folder, and load it by its name"
        )
    return contract


def vocabulary(name: str) -> tuple[str, ...]:
    """Returns the move of each slot of a vocabulary, such as `lc0-1858`, in UCI.

    Moves are as the side to move sees them.

    Unused slots are empty, and a contract's variations are not applied. Raises ContractError.
    """
    return _vocabulary(name).names()


def planes(
    encoder: str | Path, board: chess.Board | str, moves: Sequence[str] = ()
) -> NDArray[Any]:
    """Returns the input that the service gives a network for a board or FEN.

    It is `[*shape]`, in the encoder's dtype.

    Parameters
    ----------
    encoder : name of the planes, such as `lc0-112`; or a contract, `NAME.toml`, with its variations
    board : a board, whose move stack is the history; or a FEN, which has none
    moves : moves from there on, in UCI or SAN, which become history too

    Raises InvalidFen, InvalidPosition, IllegalMove or ContractError.
    """
    name = str(encoder)
    known = (
        read_contract(Path(encoder)).terms.encoder if _is_contract(name) else plane_encoder(name)
    )
    if not moves:
        return known.encode(_position(board))
    if isinstance(board, str):
        return known.encode(Position.read(board, moves))
    played = _position(board).board
    for move in moves:
        try:
            played.push(read_move(played, move)[0])
        except ValueError as error:
            raise IllegalMove(f"moves: {quoted(move)} {error} in {played.fen()!r}") from None
    return known.encode(Position(played))


def slots(
    vocabulary: str | Path,
    board: chess.Board | str,
    *,
    perspective: Literal["side_to_move", "white"] = "side_to_move",
) -> dict[chess.Move, int]:
    """Returns the slot of each legal move of a board or FEN, in the order of the slots.

    Moves without a slot are left out.

    Parameters
    ----------
    vocabulary : its name; a contract, `NAME.toml`, with its promotions and variations; or a file of
        moves, `NAME.txt`
    perspective : of a file of moves

    Raises InvalidFen, InvalidPosition, UnsupportedVariant or ContractError; MoveOutsideVocabulary
    only if no legal move has a slot, or if a contract says that each has.
    """
    name, file = str(vocabulary), Path(vocabulary)
    if _is_contract(name):
        words = read_contract(file).terms.slots
    elif is_moves_file(name):
        words = read_moves_file(file).vocabulary(perspective)
    else:
        words = _vocabulary(name)
    moves, places = words.legal_slots(_position(board))
    return dict(zip(moves, places.tolist(), strict=True))


def _is_contract(name: str) -> bool:
    return name.endswith(".toml")


@dataclass(frozen=True, slots=True, eq=False)
class Logits:
    """What a network gives for a board, before any mask.

    values : float `[A]`, a logit for each slot of the vocabulary
    slots : intp `[L]`, rising, the slots of the legal moves
    moves : the legal moves `[L]`, in the order of `slots`
    """

    values: NDArray[np.floating]
    slots: NDArray[np.intp]
    moves: tuple[chess.Move, ...]

    @property
    def legal_mask(self) -> NDArray[np.bool_]:
        """bool `[A]`, True = legal."""
        mask = np.zeros(len(self.values), dtype=np.bool_)
        mask[self.slots] = True
        return mask


class Network:
    """A loaded network. Threads may share it. A copy, as for another process, is loaded anew by its name and folder."""

    def __init__(self, model: Model, loaded: Callable[[], Network]) -> None:
        self._model = model
        self._loaded = loaded

    def __reduce__(self) -> tuple[Any, ...]:
        return self._loaded, ()

    def __repr__(self) -> str:
        return f"<movemask.Network {self.name}>"

    @property
    def name(self) -> str:
        """The name of the model."""
        return self._model.name

    @property
    def vocabulary(self) -> str:
        """The name of its vocabulary."""
        return self._model.vocabulary.name

    @property
    def slot_moves(self) -> tuple[str, ...]:
        """The move of each slot in UCI, as the side to move sees it, `[A]`; empty for a slot of no move. Those of its
        vocabulary, with its contract's variations."""
        return self._model.vocabulary.names()

    def logits(self, board: chess.Board | str, *, elo: Ratings | None = None) -> Logits:
        """Returns the logits of a board or FEN as the network gives them, and the slots of its
        legal moves.

        A board's move stack is the history, a FEN has none; `elo` is as for `policy`. Raises
        InvalidFen, InvalidPosition, InvalidParameter, UnsupportedVariant or a ModelError.
        """
        batch = self._model.whole_batch([_position(board)], [_elo_of(elo)])
        values = self._model.run(batch).logits[0]
        return Logits(values, batch.slots, moves_of(batch.codes))

    def policy(
        self, board: chess.Board | str, *, elo: Ratings | None = None, **rule: Unpack[RuleOptions]
    ) -> Policy:
        """Returns the move distribution of a board, whose move stack is the history, or of a FEN.

        Parameters
        ----------
        elo : the rating of both players, or the ratings of the side to move and of its opponent;
            the network's default if None
        temperature : divides the logits; 0 leaves the most probable move; `"calibrated"` stands for
            the temperature in the contract
        normalizer, alpha, top_k, top_p, min_p : as in docs/numerics.md

        Raises InvalidFen, InvalidPosition, InvalidParameter, UnsupportedVariant, InvalidRule,
        NotCalibrated or a ModelError.
        """
        (policy,) = self.policies([board], elo=elo, **rule)
        return policy

    def policies(
        self,
        boards: Iterable[chess.Board | str],
        *,
        elo: Ratings | None = None,
        elos: Sequence[Ratings | None] | None = None,
        **rule: Unpack[RuleOptions],
    ) -> list[Policy]:
        """Returns the distributions of many boards and FENs, in order.

        Faster than `policy`: the network sees 64 in one run.

        `elos` has an item for each board, of the form of `elo`. `elo` is for the boards whose item
        is None.
        """
        temperature = rule.get("temperature")
        if isinstance(temperature, str) and temperature == "calibrated":
            rule["temperature"] = self._model.calibrated_temperature()
        normalisation = rule_of(rule)
        if isinstance(boards, chess.Board | str) or not isinstance(boards, Iterable):
            raise InvalidParameter(f"boards: {quoted(boards)} is not a list of boards")
        positions = [_position(board) for board in boards]
        of_each = [None] * len(positions) if elos is None else _each(elos)
        if len(of_each) != len(positions):
            raise InvalidParameter(f"elos: {len(of_each)} ratings for {len(positions)} boards")
        queries = [
            Query(position=position, elo=_elo_of(elo if own is None else own), rule=normalisation)
            for position, own in zip(positions, of_each, strict=True)
        ]
        policies: list[Policy] = []
        for outcome in answered(self._model, queries, lambda answer, _: _policy_of(answer)):
            if isinstance(outcome, MovemaskError):
                raise outcome
            policies.append(outcome)
        return policies


def _position(board: chess.Board | str) -> Position:
    """Returns the position of a FEN, or of a copy of a board: the caller may change the board.

    Raises InvalidFen, InvalidPosition, UnsupportedVariant, or InvalidParameter.
    """
    if isinstance(board, str):
        return Position.read(board)
    if not isinstance(board, chess.Board):
        raise InvalidParameter(f"board: {quoted(board)} is neither a chess.Board nor a FEN")
    check_variant(board, "board")
    if not board.is_valid():
        names = status_names(board.status())
        raise InvalidPosition(
            f"board: {board.fen()!r} is not a valid position: {', '.join(names)}", names
        )
    return Position(board.copy())


def _each(elos: Sequence[Ratings | None]) -> list[Ratings | None]:
    """Returns the items of `elos`; raises InvalidParameter."""
    if isinstance(elos, str) or not isinstance(elos, Iterable):
        raise InvalidParameter(f"elos: {quoted(elos)} is not a list of ratings")
    return list(elos)


def _elo_of(elo: Ratings | None) -> Elo | None:
    """Returns the ratings that `elo` stands for; raises InvalidParameter."""
    if elo is None:
        return None
    ratings = ratings_of(elo)
    if not all(0 <= rating <= MAX_RATING for rating in ratings):
        raise InvalidParameter(f"elo: {quoted(elo)} is beyond the ratings, from 0 to {MAX_RATING}")
    return Elo(*ratings)


def _policy_of(answer: Answer) -> Policy:
    codes, probabilities = answer.policy
    moves = dict(zip(moves_of(codes), probabilities, strict=True))
    policy = Policy(answer.position.board, answer.model.name, moves, ignored=answer.ignored)
    if answer.evaluated is None:
        return policy
    elo = None if answer.elo is None else (answer.elo.self, answer.elo.opponent)
    return replace(
        policy,
        value=answer.value,
        raw=answer.raw,
        multiplied=answer.multiplied,
        elo=elo,
        without_slot=answer.without_slot,
    )

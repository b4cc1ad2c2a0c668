"""`Policy`: the move distribution of a position, in python-chess's terms."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import chess
import numpy as np

from movemask.board.moves import read_move
from movemask.errors import IllegalMove, InvalidParameter
from movemask.local.rule import rule_of
from movemask.network.value import Value as Value
from movemask.policy.distributions import drawn
from movemask.policy.normalisation import policies


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Policy(Mapping[chess.Move, float]):
    """The move distribution of a position: a mapping from its moves, most probable first, to their probabilities.
    A move may also be asked for by UCI or SAN.

    probabilities : by legal move, most probable first. They sum to 1, with `softmax_one` to less; empty in a finished
        game
    value : the forecast of the result; None if the network gives none, or in a finished game
    raw, multiplied : the probability of illegal moves by plain softmax, and by softmax(logits * mask); None if it
        cannot be measured
    elo : the ratings of the side to move and of its opponent, as the network used them; None if it takes no ratings
    ignored : inputs that the network could not use: `history`, `elo`
    without_slot : legal moves for which the network has no slot
    """

    board: chess.Board
    model: str
    probabilities: Mapping[chess.Move, float]
    value: Value | None = None
    raw: float | None = None
    multiplied: float | None = None
    elo: tuple[float, float] | None = None
    ignored: tuple[str, ...] = ()
    without_slot: tuple[chess.Move, ...] = ()

    def __getitem__(self, move: chess.Move | str) -> float:
        """Returns the probability of a move, given as a move, UCI or SAN. Raises IllegalMove.

        0 if a filter dropped it, or if the network has no slot for it.
        """
        return self.probabilities.get(self._legal(move), 0.0)

    def get(self, move: Any, default: Any = None) -> Any:
        """As `policy[move]`; `default` for a move that is not legal."""
        try:
            return self[move]
        except IllegalMove:
            return default

    def __contains__(self, move: Any) -> bool:
        try:
            return self._legal(move) in self.probabilities
        except IllegalMove:
            return False

    def _legal(self, move: chess.Move | str) -> chess.Move:
        """Returns the legal move that is meant; raises IllegalMove."""
        if isinstance(move, chess.Move) and move in self.probabilities:
            return move
        text = move.uci() if isinstance(move, chess.Move) else move
        try:
            return read_move(self.board, text)[0]
        except (AttributeError, TypeError, ValueError) as error:
            # AttributeError, TypeError: neither a move nor a text
            why = error if isinstance(error, ValueError) else "is not a move"
            raise IllegalMove(f"policy[{text!r:.60}]: {why} in {self.board.fen()!r}") from None

    def __len__(self) -> int:
        return len(self.probabilities)

    def __iter__(self) -> Iterator[chess.Move]:
        return iter(self.probabilities)

    def __repr__(self) -> str:
        moves = ", ".join(
            f"{self.board.san(move)} {probability:.1%}" for move, probability in self.top(3)
        )
        more = f" and {len(self) - 3} more" if len(self) > 3 else ""
        return f"<movemask.Policy {moves or 'of a finished game'}{more}; {self.model}>"

    @property
    def best(self) -> chess.Move | None:
        """The most probable move; None in a finished game."""
        return next(iter(self.probabilities), None)

    def top(self, count: int) -> list[tuple[chess.Move, float]]:
        """Returns at most `count` moves with their probabilities, most probable first."""
        return list(self.probabilities.items())[:count]

    def sample(self, seed: int | None = None) -> chess.Move | None:
        """Returns a move drawn by probability.

        None in a finished game. The same seed draws the same move, over HTTP too. Raises
        InvalidParameter for a seed that is no whole number from 0 on.
        """
        if not self.probabilities:
            return None
        try:
            number = None if seed is None else operator.index(seed)
        except TypeError:
            number = -1
        if number is not None and number < 0:
            raise InvalidParameter(f"seed: {seed!r:.60} is not a whole number from 0 on")
        return list(self.probabilities)[drawn(list(self.probabilities.values()), number)]

    def shaped(
        self,
        temperature: float = 1.0,
        top_p: float = 1.0,
        among: Collection[chess.Move] | None = None,
    ) -> Policy:
        """Another distribution, of the moves in `among` at another temperature, cut to the fewest moves whose
        probabilities sum to `top_p`. A temperature of 0 keeps only the most probable move. If all moves in `among` have
        probability 0, they are equally likely. Raises InvalidRule."""
        candidates = {
            move: p for move, p in self.probabilities.items() if among is None or move in among
        }
        if not candidates:
            return replace(self, probabilities={})
        if not any(candidates.values()):  # all underflowed; an engine must still move
            candidates = dict.fromkeys(candidates, 1.0)
        with np.errstate(divide="ignore"):
            logits = np.log(list(candidates.values()))
        rule = rule_of({"temperature": temperature, "top_p": top_p if top_p < 1 else None})
        shaped = policies(
            np.arange(len(candidates)), logits, np.array([0, len(candidates)]), [rule]
        )
        moves, (chosen, shares, _, _) = list(candidates), shaped.lists
        return replace(
            self, probabilities={moves[place]: p for place, p in zip(chosen, shares, strict=True)}
        )

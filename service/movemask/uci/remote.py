"""The engine's policies from a service elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import chess

from movemask.api.schemas.answers import ErrorOut, PolicyOut
from movemask.client.http import Client
from movemask.client.policy import Policy, Value
from movemask.client.wire import PolicyOptions, error_of_problem


class RemoteSource:
    """A service; raises ApiError and ServiceUnreachable."""

    def __init__(self, client: Client, model: str | None) -> None:
        self._client = client
        self._model = model

    def policies(self, boards: Sequence[chess.Board], *, elo: tuple[float, float] | None) -> list[Policy]:
        """As `Source.policies`."""
        options: PolicyOptions = {}
        if self._model is not None:
            options["model"] = self._model
        if elo is not None:
            options["elo"] = elo
        answers = self._client.policies(boards, **options)
        return [_policy_of(board, answer) for board, answer in zip(boards, answers, strict=True)]


def _policy_of(board: chess.Board, answer: PolicyOut | ErrorOut) -> Policy:
    if isinstance(answer, ErrorOut):
        raise error_of_problem(answer.error)
    value, leakage = answer.value, answer.leakage
    return Policy(
        board,
        answer.model.name,
        {board.parse_uci(move.uci): move.probability for move in answer.moves},
        None if value is None else Value(value.win, value.draw, value.loss, value.score),
        None if leakage is None else leakage.raw,
        None if leakage is None else leakage.multiplied,
        None if answer.elo is None else (answer.elo.own, answer.elo.opponent),
        tuple(answer.ignored),
    )

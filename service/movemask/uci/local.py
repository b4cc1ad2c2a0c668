"""The engine's policies from a network in this process."""

from __future__ import annotations

from collections.abc import Sequence

import chess

from movemask.client.local import Network
from movemask.client.policy import Policy


class LocalSource:
    """A network in this process."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def policies(self, boards: Sequence[chess.Board], elo: tuple[float, float] | None) -> list[Policy]:
        """As `Source.policies`."""
        return self._network.policies(boards, elo=elo)

"""The texts of a PGN's games: split by their headers alone, from any place of a file on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from movemask.board.pgn import ends_in_comment


class State(NamedTuple):
    """What decides whether the next line begins a game: whether the game so far has `moves`, and whether a comment is
    open."""

    moves: bool = False
    in_comment: bool = False

    def after(self, line: str) -> tuple[bool, State]:
        """Whether a line begins the next game, and the state after it: a header after moves, outside a
        comment, does."""
        header = line.startswith("[") and not self.in_comment
        if header:
            return self.moves, State()
        if line.strip() and not line.startswith("%"):
            return False, State(True, ends_in_comment(line, self.in_comment))
        return False, self


#: All states in which a line can be reached.
STATES = tuple(State(moves, in_comment) for moves in (False, True) for in_comment in (False, True))


def games(lines: Iterable[tuple[int, str]], state: State, *, begun: bool) -> Iterator[tuple[int, str]]:
    """The games that begin in these lines, each with the number of its first line.

    `begun` says that the first line begins a game; otherwise lines are dropped up to the first that does.
    """
    game: list[str] = []
    first = 0
    for number, line in lines:
        begins, state = state.after(line)
        if begins:
            if begun:
                yield first, "".join(game)
            game, begun, first = [], True, number
        if begun:
            first = first if game else number
            game.append(line)
    if any(line.strip() for line in game):
        yield first, "".join(game)

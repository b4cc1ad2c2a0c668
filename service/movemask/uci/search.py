"""`Search`: the result of one `go`. The network's policy chooses the move; further runs add scores and lines."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import chess
import chess.polyglot

from movemask.board.moves import read_move
from movemask.board.position import Position, status_names
from movemask.games.forecast import value_after
from movemask.games.think_time import LONGEST, Clock, think_time
from movemask.local.distribution import Policy, Value
from movemask.uci.commands import MOST_FAULTS, Go
from movemask.uci.endgames import LOSS, WIN, TableMoves, table_moves_of
from movemask.uci.info import move_stats, score
from movemask.uci.options import Options

#: Expected score from which on a repetition is avoided. A forecast nearer to a draw is too uncertain to refuse a draw.
AHEAD = 0.55

#: Most plies of a line in `go infinite`.
LINE_PLIES = 16

_BY_RESULT = {WIN: Value(1, 0, 0, 1), LOSS: Value(0, 0, 1, 0)}
_DRAWN = Value(0, 1, 0, 0.5)


class Source(Protocol):
    """A source of policies: a `Network` in this process, or a `RemoteSource`."""

    def policies(
        self, boards: Sequence[chess.Board], *, elo: tuple[float, float] | None
    ) -> list[Policy]:
        """Returns the policy of each board, for these ratings of the side to move and its opponent."""
        ...


@dataclass(slots=True)
class _Line:
    """A move that is shown, and the most probable moves after it.

    board : after the last move of the line
    after : the policy after the first move; None if the network was not run there
    """

    moves: list[chess.Move]
    board: chess.Board
    after: Policy | None = None
    ends: bool = False

    @classmethod
    def of(cls, board: chess.Board, move: chess.Move) -> _Line:
        after = board.copy()
        after.push(move)
        return cls([move], after)

    @property
    def mates(self) -> bool:
        return len(self.moves) == 1 and self.board.is_checkmate()


class Search:
    """The move for a position, with lines of analysis. Runs the network when it is made.

    Parameters
    ----------
    go, options : of this search
    draws : the source of random moves

    Attributes
    ----------
    notes : lines for people
    remark : text behind the probabilities in `info`, which GUIs show beside the line
    best : the move to play; None in a finished game
    seconds : time from `go` or `ponderhit` to the move; 0 without the option Think Time or without a clock

    The shown probabilities are the network's own, at temperature 1.
    """

    def __init__(
        self, board: chess.Board, go: Go, options: Options, source: Source, draws: random.Random
    ) -> None:
        self._started = time.perf_counter()
        self._source, self._options, self._board = source, options, board
        self._elo = options.elo
        self._lines: list[_Line] = []
        self._of_each = (
            False  # whether each line has the value after its move, and not the position's
        )
        self._grown = 0  # plies added to the lines
        self._nodes = 1
        self.notes: list[str] = []
        self.remark = ""
        self.best: chess.Move | None = None
        self.seconds = 0.0
        self._tables: TableMoves | None = None
        if not board.is_valid() and any(board.legal_moves):
            self._play_anything(draws)
            return
        (self._policy,) = source.policies([board], elo=self._elo)
        if not self._policy.probabilities:
            return
        self._note_ratings()
        named = self._named(go.searchmoves)
        self._tables = self._of_tables(named)
        self.best = self._chosen(named, draws, analysing=go.infinite or options.analyse)
        others = [
            move
            for move in self._policy.probabilities
            if move != self.best and (named is None or move in named)
        ]
        self._lines = [_Line.of(board, move) for move in (self.best, *others)[: options.multi_pv]]
        left_out = named is not None and len(set(named)) < len(self._policy.probabilities)
        self._of_each = len(self._lines) > 1 or left_out
        runs = len(self._lines) if self._of_each or options.ponder else 0
        if runs and go.numbers.get("nodes", math.inf) > runs:
            self.grow()
        if options.think_time and (clock := _clock_of(go, board.turn, options.move_overhead)):
            self.seconds = think_time(
                Position(board), self.best, self._policy.probabilities.values(), clock
            )

    @property
    def model(self) -> str:
        """The name of the network."""
        return self._policy.model

    def info(self) -> list[str]:
        """Returns the `info` lines: one for each shown move, the move to play first."""
        if not self._policy.probabilities:
            return ["info depth 0 score " + ("mate 0" if self._board.is_checkmate() else "cp 0")]
        elapsed = time.perf_counter() - self._started
        counts = f"nodes {self._nodes} nps {round(self._nodes / max(elapsed, 1e-6))} "
        if self._tables is not None:
            counts += f"tbhits {len(self._tables.results)} "
        return [
            f"info depth {max(1, self._grown)} seldepth {1 + self._grown} multipv {number} "
            + score(self._value(line), mates=line.mates, wdl=self._options.show_wdl)
            + f"{counts}time {round(1000 * elapsed)} pv {' '.join(self._uci(line.moves))}"
            # lc0 writes nothing after the moves, and programs that read its statistics take all words for moves.
            + (
                ""
                if self._options.verbose
                else f" string P: {100 * self._policy.probabilities[line.moves[0]]:.2f} %{self.remark}"
            )
            for number, line in enumerate(self._lines, 1)
        ]

    def stats(self) -> list[str]:
        """Returns lc0's statistics of each move; empty without the option VerboseMoveStats."""
        if not self._policy.probabilities or not self._options.verbose:
            return []
        evaluated = {
            line.moves[0]: self._value_after(line) for line in self._lines if line.after is not None
        }
        return move_stats(self._policy, evaluated)

    def bestmove(self) -> str:
        """Returns the `bestmove` line, with the expected reply if pondering is on."""
        if self.best is None:
            return "bestmove (none)"
        moves = self._uci(self._lines[0].moves[: 2 if self._options.ponder else 1])
        return "bestmove " + " ponder ".join(moves)

    def grow(self) -> bool:
        """Runs the network at the end of each line and adds its most probable move. False if all lines have ended."""
        growing = [line for line in self._lines if not line.ends]
        if not growing or self._grown >= LINE_PLIES or not self._policy.probabilities:
            return False
        reversed_elo = None if self._elo is None else self._elo[::-1]
        elo = reversed_elo if self._grown % 2 == 0 else self._elo
        policies = self._source.policies([line.board.copy() for line in growing], elo=elo)
        for line, policy in zip(growing, policies, strict=True):
            if line.after is None:
                line.after = policy
            move = policy.best
            if move is None or line.board.is_game_over():
                line.ends = True
            else:
                line.moves.append(move)
                line.board.push(move)
        self._nodes += len(growing)
        self._grown += 1
        return True

    def _play_anything(self, draws: random.Random) -> None:
        """Draws any legal move in a position that the network does not know: a refusal would lose the game."""
        names = ", ".join(status_names(self._board.status()))
        self.notes.append(
            f"the network does not know such a position ({names}): any legal move is played"
        )
        self.best = draws.choice(list(self._board.legal_moves))
        self._policy = Policy(self._board, "", {})
        self._lines = [_Line.of(self._board, self.best)]

    def _note_ratings(self) -> None:
        """Notes a rating or a strength that the network does not take or does not know."""
        policy, options = self._policy, self._options
        if "elo" in policy.ignored:
            self.notes.append(
                f"{policy.model} takes no ratings: SelfElo, OpponentElo and UCI_Elo have no effect"
            )
        for requested, used in zip(self._elo or (), policy.elo or (), strict=False):
            if round(requested) != round(used):
                note = f"{policy.model} does not know the rating {requested:g}: asked as {used:g}"
                if note not in self.notes:
                    self.notes.append(note)
        least, most = options.strengths.least, options.strengths.most
        if options.by_table and not least <= options.uci_elo <= most:
            self.notes.append(
                f"{policy.model} plays from {least} to {most} Elo: {options.uci_elo} as the nearest"
            )

    def _named(self, texts: Sequence[str]) -> list[chess.Move] | None:
        """Returns the legal moves of `searchmoves`.

        None, for all moves, if none is legal. Notes the other texts.
        """
        moves, faults = [], []
        for text in texts:
            try:
                moves.append(read_move(self._board, text)[0])
            except ValueError as error:
                faults.append(f"go: searchmoves: {text[:20]!r} {error} in {self._board.fen()!r}")
        self.notes += faults[:MOST_FAULTS]
        return moves or None

    def _of_tables(self, named: Sequence[chess.Move] | None) -> TableMoves | None:
        """Returns what the endgame tables say, if the option SyzygyPath names tables with this
        position.
        """
        if not self._options.syzygy:
            return None
        try:
            return table_moves_of(self._options.syzygy, self._board, named)
        except Exception as error:  # python-chess raises any error for a damaged table, which must not cost the game
            self.notes.append(
                f"SyzygyPath: a table cannot be read: {type(error).__name__}: {error}"
            )
            return None

    def _chosen(
        self, named: Sequence[chess.Move] | None, draws: random.Random, *, analysing: bool
    ) -> chess.Move:
        """Returns the move to play, from the book or drawn from the policy.

        In analysis, the most probable move.
        """
        options = self._options
        move = None if analysing else _of_book(options.book, self._board, named, draws)
        if move is not None:
            return move
        among = named if self._tables is None else self._tables.best
        candidates = [move for move in self._policy.probabilities if among is None or move in among]
        temperature = 0.0 if analysing else options.temperature_at(self._board)

        def drawn() -> chess.Move:
            move = self._policy.shaped(temperature, options.top_p, candidates).sample(
                draws.getrandbits(53)
            )
            assert move is not None
            return move

        move = first = drawn()
        if analysing or options.by_table or not self._is_ahead():
            return move
        while _allows_repetition(self._board, move):
            candidates.remove(move)
            if not candidates:
                return first
            move = drawn()
        return move

    def _is_ahead(self) -> bool:
        """Returns whether the side to move expects more than a draw, by the tables or the network's
        forecast.
        """
        value = self._position_value()
        return value is not None and value.score >= AHEAD

    def _position_value(self) -> Value | None:
        """Returns the position's value for the side to move, by the tables or the network."""
        if self._tables is None:
            return self._policy.value
        return _BY_RESULT.get(self._tables.results[self._tables.best[0]], _DRAWN)

    def _value(self, line: _Line) -> Value | None:
        """Returns the value shown with a line: the position's for the one line of all moves,
        otherwise that after its move.
        """
        if line.mates:
            return _BY_RESULT[WIN]
        if not self._of_each or line.after is None:
            return self._position_value()
        return self._value_after(line)

    def _value_after(self, line: _Line) -> Value | None:
        """Returns the value after the first move of a line, for its player."""
        move = line.moves[0]
        if self._tables is not None:
            return _BY_RESULT.get(self._tables.results[move], _DRAWN)
        return None if line.after is None else value_after(line.after.board, line.after.value)

    def _uci(self, moves: Sequence[chess.Move]) -> list[str]:
        """Moves from the position on, in UCI."""
        board, texts = self._board.copy(stack=False), []
        for move in moves:
            texts.append(board.uci(move))
            board.push(move)
        return texts


def _clock_of(go: Go, turn: chess.Color, overhead: int) -> Clock | None:
    """Returns the clock of a side.

    None if the GUI has not sent it. `overhead` is in milliseconds.
    """
    remaining, increment = ("wtime", "winc") if turn == chess.WHITE else ("btime", "binc")
    if remaining not in go.numbers:
        return None
    seconds, gained = (
        min(max(0, go.numbers.get(name, 0)) / 1000, LONGEST) for name in (remaining, increment)
    )
    return Clock(seconds, gained, go.numbers.get("movestogo"), overhead / 1000)


def _of_book(
    book: str, board: chess.Board, named: Sequence[chess.Move] | None, draws: random.Random
) -> chess.Move | None:
    """Returns a move drawn by an opening book's weights.

    None without a book or an entry. Reads the file.
    """
    if not book:
        return None
    others = () if named is None else set(board.legal_moves).difference(named)
    with chess.polyglot.open_reader(book) as reader, suppress(IndexError):
        return reader.weighted_choice(board, exclude_moves=others, random=draws).move
    return None


def _allows_repetition(board: chess.Board, move: chess.Move) -> bool:
    """Returns whether the opponent can claim a draw by repetition after a move."""
    if board.is_irreversible(move):
        return False
    after = board.copy()
    after.push(move)
    return after.can_claim_threefold_repetition()

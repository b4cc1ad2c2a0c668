"""A search: the network's policy for the position, and for the positions after its moves if each needs a score."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

import chess
import chess.polyglot

from movemask.board.moves import read_move
from movemask.board.position import Position
from movemask.client.distribution import Policy, Value
from movemask.games.forecast import value_after
from movemask.think_time import think_time
from movemask.uci.commands import MOST_FAULTS, Go
from movemask.uci.options import Options


class Source(Protocol):
    """Where policies come from: a `Network` in this process, or a `RemoteSource`."""

    def policies(self, boards: Sequence[chess.Board], *, elo: tuple[float, float] | None) -> list[Policy]:
        """The policy of each board, at these ratings of the side to move and of its opponent."""
        ...


def search(
    board: chess.Board, go: Go, options: Options, source: Source, seeds: random.Random
) -> tuple[list[str], float]:
    """Asks the network and chooses a move: the lines to send, `info …` and `bestmove …` at the end, and how many
    seconds after `go` or `ponderhit` the last one is due, which is 0 without the option Think Time and a clock.

    The probabilities shown are the network's own, at temperature 1; the temperature and `TopP` change only the choice.
    With several lines, or to ponder, the positions after the moves are evaluated too, in one batch.
    """
    started = time.perf_counter()
    elo = options.elo
    (policy,) = source.policies([board], elo=elo)
    if not policy.probabilities:
        return ["info depth 0 score " + ("mate 0" if board.is_check() else "cp 0"), "bestmove (none)"], 0.0
    among, lines = _named(board, go.searchmoves)
    given = dict(zip(elo or (), policy.elo or (), strict=False))
    beyond = [(asked, got) for asked, got in given.items() if round(asked) != round(got)]
    lines += [
        f"info string {policy.model} does not know the rating {asked:g}: asked as {got:g}" for asked, got in beyond
    ]
    least, most = options.strengths.least, options.strengths.most
    if options.by_table and not least <= options.uci_elo <= most:
        lines.append(f"info string {policy.model} plays from {least} to {most} Elo: {options.uci_elo} as the nearest")
    shown = [move for move in policy.probabilities if among is None or move in among]
    chosen = _of_book(options.book, board, among, seeds)
    if chosen is None:
        chosen = policy.shaped(options.player[1], options.top_p, among).sample(seeds.getrandbits(53))
    assert chosen is not None
    # The chosen move is the first line, whatever its probability: the first line of a search is what it plays.
    shown = [chosen, *(move for move in shown if move != chosen)][: options.multi_pv]
    nodes, after = 1, dict[chess.Move, Policy]()
    wanted = shown if len(shown) > 1 else ([chosen] if options.ponder else [])
    if wanted and go.numbers.get("nodes", math.inf) > len(wanted):
        boards = [board.copy() for _ in wanted]
        for copy, move in zip(boards, wanted, strict=True):
            copy.push(move)
        other = None if elo is None else (elo[1], elo[0])
        after = dict(zip(wanted, source.policies(boards, elo=other), strict=True))
        nodes += len(wanted)
    elapsed = time.perf_counter() - started
    for number, move in enumerate(shown, 1):
        reply = after[move].best if move in after else None
        lines.append(
            f"info depth 1 seldepth {2 if after else 1} multipv {number} "
            + _score(policy.value, after.get(move), options.show_wdl)
            + f"nodes {nodes} nps {round(nodes / max(elapsed, 1e-6))} time {round(1000 * elapsed)} "
            + f"pv {board.uci(move)} {after[move].board.uci(reply) + ' ' if reply else ''}"
            + f"string P: {100 * policy.probabilities[move]:.2f} %"
        )
    best = f"bestmove {board.uci(chosen)}"
    answer = after[chosen].best if options.ponder and chosen in after else None
    if answer is not None:
        best += f" ponder {after[chosen].board.uci(answer)}"
    clock = go.clock(board.turn) if options.think_time else None
    thought = 0.0 if clock is None else think_time(Position(board), chosen, policy.probabilities.values(), clock)
    return [*lines, best], thought


def _of_book(
    book: str, board: chess.Board, among: Sequence[chess.Move] | None, seeds: random.Random
) -> chess.Move | None:
    """A move drawn by the weights of an opening book; None without a book or an entry. Reads the file."""
    if not book:
        return None
    others = () if among is None else set(board.legal_moves).difference(among)
    with chess.polyglot.open_reader(book) as reader, suppress(IndexError):
        return reader.weighted_choice(board, exclude_moves=others, random=seeds).move
    return None


def _named(board: chess.Board, texts: Sequence[str]) -> tuple[list[chess.Move] | None, list[str]]:
    """The legal moves among `searchmoves`, None for all if there are none; and lines that say why others are left
    out."""
    moves, faults = [], []
    for text in texts:
        try:
            moves.append(read_move(board, text)[0])
        except ValueError as error:
            faults.append(f"info string go: searchmoves: {text[:20]!r} {error} in {board.fen()!r}")
    return moves or None, faults[:MOST_FAULTS]


def _score(value: Value | None, after: Policy | None, wdl: bool) -> str:
    """`score … wdl …` of a move, for the side to move; without a value, nothing. One line has the value of the position
    itself, several have each the value of the position after its move. Centipawns are by lc0's formula
    (`src/mcts/search.cc`, score type `centipawn`)."""
    mate = after is not None and after.board.is_checkmate()
    if after is not None:
        value = value_after(after.board, after.value)
    if value is None:
        return ""
    centipawns = round(90 * math.tan(1.5637541897 * (2 * min(max(value.score, 0.0), 1.0) - 1)))
    score = "score mate 1 " if mate else f"score cp {centipawns} "
    if wdl and value.win is not None and value.loss is not None:
        win, loss = round(1000 * value.win), round(1000 * value.loss)
        win = min(win, 1000 - loss)
        score += f"wdl {win} {1000 - win - loss} {loss} "
    return score

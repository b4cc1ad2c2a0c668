"""Answered positions for tests: as tables for the ledger, and as batches for the recorder."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import chess
import numpy as np

from movemask.board.boards import PHASES, Phase
from movemask.board.position import Position
from movemask.leakage.causes import CAUSES, Cause
from movemask.leakage.explain import Explained
from movemask.leakage.measure import Figure, Measured
from movemask.network.model import Model
from movemask.server.ledger.entries import AnsweredBatch, LedgerTable
from movemask.server.ledger.ledger import Ledger
from movemask.server.ledger.recorder import Recorder
from tests.leakage.batches import answered
from tests.networks import fake_model

MODEL = fake_model("net")


def record(
    raw: float | None = 0.01,
    multiplied: float = 0.001,
    *,
    fen: str = "start",
    model: str = "net",
    digest: str = "sha256:a",
    at: float | None = None,
    trained_with_mask: bool = False,
    turn: str = "white",
    phase: Phase = Phase.OPENING,
    legal_moves: int = 20,
    elo: float | None = None,
    causes: dict[Cause, float] | None = None,
    more: dict[str, Figure] | None = None,
) -> LedgerTable:
    """A table of one position with the given leakage."""
    figures = {
        "raw": Figure(raw, flipped=raw is not None and raw > 0.5, kl=None if raw is None else raw),
        "multiplied": Figure(multiplied),
        **(more or {}),
    }
    masses = [(causes or {}).get(cause, 0.0) for cause in CAUSES]
    named = np.array([0, 1]), ["e2e5"], np.array([0.25]), np.array([CAUSES.index(Cause.WRONG_GEOMETRY)])
    return LedgerTable(
        model,
        digest,
        trained_with_mask,
        times=np.array([time.time() if at is None else at]),
        fens=[fen],
        chess960=np.array([False]),
        elos=[elo],
        measured={kind: _measured(figure) for kind, figure in figures.items()},
        explained=Explained(np.array([masses]), *named),
        phases=np.array([PHASES.index(phase)]),
        black=np.array([turn == "black"]),
        in_check=np.array([False]),
        legal_moves=np.array([legal_moves]),
    )


def _measured(figure: Figure) -> Measured:
    unknown = math.nan if figure.leaked is None else math.inf
    leaked, kl = (
        math.nan if figure.leaked is None else figure.leaked,
        unknown if figure.kl is None else figure.kl,
    )
    return Measured(np.array([leaked]), np.array([figure.flipped]), np.array([kl]))


def joined(records: Iterable[LedgerTable]) -> list[LedgerTable]:
    """Tables of the same network and kinds as one."""
    groups: dict[Any, list[LedgerTable]] = defaultdict(list)
    for one in records:
        groups[one.model, one.digest, tuple(one.measured)].append(one)
    return [LedgerTable.joined(group) for group in groups.values()]


@contextmanager
def opened(url: str, keep_seconds: float = 1e12, **options: Any) -> Iterator[Ledger]:
    """A ledger of an open database, which keeps everything unless told otherwise."""
    ledger = Ledger(url, **{"keep_seconds": keep_seconds, "keep_positions": 10_000, "keep_worst": 100, **options})
    try:
        ledger.database.open()
        yield ledger
    finally:
        ledger.close()


def written(recorder: Recorder) -> bool:
    """Waits until everything that was recorded is counted, and written unless the ledger fails. Whether it was."""
    end = time.monotonic() + 60
    while recorder._batches or (recorder.waiting and recorder.failure is None):
        assert time.monotonic() < end, "not written within a minute"
        time.sleep(0.002)
    return not recorder.waiting


def write(ledger: Ledger, records: Iterable[LedgerTable]) -> None:
    """Writes records, those of one network and kinds in one transaction."""
    for table in joined(records):
        ledger.write(table)


def numbered(number: int) -> str:
    """The FEN of the position that `started` makes of a number."""
    return f"{chess.STARTING_FEN[:-1]}{number}"


def started(numbers: Sequence[int], *, model: Model = MODEL) -> AnsweredBatch:
    """An answered batch of the start position at these move numbers."""
    boards = [chess.Board() for _ in numbers]
    for board, number in zip(boards, numbers, strict=True):
        board.fullmove_number = number
    logits = np.zeros((len(boards), len(model.vocabulary)), dtype=np.float32)
    return answered([Position(board) for board in boards], model.vocabulary, logits, model=model, time=time.time())

"""Audited positions for tests: as tables for the ledger, and as batches for the recorder."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import chess
import numpy as np

from movemask.board.boards import PHASES, Phase
from movemask.board.position import Position
from movemask.encoding.vocabularies import vocabulary
from movemask.errors import MovemaskError
from movemask.leakage.causes import CAUSES, Cause
from movemask.leakage.explain import Explained
from movemask.leakage.measure import Figure, Measured
from movemask.server.ledger.entries import LedgerBatch, LedgerTable
from movemask.server.ledger.ledger import Ledger
from movemask.server.ledger.recorder import Recorder
from movemask.server.services import Services
from tests.leakage import batches


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


def recording(ledger: Ledger, **options: Any) -> Recorder:
    """A recorder of a ledger, which writes at once and is observed by nobody unless told otherwise."""
    usual = {"max_waiting": 1000, "on_waiting": lambda *_: None, "on_table": lambda _: None}
    return Recorder(ledger, **{**usual, **options})


def written(recorder: Recorder) -> bool:
    """Waits until everything that was accepted is written, or the ledger fails; whether it is written."""
    end = time.monotonic() + 60
    while recorder.waiting and recorder.failure is None:
        assert time.monotonic() < end, "not written within a minute"
        time.sleep(0.002)
    return not recorder.waiting


def recorded(services: Services) -> None:
    """Waits until everything that these services have answered is written, or the ledger fails."""
    for entry in services.models.registry:
        if entry.served:
            with suppress(MovemaskError):
                services.models.pipeline(entry.name).after.join()
    written(services.recorder)


def write(ledger: Ledger, records: Iterable[LedgerTable]) -> None:
    """Writes records, those of one network and kinds in one transaction."""
    for table in joined(records):
        ledger.write(table)


def numbered(number: int) -> str:
    """The FEN of the position that `audited` makes of a number."""
    return f"{chess.STARTING_FEN[:-1]}{number}"


def audited(numbers: Sequence[int], *, model: str = "net", raw: float = 0.1, at: float | None = None) -> LedgerBatch:
    """An answered batch of the start position at these move numbers, all with the same leakage."""
    boards = [chess.Board() for _ in numbers]
    for board, number in zip(boards, numbers, strict=True):
        board.fullmove_number = number
    words = vocabulary("movemask-1880")
    positions, logits = [Position(board) for board in boards], np.zeros((len(boards), len(words)), dtype=np.float32)
    made = batches.audited(positions, words, logits, kinds=("raw", "multiplied"), least=1.0, model=model)
    same = Measured(np.full(len(boards), raw), np.zeros(len(boards), dtype=np.bool_), np.full(len(boards), raw))
    times = np.full(len(boards), time.time() if at is None else at)
    return replace(made, times=times, measured={kind: same for kind in made.measured})

"""The answers of a service as pydantic models, which the methods of `movemask.Client` return.

docs/api.md has their fields.

The names here are public; the modules of this package are private and may change.
"""

from movemask.schemas.answers import (
    ErrorOut,
    GameOut,
    GamesOut,
    JudgementOut,
    MoveChosenOut,
    MoveOut,
    PolicyOut,
    Problem,
    SweepOut,
)
from movemask.schemas.figures import LeakageFiguresOut, PositionsOut, StoredPositionOut, WorstOut
from movemask.schemas.operations import ModelEntryOut, ModelsOut, VocabularyOut

__all__ = [
    "ErrorOut",
    "GameOut",
    "GamesOut",
    "JudgementOut",
    "LeakageFiguresOut",
    "ModelEntryOut",
    "ModelsOut",
    "MoveChosenOut",
    "MoveOut",
    "PolicyOut",
    "PositionsOut",
    "Problem",
    "StoredPositionOut",
    "SweepOut",
    "VocabularyOut",
    "WorstOut",
]

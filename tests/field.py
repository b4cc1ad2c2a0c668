"""Files as programs and people write them, in tests/data/field, with what a reader has to find in them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chess

from movemask.board.pgn import Game
from movemask.board.textfile import TextSource
from movemask.errors import MovemaskError
from tests.conftest import ROOT

FIELD = ROOT / "tests/data/field"


@dataclass(frozen=True)
class Case:
    """A file of games: of each its `moves` in UCI, `tags`, ratings `elo` and `notes`, or a part of its `error`."""

    path: Path
    games: list[dict[str, Any]]
    kept: list[str]

    @property
    def text(self) -> str:
        """The file's text, decoded as every command decodes it."""
        with TextSource(str(self.path)) as source:
            return "".join(source)

    @property
    def good(self) -> list[dict[str, Any]]:
        """The games without errors."""
        return [game for game in self.games if "error" not in game]


CASES = [
    Case(FIELD / case["file"], case["games"], case.get("kept", []))
    for case in tomllib.loads((FIELD / "pgn-cases.toml").read_text(encoding="utf-8"))["case"]
]
NAMES = [case.path.stem for case in CASES]


def outline(game: Game | MovemaskError, expected: dict[str, Any]) -> dict[str, Any]:
    """What was read of a game, in the words of the case; of its tags, those that the case gives."""
    if not isinstance(game, Game):
        part = expected.get("error", "")
        return {"error": part if part and part in str(game) else str(game)}
    white, black = (
        next((ply.elo.self for ply in game.plies if ply.elo and ply.position.board.turn == side), None)
        for side in (chess.WHITE, chess.BLACK)
    )
    result: dict[str, Any] = {"moves": " ".join(ply.played.uci() for ply in game.plies)}
    if "elo" in expected:
        result["elo"] = [white, black]
    if "tags" in expected:
        result["tags"] = {name: game.headers.get(name) for name in expected["tags"]}
    if "notes" in expected:
        result["notes"] = "; ".join(game.notes)
    return result

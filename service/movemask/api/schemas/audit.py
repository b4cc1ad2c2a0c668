"""The requests of `POST /v1/audit`, and its answers written as the JSON that `verdict` describes."""

from __future__ import annotations

from typing import Annotated, Literal

import chess
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from movemask.api.bodies import MAX_SLOTS
from movemask.api.schemas.answers import IllegalMoveOut
from movemask.api.schemas.fields import Fen, Moves, counted
from movemask.api.schemas.requests import check_position_named
from movemask.api.schemas.verdict import PatternOut, TopOut, VerdictOut
from movemask.board.position import Position
from movemask.encoding.forms import Castling
from movemask.leakage.foreign import Verdict


def _counted(field: str) -> BeforeValidator:
    return counted(field, "numbers", lambda _: MAX_SLOTS)


Number = Annotated[float | None, Field(allow_inf_nan=True)]


class AuditIn(BaseModel):
    """Numbers for one position: exactly one of `logits`, `probabilities` and `policy`."""

    fen: Annotated[Fen | None, WithJsonSchema({"type": "string", "maxLength": 200})] = Field(
        None, description="`startpos` is the start position.", examples=[chess.STARTING_FEN]
    )
    moves: Moves = Field(
        [], description="UCI or SAN, played from `fen`; without it, from the start position.", examples=[["e2e4"]]
    )
    chess960: bool = Field(False, description="Read the FEN as Chess960.", examples=[False])
    vocabulary: str | None = Field(
        None, max_length=40, description="Which slots `logits` or `probabilities` are for.", examples=["lc0-1858"]
    )
    logits: Annotated[list[Number] | None, _counted("logits")] = Field(
        None, fail_fast=True, description="`[A]`, in nats; null stands for -infinity.", examples=[[0.1, None, -2.5]]
    )
    probabilities: Annotated[list[float] | None, _counted("probabilities")] = Field(
        None,
        fail_fast=True,
        description="`[A]`, each from 0 to 1. If the sum is below 1, figures are shares of it.",
        examples=[[0.5, 0.0, 0.5]],
    )
    policy: dict[Annotated[str, Field(max_length=8)], float] | None = Field(
        None,
        max_length=MAX_SLOTS,
        description="UCI moves and their probabilities; no vocabulary.",
        examples=[{"e2e4": 0.6, "d2d4": 0.4}],
    )
    castling: Literal["king_two_squares", "king_takes_rook"] | None = Field(
        None,
        description="With `policy`: how castling is written, e1g1 or e1h1. If left out, either is accepted.",
        examples=["king_two_squares"],
    )
    threshold: float = Field(
        0, ge=0, le=1, description="Least share of an illegal move that is listed, 0 to 1.", examples=[0.001]
    )
    limit: int = Field(20, ge=0, le=1000, description="Most illegal moves listed: a number of moves.", examples=[20])

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [{"fen": chess.STARTING_FEN, "policy": {"e2e4": 0.5, "d2d4": 0.3, "e2e5": 0.2}}]
        },
    )

    @model_validator(mode="after")
    def _one_form(self) -> AuditIn:
        check_position_named(self, self.fen)
        forms = [name for name in ("logits", "probabilities", "policy") if getattr(self, name) is not None]
        if len(forms) != 1:
            raise ValueError(
                f"give exactly one of logits, probabilities and policy, not {' and '.join(forms) or 'none'}"
            )
        if (self.vocabulary is None) != (forms == ["policy"]):
            raise ValueError("vocabulary: goes with logits and probabilities, and is needed there")
        if self.castling is not None and forms != ["policy"]:
            raise ValueError("castling: goes with policy; a vocabulary has its own form")
        return self

    @property
    def castling_form(self) -> Castling | None:
        return None if self.castling is None else Castling(self.castling)


def verdict_out(verdict: Verdict, position: Position) -> VerdictOut:
    """The JSON of a verdict."""
    return VerdictOut(
        fen=position.fen,
        turn=position.turn,
        notation=None if position.notation is None else position.notation.value,
        legal_moves=position.board.legal_moves.count(),
        kinds=verdict.figures,
        sum=verdict.total,
        top=TopOut(uci=verdict.top, legal=verdict.top_is_legal),
        missing=list(verdict.missing),
        causes={cause.value: mass for cause, mass in sorted(verdict.causes.items(), key=lambda item: -item[1])},
        illegal=[
            IllegalMoveOut(uci=move.uci, probability=move.probability, cause=move.cause.value)
            for move in verdict.illegal
        ],
        patterns=[PatternOut(pattern=match.name, share=match.share, detail=match.detail) for match in verdict.patterns],
    )

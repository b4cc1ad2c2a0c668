"""`Problem`: the JSON of errors."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

TYPE_PREFIX = "urn:movemask:problem:"


class FieldError(BaseModel):
    """One field of the body or query that is wrong."""

    field: str = Field(description="The field's path in the body.", examples=["positions[3].elo"])
    message: str = Field(description="What is wrong with it.", examples=["Input should be a valid list, got null"])


class Problem(BaseModel):
    """RFC 9457 problem details. `type` is stable; `detail` names the offending input."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(
        description="A URN that never changes; docs/errors.md lists them.", examples=[TYPE_PREFIX + "invalid-fen"]
    )
    title: str = Field(description="The type for people.", examples=["Invalid FEN"])
    status: int = Field(description="The HTTP status code; also in items of a batch.", examples=[422])
    detail: str = Field(
        description="One sentence that names the offending input.",
        examples=["fen: 'x y z' is cut short: no en-passant square"],
    )
    request_id: str | None = Field(
        None,
        description="As in X-Request-ID and the log; absent from items of a batch.",
        examples=["0198c2d7-2f4b-7c6e-9d4f-5a1b2c3d4e5f"],
    )

    @property
    def name(self) -> str:
        """The last part of `type`."""
        return self.type.removeprefix(TYPE_PREFIX)

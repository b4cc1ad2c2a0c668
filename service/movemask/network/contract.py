"""The contract of a network, read from `models/NAME.toml`. docs/models.md lists every key; a test compares.

pydantic validates the file: a missing, misspelt or mistyped key is an error that names the file and the key.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import chess
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    StrictBool,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from movemask.encoding.encoders import PlaneEncoder, plane_encoder
from movemask.encoding.lc0 import HistoryFill
from movemask.encoding.moves_file import MOST_BYTES, MovesFile, Perspective, entry_of
from movemask.encoding.variations import (
    variation,
    varied_encoder,
    varied_vocabulary,
)
from movemask.encoding.vocabularies import FROM_TO, vocabulary, with_promotions
from movemask.encoding.vocabulary import Vocabulary
from movemask.errors import ContractError
from movemask.network.files import read_regular

#: Longest contract in bytes, with its card, and deepest nesting of tables and arrays. Both are generous.
_MOST_BYTES = 131_072
_DEEPEST = 16

#: A dotted key that is deeper. Python's parser of TOML takes 3 s and 1.5 GB for 40 kB of `a.a.a`.
_DEEP_KEY = re.compile(r"(?:\.[ \t]*(?:[\w-]{1,64}|\"[^\"\n]{0,64}\"|'[^'\n]{0,64}')[ \t]*){16}")


def is_moves_file(name: str) -> bool:
    """Returns whether the name of a vocabulary is that of a file of moves."""
    return name.endswith(".txt")


def read_moves_file(file: Path) -> MovesFile:
    """Returns the moves of a file. Raises ContractError, which names the line."""
    try:
        return MovesFile.read(file.name, read_regular(file, MOST_BYTES))
    except OSError as error:
        raise ContractError(f"{file.name}: {error.strerror}") from None


def _beside(file: str) -> str:
    """Returns the name of a file in the folder of the TOML. Raises ValueError for anything else."""
    if Path(file).name != file or file in {".", ".."} or not file.isprintable():
        raise ValueError(f"must be the name of a file in the folder of the TOML, got {file!r}")
    return file


def _known(of_name: Callable[[str], object], name: str) -> str:
    """Returns the name, if `of_name` knows it. Raises ValueError."""
    try:
        of_name(name)
    except ContractError as error:
        raise ValueError(str(error)) from None
    return name


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NetworkFile(_Section):
    """`[network]`: the file."""

    backend: Literal["onnx"] = Field("onnx", description="What runs the network.")
    file: str | None = Field(
        None, description="The ONNX file, beside the TOML; NAME.onnx if left out."
    )
    data: str | None = Field(
        None,
        description="The file with its weights, beside the TOML, if they are not in the ONNX file.",
    )
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")] | None = Field(
        None,
        description="Checked when the model loads, if set. With several files, of what sha256sum prints for them.",
    )

    @field_validator("file", "data")
    @classmethod
    def _file_beside(cls, file: str | None) -> str | None:
        return file and _beside(file)


class InputNames(_Section):
    """`[inputs]`: the names of the network's inputs."""

    planes: str = Field(description="[B, …] as the encoder makes them")
    elo_self: str | None = Field(None, description="[B], rating of the side to move")
    elo_opponent: str | None = Field(None, description="[B], rating of its opponent")
    legal_mask: str | None = Field(
        None, description="[B, A], 1 for the slots of legal moves and 0 for all others"
    )


class ValueHead(_Section):
    """`[outputs.value]`: the network's forecast of the result."""

    name: str
    order: Literal["win_draw_loss", "loss_draw_win", "score"] = Field(
        "win_draw_loss",
        description="Three numbers, or one: the expected score from -1 (lost) to 1 (won).",
    )
    softmaxed: StrictBool | None = Field(
        None, description="With three numbers: true for probabilities, false for logits."
    )
    point_of_view: Literal["side_to_move", "white"] = "side_to_move"

    @model_validator(mode="after")
    def _softmaxed_with_three_numbers(self) -> ValueHead:
        if (self.softmaxed is None) != (self.order == "score"):
            raise ValueError("softmaxed must be set for a value of three numbers, and for no other")
        return self


class OutputNames(_Section):
    """`[outputs]`: the names of the network's outputs."""

    logits: str = Field(description="float [B, A]")
    value: ValueHead | None = None


class EloRange(_Section):
    """`[elo]`: the default rating, and the range that ratings are clamped to."""

    default: float = 1500
    minimum: float = 0
    maximum: float = 5000
    scale: str = Field("unknown", description="The rating system, such as lichess.")
    edges: tuple[float, ...] = Field(
        (),
        description="Lower bounds of the network's buckets. Inputs are then int64 bucket numbers, 0 below the first.",
    )

    whole: StrictBool = Field(
        False, description="Whether the inputs are int64: the ratings themselves, rounded."
    )

    @field_validator("edges")
    @classmethod
    def _rising(cls, edges: tuple[float, ...]) -> tuple[float, ...]:
        if any(low >= high for low, high in pairwise(edges)):
            raise ValueError("must be in increasing order")
        return edges

    @model_validator(mode="after")
    def _default_in_range(self) -> EloRange:
        if not self.minimum <= self.maximum:
            raise ValueError(f"minimum: {self.minimum:g} is above maximum, {self.maximum:g}")
        if not self.minimum <= self.default <= self.maximum:
            raise ValueError(
                f"default: {self.default:g} is not within {self.minimum:g} to {self.maximum:g}"
            )
        return self


class Calibration(_Section):
    """`[calibration]`: the fitted temperature, written by `movemask calibrate`."""

    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    standard_error: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        None, description="Of the temperature, assuming independent moves."
    )
    positions: int = Field(ge=1, description="Played moves that it was fitted to.")
    cross_entropy_before: float = Field(description="Mean, in nats, at temperature 1.")
    cross_entropy_after: float = Field(description="Mean, in nats, at the fitted temperature.")
    source: str = Field(description="The games.")


class Strength(_Section):
    """`[[card.strength]]`: the engine's Elo at a rating and a temperature, measured by `benchmarks.strength`."""

    elo: Annotated[float, Field(ge=1, le=5000)]
    rating: Annotated[float, Field(ge=0, le=5000)]
    temperature: Annotated[float, Field(ge=0, le=100)]
    error: Annotated[float | None, Field(ge=0, description="Standard error of `elo`.")] = None


class _Card(BaseModel):
    """The keys of `[card]` that are checked."""

    strength: tuple[Strength, ...] = ()


class Terms(_Section):
    """`[contract]`: how positions are encoded and logits are read."""

    planes: Annotated[str, AfterValidator(partial(_known, plane_encoder))] = Field(
        description="The encoder: one of movemask's, or one of an installed package."
    )
    vocabulary: str = Field(
        description="A name, or a file of moves in the folder of the TOML, whose name ends in .txt."
    )
    perspective: Perspective | None = Field(
        None,
        description="The point of view of the vocabulary. A name implies it; a file of moves needs it.",
    )
    promotions: Literal["queen-only"] | tuple[str, ...] | None = Field(
        None,
        description="For from-to-4096: queen-only, or the moves of the slots after its own, blank for unused ones.",
    )
    incomplete: StrictBool = Field(
        False,
        description="If true, a legal move may have no slot. It is then left out, and listed in `without_slot`.",
    )
    history_fill: HistoryFill = HistoryFill.FEN_ONLY
    variations: tuple[Annotated[str, AfterValidator(partial(_known, variation))], ...] = Field(
        (), description="How the network differs from the named planes and vocabulary."
    )
    trained_with_mask: StrictBool = Field(
        description="If true, the logits of illegal slots are arbitrary."
    )

    _file: MovesFile | None = PrivateAttr(None)

    @field_validator("vocabulary")
    @classmethod
    def _vocabulary_known(cls, name: str) -> str:
        if is_moves_file(name):
            return _beside(name)
        return _known(vocabulary, name)

    @field_validator("promotions", mode="before")
    @classmethod
    def _promotions(cls, promotions: object) -> object:
        if promotions in (None, "queen-only"):
            return promotions
        if not isinstance(promotions, list | tuple) or not all(
            isinstance(move, str) for move in promotions
        ):
            raise ValueError(f'must be "queen-only" or a list of moves, got {promotions!r:.40}')
        for number, move in enumerate(promotions):
            try:
                entry = entry_of(move)
            except ValueError as error:
                raise ValueError(f"{move!r:.40}, number {number + 1}: {error}") from None
            if entry is not None and (entry[2] is None or move in promotions[:number]):
                raise ValueError(f"{move!r}, number {number + 1}, is no promotion, or named twice")
        return promotions

    @model_validator(mode="after")
    def _vocabulary_read(self, info: ValidationInfo) -> Terms:
        if is_moves_file(self.vocabulary) and self.perspective is None:
            raise ValueError(
                'perspective: a file of moves needs it: "side_to_move" if Black\'s moves are flipped, else "white"'
            )
        try:
            if is_moves_file(self.vocabulary):
                folder: Path = (info.context or {}).get("folder", Path())
                self._file = read_moves_file(folder / self.vocabulary)
            words = self.unvaried_vocabulary
        except ContractError as error:
            raise ValueError(f"vocabulary: {error}") from None
        if isinstance(self.promotions, tuple) and self.vocabulary not in FROM_TO:
            raise ValueError(f"promotions: slots can be added to {', '.join(FROM_TO)}, to no other")
        letters = {piece for piece in words.columns[2].tolist() if piece}
        if self.promotions == "queen-only" and letters - {chess.QUEEN}:
            raise ValueError(
                f"promotions: {self.vocabulary} has slots for other pieces than queens"
            )
        if len(set(self.variations)) != len(self.variations):
            raise ValueError("variations: one is named twice")
        for name in self.variations:
            if not variation(name).applies(self.planes, words):
                raise ValueError(
                    f"variations: {name!r} changes nothing for {self.planes} and {self.vocabulary}"
                )
        view = "side_to_move" if self.slots.mirrored else "white"
        if self.perspective not in (None, view):
            raise ValueError(f"perspective: the vocabulary {self.vocabulary} is seen by {view}")
        return self

    @property
    def moves_file(self) -> MovesFile | None:
        """The file of moves, if the vocabulary is one."""
        return self._file

    @property
    def unvaried_vocabulary(self) -> Vocabulary:
        """The vocabulary with its promotions and without variations."""
        if self._file is not None and is_moves_file(self.vocabulary):
            words = self._file.vocabulary(self.perspective or "side_to_move")
            if self.promotions == "queen-only" and not words.columns[2].any():  # no letters at all
                words = words.changed(bare_promotion=chess.QUEEN)
        else:
            words = vocabulary(self.vocabulary)
        if isinstance(self.promotions, tuple):
            words = with_promotions(words, [entry_of(move) for move in self.promotions])
        complete = not self.incomplete and self.promotions != "queen-only"
        return words if words.complete == complete else words.changed(complete=complete)

    @property
    def slots(self) -> Vocabulary:
        """The vocabulary, as the network has it."""
        return varied_vocabulary(self.unvaried_vocabulary, self.variations)

    @property
    def encoder(self) -> PlaneEncoder:
        """The encoder, as the network has it."""
        encoder = plane_encoder(self.planes, self.history_fill)
        return varied_encoder(encoder, self.variations)


class Contract(_Section):
    """A network's input and output. `card` says where the network comes from."""

    network: NetworkFile = NetworkFile()
    terms: Terms = Field(alias="contract")
    inputs: InputNames
    outputs: OutputNames
    elo: EloRange = EloRange()
    calibration: Calibration | None = None
    card: dict[str, Any] = Field(
        default_factory=dict, description="Free: source, licence, data, date, figures."
    )

    @field_validator("card")
    @classmethod
    def _strength_rises(cls, card: dict[str, Any]) -> dict[str, Any]:
        rows = _Card.model_validate(card).strength
        if any(low.elo >= high.elo for low, high in pairwise(rows)):
            raise ValueError("strength: elo must increase from row to row")
        return card

    @model_validator(mode="after")
    def _masked_if_it_takes_the_mask(self) -> Contract:
        if self.inputs.legal_mask is not None and not self.terms.trained_with_mask:
            raise ValueError(
                "contract.trained_with_mask: must be true for a network with inputs.legal_mask"
            )
        return self

    @property
    def takes_elo(self) -> bool:
        """Whether the network has a rating among its inputs."""
        return self.inputs.elo_self is not None or self.inputs.elo_opponent is not None

    @property
    def takes_history(self) -> bool:
        """Whether the network sees earlier positions."""
        return self.terms.encoder.uses_history


def read_contract(file: Path) -> Contract:
    """Returns the contract in a TOML file; raises ContractError, which names the file and the key."""
    try:
        text = read_regular(file, _MOST_BYTES)
        if len(text) > _MOST_BYTES:
            raise ContractError(
                f"{file.name}: larger than {_MOST_BYTES} bytes, too large for a contract"
            )
        toml = text.decode()
        if _DEEP_KEY.search(toml):
            raise RecursionError
        table = tomllib.loads(toml)
        _refuse_depth(file, table)
    except RecursionError:
        raise ContractError(f"{file.name}: nested more than {_DEEPEST} deep") from None
    except tomllib.TOMLDecodeError as error:
        raise ContractError(f"{file.name}: not TOML: {error}") from None
    except UnicodeDecodeError:
        raise ContractError(f"{file.name}: not TOML: it is not UTF-8 text") from None
    except OSError as error:
        raise ContractError(f"{file.name}: cannot be read: {error.strerror}") from None
    try:
        return read_table(table, file.parent)
    except ContractError as error:
        raise ContractError(f"{file.name}: {error}") from None


def read_table(table: Mapping[str, Any], folder: Path) -> Contract:
    """Returns the contract in a table of TOML, with its files in a folder.

    Raises ContractError, which names the key.
    """
    try:
        return Contract.model_validate(table, context={"folder": folder})
    except ValidationError as error:
        raise ContractError(_first_fault(error)) from None


def _first_fault(error: ValidationError) -> str:
    """Returns an unknown key, with the missing key that it may stand for; otherwise the first error.

    Says how many more there are.
    """
    errors = error.errors(include_url=False)
    first = next((each for each in errors if each["type"] == "extra_forbidden"), errors[0])
    more = len(errors) - 1
    message = _message(first["type"], first["msg"])
    if first["type"] == "extra_forbidden":
        section = first["loc"][:-1]
        missing = [
            str(each["loc"][-1])
            for each in errors
            if each["type"] == "missing" and each["loc"][:-1] == section
        ]
        if near := get_close_matches(str(first["loc"][-1]), missing, 1):
            message, more = f"{message}; did you mean {near[0]!r}, which is missing?", more - 1
    key = ".".join(str(part) for part in first["loc"])
    nested = message.split(": ", 1)[0]
    if re.fullmatch(r"[a-z_]+", nested):  # a rule of several keys names its own
        key, message = ".".join(filter(None, (key, nested))), message.removeprefix(f"{nested}: ")
    return ": ".join(filter(None, (key, message))) + (f" (and {more} more)" if more else "")


def _refuse_depth(file: Path, table: Any) -> None:
    """Raises ContractError for tables and arrays nested deeper than `_DEEPEST`."""
    level = [table]
    for _ in range(_DEEPEST):
        values = [
            value
            for outer in level
            for value in (outer.values() if isinstance(outer, dict) else outer)
        ]
        level = [value for value in values if isinstance(value, dict | list)]
        if not level:
            return
    raise ContractError(f"{file.name}: nested more than {_DEEPEST} deep")


def _message(error_type: str, message: str) -> str:
    if error_type == "extra_forbidden":
        return "no such key"
    if error_type == "missing":
        return "this key is missing"
    if error_type == "bool_type":
        return "must be true or false, without quotation marks"
    return message.removeprefix("Value error, ")

"""The skeleton of a contract, for a network that no known family fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from movemask.encoding.encoders import plane_encoder, plane_encoder_names
from movemask.encoding.vocabularies import vocabulary, vocabulary_names
from movemask.network.model import Session, TensorInfo

#: What stands for a value that the user must write.
OPEN = "?"


class _Choices(Protocol):
    @property
    def planes(self) -> str | None: ...
    @property
    def vocabulary(self) -> str | None: ...
    @property
    def perspective(self) -> str | None: ...


def skeleton(session: Session, choices: _Choices) -> str:
    """Returns a contract in TOML with the network's names.

    Lines to complete hold a question mark, and say what is known.
    """
    planes = max(session.inputs, key=lambda info: (len(info.shape), _size(info)))
    logits = max(session.outputs, key=_size)
    value = [info for info in session.outputs if info is not logits and _size(info) in (1, 3)]
    encoders = [
        name for name in plane_encoder_names() if plane_encoder(name).shape == planes.shape[1:]
    ]
    words = [name for name in vocabulary_names() if len(vocabulary(name)) == _size(logits)]
    lines = [
        "[contract]",
        _line("planes", choices.planes, encoders, f"input {planes.name!r} is {_form(planes)}"),
        _line(
            "vocabulary", choices.vocabulary, words, f"output {logits.name!r} is {_form(logits)}"
        ),
        *([f'perspective = "{choices.perspective}"'] if choices.perspective else []),
        "trained_with_mask = false  # true if the logits of illegal moves mean nothing",
        "",
        "[inputs]",
        f'planes = "{planes.name}"',
    ]
    for info in session.inputs:
        if info is not planes:
            lines.append(f'# elo_self, elo_opponent or legal_mask = "{info.name}"  # {_form(info)}')
    lines += ["", "[outputs]", f'logits = "{logits.name}"']
    if value:
        three = _size(value[0]) == 3
        lines += [
            "",
            "[outputs.value]",
            f'name = "{value[0].name}"',
            f'order = "{"win_draw_loss" if three else "score"}"',
            *(["softmaxed = true  # false for logits"] if three else []),
        ]
    return "\n".join(lines) + "\n"


def open_lines(text: str) -> list[str]:
    """Returns the lines of a skeleton that must be completed: their numbers and keys."""
    return [
        f"line {number} ({line.split(' ')[0]})"
        for number, line in enumerate(text.splitlines(), 1)
        if f'"{OPEN}"' in line
    ]


def _line(key: str, chosen: str | None, known: Sequence[str], form: str) -> str:
    if chosen is not None:
        return f'{key} = "{chosen}"'
    if len(known) == 1:
        return f'{key} = "{known[0]}"  # by its shape: {form}'
    which = f"one of {', '.join(known)}: " if known else ""
    return f'{key} = "{OPEN}"  # {which}{form}'


def _size(info: TensorInfo) -> int:
    size = 1
    for dimension in info.shape[1:]:
        size *= dimension or 1
    return size


def _form(info: TensorInfo) -> str:
    return f"{info.dtype} [{', '.join('B' if size is None else str(size) for size in info.shape)}]"

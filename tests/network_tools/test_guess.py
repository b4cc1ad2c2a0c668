"""The guessed contract of an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from movemask.errors import ContractError
from movemask.network.onnx import OnnxSession
from movemask.network_tools.family_match import fitted
from movemask.network_tools.guess import Guess, guess
from movemask.network_tools.installation import Choices
from tests.networks import Tensor, write_named

LC0 = [Tensor("/input/planes", (112, 8, 8))]
MAIA2 = [Tensor("boards", (18, 8, 8)), Tensor("elo_self", (), "int64"), Tensor("elo_oppo", (), "int64")]
MAIA3 = [Tensor("tokens", (64, 12)), Tensor("elo_self"), Tensor("elo_oppo")]
POLICY = Tensor("/output/policy", (1858,))


def made(folder: Path, inputs: list[Tensor], outputs: list[Tensor], softmaxed: str = "") -> OnnxSession:
    write_named(folder / "net.onnx", inputs, outputs, softmaxed=softmaxed)
    return OnnxSession(folder / "net.onnx", threads=1)


def guessed(session: OnnxSession, kind: str | None = None, **options: bool) -> Guess:
    """The contract of a network that needs no change."""
    fit = fitted(session, Choices(kind).families()[0])
    assert not fit.changes
    return guess(session, fit, **options)


def test_lc0_export(tmp_path: Path) -> None:
    session = made(tmp_path, LC0, [POLICY, Tensor("/output/wdl", (3,)), Tensor("/output/mlh", (1,))], "/output/wdl")
    result = guessed(session)
    assert result.table == {
        "contract": {"planes": "lc0-112", "vocabulary": "lc0-1858", "trained_with_mask": False},
        "inputs": {"planes": "/input/planes"},
        "outputs": {
            "logits": "/output/policy",
            "value": {"name": "/output/wdl", "order": "win_draw_loss", "softmaxed": True},
        },
    }
    notes = "\n".join(result.notes)
    assert "a network of the family lc0" in notes
    assert "as probabilities" in notes
    assert "not used: /output/mlh" in notes
    assert "trained_with_mask = false" in notes


@pytest.mark.parametrize(
    ("inputs", "outputs", "planes", "words", "value"),
    [
        (LC0, [POLICY, Tensor("v", (1,))], "lc0-112", "lc0-1858", {"name": "v", "order": "score"}),
        (
            MAIA2,
            [Tensor("logits_maia", (1880,)), Tensor("logits_side_info", (2021,)), Tensor("v")],
            "maia2-18",
            "maia2-1880",
            {"name": "v", "order": "score"},
        ),
        *(
            (
                [Tensor("tokens", (64, width)), *MAIA3[1:]],
                [Tensor("logits_move", (4352,)), Tensor("v", (3,))],
                f"maia3-tokens-{width}",
                "maia3-4352",
                {"name": "v", "order": "loss_draw_win", "softmaxed": False},
            )
            for width in (12, 96)
        ),
        ([Tensor("obs", (8, 8, 119))], [Tensor("policy", (4672,))], "pgx-119", "alphazero-4672", None),
        ([Tensor("tokens", (77,), "int32")], [Tensor("logits", (1968,))], "fen-77", "uci-1968", None),
    ],
)
def test_exports_of_other_families(
    inputs: list[Tensor], outputs: list[Tensor], planes: str, words: str, value: Any, tmp_path: Path
) -> None:
    result = guessed(made(tmp_path, inputs, outputs), trained_with_mask=True)
    assert result.table["contract"] == {"planes": planes, "vocabulary": words, "trained_with_mask": True}
    assert result.table["outputs"].get("value") == value
    if len(inputs) == 3:
        assert result.table["inputs"] == {"planes": inputs[0].name, "elo_self": "elo_self", "elo_opponent": "elo_oppo"}
    assert result.table.get("elo", {}).get("edges") == (list(range(1100, 2001, 100)) if inputs is MAIA2 else None)
    assert ("not used: logits_side_info" in result.notes) == (inputs is MAIA2)


@pytest.mark.parametrize(
    ("inputs", "outputs", "kind", "words"),
    [
        (
            [Tensor("x", (17, 8, 8))],
            [POLICY],
            None,
            r"output '/output/policy' has 1858 numbers .*, but no input is its planes\. It has inputs x float32",
        ),
        (
            LC0,
            [Tensor("p", (1859,))],
            None,
            r"input '/input/planes' is lc0-112 by its shape, but no output has 1858 .* outputs p float32 \[B, 1859\]",
        ),
        (LC0, [POLICY], "maia2", "not a network of the family 'maia2'"),
        (LC0, [POLICY], "maia9", "no network family 'maia9'; available: lc0"),
        (LC0, [POLICY, Tensor("again", (1858,))], None, "outputs /output/policy, again all have 1858"),
        (
            [*MAIA3[:1], Tensor("a"), Tensor("b")],
            [Tensor("m", (4352,))],
            None,
            r"inputs a, b: a contract can feed a rating of shape \[B\] or two",
        ),
        ([*LC0, Tensor("more", (5,))], [POLICY], None, r"inputs more: .* the legal mask of shape \[B, 1858\]"),
        (
            [*LC0, Tensor("a", (1858,)), Tensor("b", (1858,))],
            [POLICY],
            None,
            "inputs a, b could each be the legal mask",
        ),
    ],
)
def test_ambiguous_networks_raise(
    inputs: list[Tensor], outputs: list[Tensor], kind: str | None, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ContractError, match=words):
        guessed(made(tmp_path, inputs, outputs), kind)


def test_two_possible_values_give_none(tmp_path: Path) -> None:
    result = guessed(made(tmp_path, LC0, [POLICY, Tensor("wdl", (3,)), Tensor("st", (3,))]))
    assert "value" not in result.table["outputs"]
    assert "no value: wdl, st could each be one; write it into the TOML" in result.notes

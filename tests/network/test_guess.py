"""What a user would lose: one command for a network of a known kind, and no silent guess."""

from __future__ import annotations

from pathlib import Path

import pytest

from movemask.errors import ContractError
from movemask.network.guess import guess
from movemask.network.onnx import OnnxSession
from tests.networks import Tensor, write_named

LC0 = [Tensor("/input/planes", (112, 8, 8))]
MAIA2 = [Tensor("boards", (18, 8, 8)), Tensor("elo_self", (), "int64"), Tensor("elo_oppo", (), "int64")]
MAIA3 = [Tensor("tokens", (64, 12)), Tensor("elo_self"), Tensor("elo_oppo")]
POLICY = Tensor("/output/policy", (1858,))


def made(folder: Path, inputs: list[Tensor], outputs: list[Tensor], softmaxed: str = "") -> OnnxSession:
    write_named(folder / "net.onnx", inputs, outputs, softmaxed=softmaxed)
    return OnnxSession(folder / "net.onnx", threads=1)


def test_an_lc0_export(tmp_path: Path) -> None:
    session = made(tmp_path, LC0, [POLICY, Tensor("/output/wdl", (3,)), Tensor("/output/mlh", (1,))], "/output/wdl")
    found = guess(session)
    assert found.table == {
        "contract": {"planes": "lc0-112", "vocabulary": "lc0-1858", "trained_with_mask": False},
        "inputs": {"planes": "/input/planes"},
        "outputs": {
            "logits": "/output/policy",
            "value": {"name": "/output/wdl", "order": "win_draw_loss", "softmaxed": True},
        },
    }
    notes = "\n".join(found.notes)
    assert "a network of the kind lc0" in notes
    assert "as probabilities" in notes
    assert "not used: /output/mlh" in notes
    assert "trained_with_mask = false" in notes


def test_an_lc0_export_with_a_scalar_value(tmp_path: Path) -> None:
    found = guess(made(tmp_path, LC0, [POLICY, Tensor("/output/value", (1,))]), "maia1", trained_with_mask=True)
    assert found.table["outputs"]["value"] == {"name": "/output/value", "order": "score"}
    assert found.table["contract"]["trained_with_mask"] is True


def test_a_maia2_export(tmp_path: Path) -> None:
    outputs = [Tensor("logits_maia", (1880,)), Tensor("logits_side_info", (2021,)), Tensor("logits_value")]
    found = guess(made(tmp_path, MAIA2, outputs))
    assert found.table["contract"]["planes"] == "maia2-18"
    assert found.table["inputs"] == {"planes": "boards", "elo_self": "elo_self", "elo_opponent": "elo_oppo"}
    assert found.table["elo"]["edges"] == [1100, 1200, 1300, 1400, 1500, 1600, 1700, 1800, 1900, 2000]
    assert found.table["outputs"]["value"] == {"name": "logits_value", "order": "score"}
    assert "not used: logits_side_info" in found.notes


@pytest.mark.parametrize(("width", "planes"), [(12, "maia3-tokens-12"), (96, "maia3-tokens-96")])
def test_a_maia3_export(width: int, planes: str, tmp_path: Path) -> None:
    inputs = [Tensor("tokens", (64, width)), Tensor("self_elos"), Tensor("oppo_elos")]
    found = guess(made(tmp_path, inputs, [Tensor("logits_move", (4352,)), Tensor("logits_value", (3,))]))
    assert found.table["contract"]["planes"] == planes
    assert found.table["inputs"]["elo_opponent"] == "oppo_elos"
    assert found.table["outputs"]["value"] == {
        "name": "logits_value",
        "order": "loss_draw_win",
        "softmaxed": False,
    }


def test_alphazero_and_searchless_exports(tmp_path: Path) -> None:
    found = guess(made(tmp_path, [Tensor("obs", (8, 8, 119))], [Tensor("policy", (4672,)), Tensor("value")]))
    assert found.table["contract"]["vocabulary"] == "alphazero-4672"
    found = guess(made(tmp_path, [Tensor("tokens", (77,), "int32")], [Tensor("logits", (1968,))]))
    assert found.table["contract"]["planes"] == "fen-77"
    assert "value" not in found.table["outputs"]


@pytest.mark.parametrize(
    ("inputs", "outputs", "kind", "words"),
    [
        (
            [Tensor("x", (17, 8, 8))],
            [POLICY],
            None,
            r"no known kind of network: it has inputs x float32",
        ),
        (LC0, [Tensor("p", (1859,))], None, r"no known kind of network: .* outputs p float32 \[B, 1859\]"),
        (LC0, [POLICY], "maia2", "not a network of the kind 'maia2'"),
        (LC0, [POLICY], "maia9", "no kind of contract 'maia9'; there are lc0"),
        (LC0, [POLICY, Tensor("again", (1858,))], None, "outputs /output/policy, again all have 1858"),
        (
            [*MAIA3[:1], Tensor("a"), Tensor("b")],
            [Tensor("m", (4352,))],
            None,
            r"inputs a, b: not one rating of shape \[B\] or two",
        ),
        ([*LC0, Tensor("more", (5,))], [POLICY], None, r"inputs more: not one rating of shape \[B\] or two"),
    ],
)
def test_what_cannot_be_guessed_says_what_there_is(
    inputs: list[Tensor], outputs: list[Tensor], kind: str | None, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ContractError, match=words):
        guess(made(tmp_path, inputs, outputs), kind)


def test_two_outputs_that_could_be_the_value_are_told_and_none_is_taken(tmp_path: Path) -> None:
    found = guess(made(tmp_path, LC0, [POLICY, Tensor("wdl", (3,)), Tensor("st", (3,))]))
    assert "value" not in found.table["outputs"]
    assert "no value: wdl, st could each be one; write it into the TOML" in found.notes

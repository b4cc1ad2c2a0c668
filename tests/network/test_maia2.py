"""Maia-2: policies against its own package."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path
from typing import Any

import chess
import numpy as np
import pytest

from movemask.board.moves import uci_of
from movemask.board.position import Elo, Position
from movemask.evaluate import evaluate_positions
from movemask.network.model import Model
from movemask.network.registry import open_model
from movemask.network_tools.diagnosis import probes
from movemask.network_tools.installation import add_onnx

pytestmark = pytest.mark.peer

POSITIONS = 500
#: One rating inside each of the eleven buckets, and both ends of some.
RATINGS = (400, 1099, 1100, 1150, 1250, 1350, 1450, 1550, 1650, 1750, 1850, 1950, 1999, 2000, 2800)


@pytest.fixture(scope="module")
def package() -> Any:
    """The package's network with random weights, and its inference."""
    torch = pytest.importorskip("torch", reason="maia2: torch is not installed")
    pytest.importorskip("maia2", reason="maia2: the package is not installed (pip install maia2)")
    from importlib.resources import as_file, files

    from maia2 import inference, main, utils

    with as_file(files("maia2.configs").joinpath("maia2-training.yaml")) as file:
        settings = utils.parse_args(file)
    torch.manual_seed(0)
    network = main.MAIA2Model(len(utils.get_all_possible_moves()), utils.create_elo_dict(), settings).eval()
    torch.nn.init.normal_(network.elo_embedding.weight, std=3.0)  # so that the ratings matter
    network.fc_1.weight.data *= 10  # and the policy is not flat
    return network, inference


@pytest.fixture(scope="module")
def model(package: Any, tmp_path_factory: pytest.TempPathFactory) -> Model:
    import torch

    folder: Path = tmp_path_factory.mktemp("maia2")
    names = ["boards", "elo_self", "elo_oppo"]
    outputs = ["logits_maia", "logits_side_info", "logits_value"]
    inputs = (torch.zeros(2, 18, 8, 8), torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.int64))
    axes = {name: {0: "batch"} for name in (*names, *outputs)}
    export: Any = torch.onnx.export
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export(
            package[0],
            inputs,
            str(folder / "maia2.onnx"),
            input_names=names,
            output_names=outputs,
            dynamic_axes=axes,
            dynamo=False,
        )
    installed = add_onnx(folder / "maia2.onnx", folder / "m", "maia2")
    assert "a network of the family maia2" in installed.notes[0]
    return open_model(folder / "m" / "maia2.toml", threads=1)


def test_probabilities_match_maia2_package(package: Any, model: Model) -> None:
    network, inference = package
    prepared = inference.prepare()
    draw = random.Random(1)
    boards = [probe.position.board.copy(stack=False) for probe in islice(probes(), 0, None, len(probes()) // POSITIONS)]
    boards = boards[:POSITIONS]
    assert {board.turn for board in boards} == {chess.WHITE, chess.BLACK}
    queries = [(board, draw.choice(RATINGS), draw.choice(RATINGS)) for board in boards]
    positions = [Position(board) for board, _, _ in queries]
    evaluated = evaluate_positions(model, positions, [Elo(own, other) for _, own, other in queries])
    codes, probabilities, indptr, _ = evaluated.policies.lists
    assert evaluated.value is not None
    for row, ((board, own, other), value) in enumerate(zip(queries, evaluated.value, strict=True)):
        theirs, white_wins = inference.inference_each(network, prepared, board.fen(en_passant="fen"), own, other)
        mine = slice(indptr[row], indptr[row + 1])
        ours = dict(zip(uci_of(codes[mine]), probabilities[mine], strict=True))
        assert ours == pytest.approx(theirs, abs=6e-5), board.fen()  # the package rounds to four places
        score = value[0] if board.turn == chess.WHITE else 1 - value[0]
        assert score == pytest.approx(white_wins, abs=6e-5)
    spread = np.maximum.reduceat(evaluated.policies.probabilities, indptr[:-1])
    assert spread.std() > 0.01  # a flat policy would agree whatever the slots

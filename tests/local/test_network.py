"""`movemask.load`: policies of python-chess boards without HTTP."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import chess
import numpy as np
import pytest
from fastapi.testclient import TestClient

import movemask
from movemask.board.moves import moves_of
from movemask.board.position import Position
from movemask.client.options import RuleOptions
from movemask.errors import ContractError, IllegalMove, InvalidPosition, ModelUnavailable, UnknownModel
from movemask.network.files import ModelFolders
from movemask.network.registry import load_entry
from tests.client.through import through
from tests.conftest import ROOT
from tests.networks import write_fake


def test_policy_matches_the_service(network: movemask.Network, shipped: TestClient) -> None:
    board = chess.Board()
    for san in ("e4", "e5", "Nf3"):
        board.push_san(san)
    for ratings, elo in (
        ({}, None),
        ({"elo": 1200}, 1200.0),
        ({"elo": {"self": 1200, "opponent": 1900}}, (1200, 1900)),
    ):
        answer = shipped.post("/v1/policy", json={"moves": ["e4", "e5", "Nf3"], **ratings, "top_p": 0.95}).json()
        policy = network.policy(board, elo=elo, top_p=0.95)
        assert [move.uci() for move in policy.probabilities] == [move["uci"] for move in answer["moves"]]
        assert list(policy.probabilities.values()) == pytest.approx([move["probability"] for move in answer["moves"]])
        assert (policy.raw, policy.multiplied) == pytest.approx(
            (answer["leakage"]["raw"], answer["leakage"]["multiplied"])
        )
        assert policy.value is not None
        assert policy.value.score == pytest.approx(answer["value"]["score"])
        assert policy.ignored == tuple(answer["ignored"])
        assert policy.elo == (answer["elo"]["self"], answer["elo"]["opponent"])
    rule: RuleOptions = {"normalizer": "entmax", "alpha": 1.3, "temperature": 2}
    moves = shipped.post("/v1/policy", json={"moves": ["e4", "e5", "Nf3"], **rule}).json()["moves"]
    assert list(network.policy(board, **rule).probabilities.values()) == [move["probability"] for move in moves]


@pytest.mark.parametrize("rule", [{}, {"temperature": 2}, {"top_k": 3}, {"normalizer": "softmax_one"}], ids=str)
def test_seed_draws_the_move_of_the_service(network: movemask.Network, shipped: TestClient, rule: RuleOptions) -> None:
    for moves in ([], ["e4"], ["e4", "e5", "Nf3"], ["d4", "Nf6", "c4", "e6", "Nc3"]):
        board = chess.Board()
        for san in moves:
            board.push_san(san)
        policy = network.policy(board, **rule)
        for seed in (*range(10), 2**53, 2**63 - 1):
            body = {"fen": chess.STARTING_FEN, "moves": moves, "method": "sample", "seed": seed, **rule}
            assert shipped.post("/v1/move", json=body).json()["move"]["uci"] == str(policy.sample(seed))


def test_load_ignores_service_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PORT", "abc"), ("THREADS", "many"), ("NEW_FLAG", "1"), ("DEFAULT_MODEL", "none")):
        monkeypatch.setenv(f"MOVEMASK_{name}", value)
    assert movemask.load().name == "movemask-8"
    write_fake(tmp_path, "own")
    monkeypatch.setenv("MOVEMASK_MODELS_DIR", str(tmp_path))
    assert movemask.load().name == "own"


@pytest.mark.parametrize("copied", [lambda network: pickle.loads(pickle.dumps(network)), copy.deepcopy])
def test_network_can_be_pickled_and_copied(network: movemask.Network, copied: Any) -> None:
    """Pools of processes and loaders of data send what they work with."""
    board = chess.Board()
    assert copied(network).policy(board).probabilities == network.policy(board).probabilities


def test_policy_item_by_move_uci_or_san(network: movemask.Network) -> None:
    policy = network.policy(chess.Board())
    assert policy.best is not None
    assert policy["e4"] == policy["e2e4"] == policy[chess.Move.from_uci("e2e4")] > 0.1
    assert policy.top(2)[0] == (policy.best, max(policy.probabilities.values()))
    assert policy.sample(seed=3) == policy.sample(seed=3)
    assert len({policy.sample(seed) for seed in range(40)}) > 1
    for move in ("e5", "e2e5", chess.Move.from_uci("e2e5")):
        with pytest.raises(IllegalMove, match=r"^policy\['(e2)?e5'\]: is not legal in 'rnbqkbnr/"):
            policy[move]
    for word in ("Zz", "", 3, None):
        with pytest.raises(IllegalMove, match=rf"^policy\[{word!r}\]: is not a move"):
            policy[word]  # type: ignore[index]


def test_policy_is_a_mapping(network: movemask.Network) -> None:
    policy = network.policy(chess.Board(), top_k=3)
    assert dict(policy) == dict(policy.items()) == policy == policy.probabilities
    assert sum(policy.values()) == pytest.approx(1)
    assert policy.get("e4") == policy["e2e4"]
    assert policy.get("a3") == policy["a3"] == 0  # legal; the filter dropped it
    assert [policy.get("e5"), policy.get("Zz", 0.5), policy.get(None)] == [None, 0.5, None]
    keys: list[object] = ["e4", "a3", "e5", 5]
    assert [move in policy for move in keys] == [True, False, False, False]


def test_policy_of_a_fen(network: movemask.Network) -> None:
    board = chess.Board("r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR w KQkq - 0 4")
    assert network.policy(board.fen()) == network.policy(board)
    assert network.policies(["startpos", board])[0] == network.policy(chess.Board())
    assert (network.logits(board.fen()).values == network.logits(board).values).all()


def test_load_file_with_contract_beside_it(tmp_path: Path) -> None:
    file = write_fake(tmp_path, "own").with_suffix(".onnx")
    network = movemask.load(file)
    assert network.name == "own"
    assert pickle.loads(pickle.dumps(network)).policy("startpos") == movemask.load(str(file)).policy("startpos")
    file.with_suffix(".toml").unlink()
    with pytest.raises(
        UnknownModel, match=r"own.onnx' has no contract, own.toml, beside it: .*movemask models add own"
    ):
        movemask.load(file)
    with pytest.raises(UnknownModel, match=r"none.onnx': no such file"):
        movemask.load(tmp_path / "none.onnx")


@pytest.mark.parametrize(
    "rule", [{}, {"normalizer": "softmax_one"}, {"normalizer": "sparsemax", "top_p": 0.9}], ids=str
)
def test_temperature_zero_leaves_best_move(network: movemask.Network, shipped: TestClient, rule: RuleOptions) -> None:
    greedy: RuleOptions = {**rule, "temperature": 0}
    policy = network.policy(chess.Board(), **greedy)
    assert dict(policy) == {network.policy(chess.Board()).best: 1.0}
    answer = shipped.post("/v1/policy", json={"moves": [], "temperature": 0, "include": ["statistics"], **rule}).json()
    assert [(move["uci"], move["probability"]) for move in answer["moves"]] == [(str(policy.best), 1.0)]
    assert answer["temperature"] == 0
    chosen = shipped.post("/v1/move", json={"moves": [], "temperature": 0, "method": "sample", **rule}).json()
    assert chosen["move"]["uci"] == str(policy.best)
    games = shipped.post("/v1/games", json={"pgn": "1. e4 *", "temperature": 0})
    assert "temperature: Input should be greater than 0: at 0 a move" in games.json()["detail"]


def test_policy_length_iteration_and_repr(network: movemask.Network) -> None:
    policy = network.policy(chess.Board())
    assert len(policy) == 20
    assert list(policy) == list(policy.probabilities)
    assert chess.Move.from_uci("e2e4") in policy
    assert re.fullmatch(r"<movemask\.Policy e4 [\d.]+%, d4 [\d.]+%, \w+ [\d.]+% and 17 more; movemask-8>", repr(policy))


def test_policies_of_boards_and_finished_games(network: movemask.Network) -> None:
    board, mate = chess.Board(), chess.Board("7k/6Q1/5K2/8/8/8/8/8 b - - 0 1")
    policies = network.policies([board, mate] * 50)
    assert [len(policy) for policy in policies] == [20, 0] * 50
    assert (policies[1].best, policies[1].sample(), policies[1].value) == (None, None, None)
    board.push_san("e4")
    assert policies[0].board == chess.Board()
    assert network.policy(board).ignored == ()


def test_policies_with_a_rating_each(network: movemask.Network) -> None:
    boards = [chess.Board()] * 3
    policies = network.policies(boards, elo=2000, elos=[900, (1200, 1800), None])
    rated = [network.policy(chess.Board(), elo=elo) for elo in (900, 2000)]
    assert [policy.elo for policy in policies] == [rated[0].elo, (1200, 1800), rated[1].elo]
    assert [policies[0].probabilities, policies[2].probabilities] == [one.probabilities for one in rated]
    with pytest.raises(movemask.MovemaskError, match="elos: 1 ratings for 3 boards"):
        network.policies(boards, elos=[900])


def test_shaped_matches_the_service(network: movemask.Network) -> None:
    board = chess.Board("r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR w KQkq - 0 4")
    for temperature, top_p in ((0.5, 1.0), (2.0, 0.8), (1.0, 0.5)):
        shaped = network.policy(board).shaped(temperature, top_p).probabilities
        expected = network.policy(board, temperature=temperature, top_p=top_p).probabilities
        assert list(shaped) == list(expected)
        assert list(shaped.values()) == pytest.approx(list(expected.values()), abs=1e-9)
    assert list(network.policy(board).shaped(0).probabilities.values()) == [1.0]


def test_shaped_moves_that_underflow_are_equally_likely(network: movemask.Network) -> None:
    """As after a network that is certain of another move: an engine that must play one of these still plays."""
    certain = replace(
        network.policy(chess.Board()),
        probabilities={
            chess.Move.from_uci("e2e4"): 1.0,
            chess.Move.from_uci("a2a3"): 0.0,
            chess.Move.from_uci("h2h3"): 0.0,
        },
    )
    rest = [chess.Move.from_uci("a2a3"), chess.Move.from_uci("h2h3")]
    assert certain.shaped(0.5, among=rest).probabilities == dict.fromkeys(rest, 0.5)


WRONG: dict[str, list[Any]] = {
    "temperature": [-1, float("nan"), float("inf"), "warm"],
    "elo": ["x", (1500,), (1, 2, 3), float("nan"), {}, "", "1500", True, -1, 5001],
    "top_k": [0, 1.5, "x"],
    "top_p": [0, 2, "x"],
    "min_p": [-1, "x"],
    "normalizer": ["x"],
    "alpha": [1.5],
}


@pytest.mark.parametrize(
    ("board", "options", "message"),
    [
        *((None, {name: bad}, f"{name}: ") for name, wrong in WRONG.items() for bad in wrong),
        ("8/8 w", {}, "fen: '8/8 w' is cut short"),
        ([], {}, "board: [] is neither a chess.Board nor a FEN"),
        (None, {"rating": 1500}, "rating: there is no such option; available: elo, "),
    ],
)
def test_wrong_arguments_raise(network: movemask.Network, board: Any, options: Any, message: str) -> None:
    with pytest.raises(movemask.MovemaskError) as caught:
        network.policy(chess.Board() if board is None else board, **options)
    assert str(caught.value).startswith(message)


def test_invalid_board_and_unknown_model_raise(tmp_path: Path) -> None:
    write_fake(tmp_path, "mine")
    network = movemask.load("mine", models_dir=tmp_path)
    assert repr(network) == "<movemask.Network mine>"
    with pytest.raises(InvalidPosition, match="NO_WHITE_KING"):
        network.policy(chess.Board(None))
    with pytest.raises(UnknownModel, match="no model 'x'; available: mine"):
        movemask.load("x", models_dir=tmp_path)


def test_load_default_that_fails_its_check(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[contract]\n")
    with pytest.raises(ModelUnavailable, match=r"model 'bad' failed its check: bad\.toml: contract\.planes"):
        movemask.load(models_dir=tmp_path)
    write_fake(tmp_path, "good")
    assert movemask.load(models_dir=tmp_path).name == "good"


def test_documented_examples_run(shipped: TestClient, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    blocks = [block.split("```")[0] for block in page.split("```python\n")[1:]]
    names: dict[str, Any] = {"http": through(shipped)}
    for block, lines in zip(blocks, (3, 1, 3), strict=True):
        exec(block.replace('"http://127.0.0.1:8000"', "http=http"), names)
        assert len(capsys.readouterr().out.splitlines()) == lines


def test_logits_and_slots_give_the_policy(network: movemask.Network) -> None:
    board = chess.Board("r3k2r/1P6/8/8/8/8/6p1/R3K2R b KQkq - 0 1")
    logits = network.logits(board, elo=1500)
    assert logits.values.shape == logits.legal_mask.shape == (len(network.slot_moves),)
    assert logits.legal_mask.sum() == len(logits.slots) == len(logits.moves) == board.legal_moves.count()
    weights = np.exp(logits.values[logits.slots].astype(np.float64))
    policy = network.policy(board, elo=1500)
    assert dict(zip(logits.moves, weights / weights.sum(), strict=True)) == pytest.approx(policy.probabilities)
    names = {move.uci(): network.slot_moves[slot] for move, slot in zip(logits.moves, logits.slots, strict=True)}
    assert (names["g2g1q"], names["e8g8"], names["h8h7"]) == ("g7g8q", "e1h1", "h1h2")  # as Black sees them
    assert movemask.vocabulary(network.vocabulary) == network.slot_moves
    mated = network.logits(chess.Board("8/8/8/8/8/6k1/6q1/6K1 w - - 0 1"))
    assert not mated.moves
    assert not len(mated.slots)
    assert not mated.legal_mask.any()
    with pytest.raises(InvalidPosition):
        network.logits(chess.Board("8/8/8/8/8/8/8/8 w - - 0 1"))


def test_unknown_vocabulary_raises() -> None:
    with pytest.raises(ContractError, match="no vocabulary 'lc0-1859'; available: alphazero-4672, from-to-4096, "):
        movemask.vocabulary("lc0-1859")


HEAVY = {"movemask.server", "numpy", "onnxruntime", "fastapi", "sqlalchemy", "pydantic", "chess", "httpx2", "click"}


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("import movemask; dir(movemask)", set()),
        ("import movemask; movemask.Client; movemask.AsyncClient", {"pydantic", "chess", "httpx2"}),
    ],
)
def test_import_movemask_loads_few_modules(code: str, allowed: set[str]) -> None:
    program = f"{code}; import sys; print(*sorted({HEAVY!r} & set(sys.modules)))"
    output = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    assert set(output.split()) <= allowed


def test_public_names_are_documented() -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    for name in movemask.__all__:
        value = getattr(movemask, name)
        assert name == "__version__" or value.__doc__
        assert f"`{name}" in page
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        movemask.nothing  # noqa: B018


def test_planes_and_slots_are_those_of_the_service(network: movemask.Network, tmp_path: Path) -> None:
    contract = ModelFolders.chosen().files(None)[network.name]
    model = load_entry(contract, 1).model
    assert model is not None
    board = chess.Board()
    for move in ("e2e4", "e7e5", "g1f3"):
        board.push_uci(move)
    batch = model.whole_batch([Position(board)])
    (fed,) = (model.feeds(batch)[name] for name in [model.contract.inputs.planes])
    for planes in (
        movemask.planes(contract, board),
        movemask.planes(model.contract.terms.planes, chess.STARTING_FEN, ["e4", "e5", "Nf3"]),
        movemask.planes(model.contract.terms.planes, chess.Board(), ["e4", "e5", "Nf3"]),
    ):
        assert np.array_equal(planes, fed[0])
        assert planes.dtype == fed.dtype
    named = movemask.slots(model.vocabulary.name, board)
    assert named == movemask.slots(contract, board) == dict(zip(moves_of(batch.codes), batch.slots, strict=True))
    (tmp_path / "moves.txt").write_text("e7e8q\n\nb8c6\n")
    assert movemask.slots(tmp_path / "moves.txt", board, perspective="white") == {chess.Move.from_uci("b8c6"): 2}
    with pytest.raises(movemask.MovemaskError, match=r"moves: 'Nf4' is not legal in 'rnbq"):
        movemask.planes("lc0-112", board, ["Nf4"])

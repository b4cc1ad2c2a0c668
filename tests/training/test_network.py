"""The network: losses, runs, checkpoints, rounding and export."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training: torch is not installed (requirements/training.txt)")

from movemask.board.position import Position, boards_of
from movemask.encoding.movemask_planes import encode_tokens
from movemask.encoding.vocabularies import vocabulary
from movemask.network.registry import load_entry
from tests.training.test_data import csv_file, data_of, row
from tests.training.test_targets import made
from training import checkpoints, config, dataset, export, own_play, strength, train, validation
from training.batches import Batch, gathered, stream
from training.config import Run
from training.data import make_shards
from training.legal import legal_mask
from training.losses import outcome_loss, played_loss, rules_loss, taught_loss
from training.maia3 import Teacher
from training.network import PRODUCTS, Network
from training.onnx_file import feeds_of, write
from training.replay import replay
from training.rounding import held_ranges, hold, products, ranges
from training.shards import read_shard

SMALL = config.Network(width=32, layers=2, heads=2, hidden=48)


class SmallTeacher(Teacher):
    """Maia-3's shape with random weights, small: a stand-in for 22 MB that are not in the repository."""

    def __init__(self, *_: object, bfloat16: bool = False) -> None:
        torch.manual_seed(4)
        self.bfloat16 = bfloat16
        self.network = Network(replace(SMALL, layers=4, activation="gelu")).eval()
        torch.nn.init.normal_(self.network.biases)  # or all empty squares are alike to it


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("small")
    data = data_of(folder, csv_file(folder, [row(i) for i in range(1000, 1250)]))
    make_shards(data)
    teaching = config.Teaching(teacher=folder / "none.onnx", matched=(2, 4), apart=256)
    training = config.Training(positions=1024, batch=64, validate_positions=512)
    return Run(folder=folder / "run", data=data, network=SMALL, teaching=teaching, training=training)


@pytest.fixture(autouse=True)
def small_teacher(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (train, own_play):
        monkeypatch.setattr(module, "Teacher", SmallTeacher)


def batch_of(run: Run, count: int, *, bare: bool = False, teacher: Teacher | None = None) -> Batch:
    positions = dataset.load(run.data, "train")
    rows = np.random.default_rng(1).permutation(len(positions))[:count]
    return gathered(positions, rows, np.full(count, bare), teacher=teacher)


def trained(seed: int = 8) -> Network:
    """As if it had been trained: no norm is what it is at first, and the policy depends on the position."""
    torch.manual_seed(seed)
    network = Network(SMALL)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.3, 2.0)
            elif parameter.ndim == 2 and name != "biases":
                parameter *= 2
    network.eval()
    return network


def test_teaching_loss_of_teacher_is_zero(run: Run) -> None:
    batch = batch_of(run, 20, teacher=SmallTeacher())
    assert batch.lesson is not None
    noise = torch.randn_like(batch.lesson.logits) * 50
    same = torch.where(batch.legal, batch.lesson.logits + 3, noise)
    assert taught_loss(same, batch.lesson, batch.legal).item() == pytest.approx(0, abs=1e-5)
    uniform = torch.zeros_like(same)
    shares = [torch.softmax(row[legal], 0) for row, legal in zip(batch.lesson.logits, batch.legal, strict=True)]
    expected = np.mean([float((p * (p.log() + np.log(len(p)))).sum()) for p in shares])
    assert taught_loss(uniform, batch.lesson, batch.legal).item() == pytest.approx(expected, rel=1e-4)


def test_legality_loss_matches_cross_entropies() -> None:
    torch.manual_seed(4)
    logits = torch.randn(6, 1880, dtype=torch.float64)
    slot = torch.randint(0, 1880, (6,))
    legal = torch.rand(6, 1880) < 0.02
    legal[torch.arange(6), slot] = True
    over_all = torch.nn.functional.cross_entropy(logits, slot)
    assert rules_loss(logits, legal).item() == pytest.approx((over_all - played_loss(logits, slot, legal)).item())
    assert rules_loss(logits, torch.ones_like(legal)).item() == pytest.approx(0, abs=1e-12)


def test_ready_policies_have_their_share_of_batches(run: Run, tmp_path: Path) -> None:
    for shard in run.data.folder.glob("train-*.shard"):
        rows = replay(read_shard(shard))
        count = len(rows.slot)
        made(tmp_path, shard, [*range(count)], rows.slot.tolist(), [0.9] * count, [0.1] * count)
    taught = replace(run.teaching, targets=tmp_path, targets_share=0.5)
    mixed = replace(run, folder=run.folder.with_name("mixed"), teaching=taught)
    train.train(mixed)
    lines = [json.loads(line) for line in (mixed.folder / "log.jsonl").read_text().splitlines()]
    assert all(np.isfinite(line["states"]) and np.isfinite(line["value"]) for line in lines)
    training_set = dataset.load(run.data, "train")
    batches = stream(
        training_set,
        dataset.order(training_set, run.data, 1),
        0,
        64,
        0.5,
        "cpu",
        SmallTeacher(),
        train._ready(mixed, training_set),
    )
    without = [next(batches).lesson.states is None for _ in range(12)]  # type: ignore[union-attr]
    assert without == [False] * 4 + [False, True] * 4  # the first 256 positions are taught by states


def test_games_without_result_do_not_teach_value() -> None:
    value = torch.randn(4, 3)
    expected = -torch.log_softmax(value, 1)[[0, 2], [0, 2]].mean()
    assert outcome_loss(value, torch.tensor([0, -1, 2, -1])).item() == pytest.approx(expected.item(), rel=1e-6)
    assert outcome_loss(value, torch.full((4,), -1)).item() == 0


def test_ratings_and_game_reach_policy_and_value(run: Run) -> None:
    network, known, alone = trained(), batch_of(run, 8), batch_of(run, 8, bare=True)
    with torch.no_grad():
        answers = network(*known.inputs())
        for changed in (
            network(known.tokens, known.elo_self + 500, known.elo_opponent),
            network(known.tokens, known.elo_self, known.elo_opponent + 500),
            network(*alone.inputs()),
        ):
            for mine, other in zip(answers, changed, strict=True):
                assert not torch.allclose(mine, other)


def test_cool_and_lower_scale_logits_and_keep_value(run: Run) -> None:
    network, batch = trained(), batch_of(run, 4)
    with torch.no_grad():
        logits, value = network(*batch.inputs())
        network.cool(1.25)
        network.lower(3.0)
        cooled, same = network(*batch.inputs())
    torch.testing.assert_close(cooled, logits / 1.25 - 3, rtol=1e-4, atol=1e-4)
    assert torch.equal(same, value)


def test_truncated_checkpoint_leaves_earlier_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoints.save(tmp_path, {"step": 1, "network": {}})
    checkpoints.save(tmp_path, {"step": 2, "network": {}, "filler": torch.zeros(10_000)})
    last = tmp_path / checkpoints.LAST
    last.write_bytes(last.read_bytes()[:5000])
    (tmp_path / "checkpoint.part").write_bytes(b"half")
    assert checkpoints.load(tmp_path) == {"step": 1, "network": {}}
    assert "cannot be read" in capsys.readouterr().out


def test_interrupted_run_equals_uninterrupted_one(run: Run) -> None:
    parts = replace(run, folder=run.folder.with_name("parts"))
    train.train(run)
    train.train(parts, seconds=1e-3)
    middle = checkpoints.load(parts.folder)
    assert middle is not None
    train.train(parts)
    one, two = checkpoints.load(run.folder), checkpoints.load(parts.folder)
    assert one is not None
    assert two is not None
    assert one["step"] == two["step"] == 16
    assert middle["step"] < 16
    for name, weight in one["network"].items():
        torch.testing.assert_close(two["network"][name], weight, rtol=1e-2, atol=1e-3)


def test_other_run_starts_from_trunk(run: Run) -> None:
    """A stretch on a lent GPU: weights come back without the optimizers, and no position is seen twice."""
    first = replace(run, folder=run.folder.with_name("first"), training=replace(run.training, positions=512))
    train.train(first)
    other = replace(run, folder=run.folder.with_name("other"), training=replace(run.training, batch=32, positions=544))
    other.folder.mkdir()
    (other.folder / checkpoints.TRUNK).write_bytes((first.folder / checkpoints.TRUNK).read_bytes())
    before = checkpoints.load(other.folder)
    assert before is not None
    assert "optimizers" not in before
    assert checkpoints.seen(before) == 512
    train.train(other)
    after = checkpoints.load(other.folder)
    assert after is not None
    assert (after["step"], checkpoints.seen(after)) == (17, 544)  # one step more
    for name, weight in before["network"].items():
        torch.testing.assert_close(after["network"][name], weight.float(), rtol=0.05, atol=0.02)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_batches_do_not_depend_on_workers(run: Run) -> None:
    positions = dataset.load(run.data, "train")
    order = dataset.order(positions, run.data, run.seed)
    one, two = (stream(positions, order, 3, 32, 0.5, "cpu", SmallTeacher(), gatherers=count) for count in (0, 2))
    for _ in range(4):
        mine, theirs = next(one), next(two)
        for a, b in zip(
            (*mine.inputs(), mine.legal, mine.slot), (*theirs.inputs(), theirs.legal, theirs.slot), strict=True
        ):
            assert torch.equal(a, b)


def test_anneal_seconds_ends_early_with_lower_rates(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run = replace(run, folder=run.folder.with_name("timed"), training=replace(run.training, positions=10**7))
    train.train(run, anneal_seconds=1)
    assert "1 of 1 s, positions=" in capsys.readouterr().err  # not of the 10,000,000 positions of the run
    state = checkpoints.load(run.folder)
    assert state is not None
    assert 0 < state["step"] < 10**7 // 64
    assert max(_rates(state)) < run.training.learning_rate
    line = json.loads((run.folder / "log.jsonl").read_text().splitlines()[-1])
    assert line["with_game"]["cross_entropy"] != line["bare"]["cross_entropy"]


def test_anneal_survives_restart(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """An anneal over two stretches once ended the first at half of the rate and began the second at the whole."""
    settings = replace(run.training, positions=10**7, warm_up=1)
    start = replace(run, folder=run.folder.with_name("annealed"), training=replace(settings, positions=128))
    run = replace(start, training=settings)
    train.train(start)  # 2 steps before the anneal
    rates: list[Any] = []
    for seconds in (1e-3, 1e-3, inf):
        train.train(run, seconds, anneal=512 if not rates else None)  # a restart needs no flag
        state = checkpoints.load(run.folder)
        assert state is not None
        rates.append((state["step"], *{rate / run.training.learning_rate for rate in _rates(state)}))
    # The step that leaves step `n` behind had the rate of n - 1 steps: 8 steps of 64 positions from step 2 on.
    assert rates == [(3, pytest.approx(1)), (4, pytest.approx(7 / 8)), (10, pytest.approx(1 / 8))]
    assert "goes on with the anneal from 128 to 640 positions" in capsys.readouterr().out
    trunk = torch.load(run.folder / checkpoints.TRUNK, weights_only=True)
    assert "anneal" not in trunk, "another run starts at its whole rate"


def test_finished_anneal_gives_way_to_new_one(run: Run) -> None:
    """One whose end lay within a batch once kept every later one from starting."""
    settings = replace(run.training, positions=10**7)
    run = replace(run, folder=run.folder.with_name("annealed-twice"), training=settings)
    train.train(run, anneal=100)  # one batch of 64
    train.train(run, anneal=64)
    state = checkpoints.load(run.folder)
    assert state is not None
    assert state["step"] == 2


def _rates(state: dict[str, Any]) -> list[float]:
    return [group["lr"] for optimizer in state["optimizers"] for group in optimizer["param_groups"]]


def test_validation_compares_on_same_positions(run: Run) -> None:
    """One that is better by the same amount everywhere is better for certain, however much positions differ."""
    held_out = validation.held_out(run, SmallTeacher(), count=60)
    assert all(batch.lesson is not None and batch.lesson.states is None for batches in held_out for batch in batches)
    network = trained()
    scores = [validation.score(network, batches) for batches in held_out]
    with torch.no_grad():
        (batch,) = held_out[0]
        logits = network(*batch.inputs())[0]
    assert scores[0].cross_entropy.mean().item() == pytest.approx(
        played_loss(logits, batch.slot, batch.legal).item(), rel=1e-5
    )
    assert batch.lesson is not None
    assert scores[0].kl.mean().item() == pytest.approx(taught_loss(logits, batch.lesson, batch.legal).item(), rel=1e-5)
    better = [replace(one, cross_entropy=one.cross_entropy - 0.01) for one in scores]
    table, lowest = validation.compared({"old": scores, "new": better})
    assert lowest == "new"
    old, new = table.splitlines()[2:]
    assert old.endswith("| 0.0200 ± 0.0000 |")
    assert new.endswith("|  |")
    hits = scores[0].top1.numpy()
    assert f"{100 * hits.mean():.2f} ± {100 * hits.std(ddof=1) / len(hits) ** 0.5:.2f} %" in old


def test_batch_has_legal_slots_and_bare_half(run: Run) -> None:
    positions = dataset.load(run.data, "train")
    order = dataset.order(positions, run.data, run.seed)
    batch = next(stream(positions, order, 0, 32, 0.5, "cpu", SmallTeacher()))
    assert np.array_equal(batch.legal.numpy(), legal_mask(positions.bitboards[order[:32]]))
    assert batch.legal[torch.arange(32), batch.slot].all()
    newest = batch.tokens[:, :, 84:96].repeat(1, 1, 8)
    assert (batch.tokens[:, :, :96] == newest).all(2).all(1)[:16].all()
    assert not (batch.tokens[:, :, :96] == newest).all(2).all(1)[16:].all()


def test_exported_file_matches_torch(run: Run, tmp_path: Path) -> None:
    network, batch = trained(), batch_of(run, 40)
    floats, integers = tmp_path / "floats.onnx", tmp_path / "integers.onnx"
    write(network, floats)
    write(network, integers, ranges(network, [batch.inputs()]))
    feeds = feeds_of(batch)
    with torch.no_grad():
        logits, value = network(*batch.inputs())
    expected = (logits.numpy(), torch.softmax(value, 1).numpy())
    for file, tolerance in ((floats, 1e-4), (integers, 0.2)):
        outputs = export._session(file).run(["logits", "value"], feeds)
        for mine, theirs in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=tolerance * max(1, np.abs(theirs).max()), rtol=0)
    assert export._dependence(integers, feeds) == 0
    assert integers.stat().st_size < floats.stat().st_size / 2


def test_integers_match_rounded_network(run: Run, tmp_path: Path) -> None:
    """And the floats written beside them as the same network where only what goes in is not rounded."""
    network, batch = trained(), batch_of(run, 40)
    hold(network, ranges(network, [batch.inputs()], share=0.85))
    for rounds, integers in ((True, held_ranges(network)), (False, {})):
        for _, product in products(network):
            product.rounds = rounds
        with torch.no_grad():
            logits = network(*batch.inputs())[0].numpy()
        write(network, tmp_path / "net.onnx", integers)
        result = export._session(tmp_path / "net.onnx").run(["logits"], feeds_of(batch))[0]
        close = np.abs(result - logits).max(1) < 1e-4
        assert close.mean() > 0.5 if rounds else close.all()  # a value just between two steps may go either way


def test_rounded_run_resumes_with_same_ranges(run: Run) -> None:
    run = replace(run, folder=run.folder.with_name("rounded"), training=replace(run.training, positions=768))
    train.train(run, rounding=True)
    first = checkpoints.load(run.folder)
    run = replace(run, training=replace(run.training, positions=1024))
    train.train(run)
    second = checkpoints.load(run.folder)
    assert first is not None
    assert second is not None
    assert set(first["ranges"]) == {"tokens", "head", *(f"{i}.{n}" for i in "01" for n in PRODUCTS)}
    for name, one in first["ranges"].items():
        torch.testing.assert_close(second["ranges"][name]["spread"], one["spread"], rtol=0, atol=0)
        assert second["ranges"][name]["high"] == one["high"]


def test_exported_network_is_served(run: Run, tmp_path: Path) -> None:
    run = replace(run, folder=run.folder.with_name("exported"))
    run.folder.mkdir(exist_ok=True)
    checkpoints.save(run.folder, {"network": trained().state_dict(), "step": 100, "seconds": 7.0})
    export.export(run, tmp_path / "net", "a test", "to be tested")
    entry = load_entry(tmp_path / "net.toml", threads=1)
    assert entry.model is not None, entry.failure
    card = entry.model.contract.card
    assert card["positions_seen"] == 6400
    assert card["variant"]["weights"] in ("int8", "fp32")
    with np.load(run.folder / "net.sample.npz") as stored:
        inputs = {name: stored[name].astype(np.float32) for name in ("planes", "elo_self", "elo_opponent")}
        logits, _ = export._session(run.folder / "floats" / "net.onnx").run(["logits", "value"], inputs)
        np.testing.assert_allclose(logits, stored["logits"], atol=1e-3, rtol=0)


def test_own_games_of_teacher_are_trained_on(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strength, "LONGEST", 30)
    run = replace(run, data=replace(run.data, folder=tmp_path))
    file = own_play.own_play(run, games=3, number=7)
    shard = read_shard(file)
    assert set(np.digitize(shard.games["white_elo"], [600, 1100, 2100, 2600])) <= {1, 3}
    assert set(shard.games["plies"]) == {30}
    assert len(dataset.load(run.data, "train")) == 90


def test_castling_slots_match_teacher() -> None:
    names = vocabulary("movemask-1880").names()
    ours, theirs = names.index("e1h1"), names.index("e1g1")
    for fen, castles in (("4k3/8/8/8/8/8/8/4K2R w K - 0 1", True), ("3k4/8/8/8/8/8/8/K3R3 w - - 0 1", False)):
        position = Position.read(fen)
        legal = torch.zeros(1, 1880, dtype=torch.bool)
        legal[0, vocabulary("movemask-1880").legal_slots(position)[1]] = True
        assert legal[0, ours]
        tokens = torch.from_numpy(encode_tokens([position], boards_of([position])))
        logits = SmallTeacher().lesson(tokens, torch.tensor([1500.0]), torch.tensor([1500.0]), legal).logits[0]
        assert (logits[ours] == logits[theirs]) == castles

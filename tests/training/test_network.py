"""What a user would lose: planes as the service makes them, losses that are what they are called, runs that go on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import chess
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training: torch is not installed (requirements/training.txt)")

from movemask.board.position import Position
from movemask.encoding import movemask_planes
from tests.ground_truth import random_game
from tests.training.test_data import csv_file, data_of, row, shard_of
from training import checkpoints, config, dataset, train
from training.batches import gathered, planes_of, stream
from training.config import Run
from training.data import make_shards
from training.dataset import Order
from training.legal import legal_mask
from training.levelling import level
from training.losses import policy_loss, rules_loss, taught_loss, value_loss
from training.network import Network
from training.replay import replay
from training.start import begin_with


def test_the_device_expands_positions_to_the_services_planes() -> None:
    found = replay(shard_of([random_game(seed) for seed in range(3)]))
    assert (found.bitboards >> np.uint64(63)).any()  # the bit that a signed number has for its sign
    expected = movemask_planes.expand(found.bitboards, found.halfmove, found.black)
    planes = planes_of(
        torch.from_numpy(found.bitboards.view(np.int64)),
        torch.from_numpy(found.halfmove),
        torch.from_numpy(found.black),
    )
    assert np.array_equal(planes.numpy(), expected)


def test_plain_cross_entropy_is_the_masked_one_and_the_price_of_the_rules() -> None:
    torch.manual_seed(0)
    logits = torch.randn(50, 1880, dtype=torch.float64, requires_grad=True)
    found = replay(shard_of([random_game(5, 50)]))
    legal, slot = torch.from_numpy(legal_mask(found.bitboards)), torch.from_numpy(found.slot.astype(np.int64))
    plain = policy_loss(logits, slot, None)
    masked = policy_loss(logits, slot, legal, 0.0)
    share = (torch.softmax(logits, 1) * legal).sum(1)
    assert plain.item() == pytest.approx((masked - share.log().mean()).item(), rel=1e-12)
    halved = policy_loss(logits, slot, legal, 0.5)
    assert halved.item() == pytest.approx((plain.item() + masked.item()) / 2, rel=1e-12)
    (gradient,) = torch.autograd.grad(masked, logits)
    assert not gradient[~legal].any()
    assert gradient[legal].any()


def test_games_without_a_result_do_not_teach_the_value() -> None:
    value = torch.randn(4, 3, requires_grad=True)
    result = torch.tensor([0, -1, 2, -1])
    loss = value_loss(value, result)
    expected = -torch.log_softmax(value, 1)[[0, 2], [0, 2]].mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert value_loss(value, torch.full((4,), -1)).item() == 0


def test_the_ratings_reach_the_policy_and_the_value() -> None:
    torch.manual_seed(2)
    network = Network(config.Network(width=16, depth=1)).eval()
    board = movemask_planes.bitboards(Position(chess.Board()))[None]
    planes = torch.from_numpy(movemask_planes.expand(board, np.array([0]), np.array([False]))).repeat(3, 1, 1, 1)
    with torch.no_grad():
        logits, value = network(planes, torch.tensor([1100.0, 2200, 1100]), torch.tensor([1500.0, 1500, 2000]))
    assert logits.shape == (3, 1880)
    for answers in (logits, value):
        assert not torch.allclose(answers[0], answers[1])
        assert not torch.allclose(answers[0], answers[2])


def test_a_cooled_network_gives_its_logits_divided_and_the_same_value() -> None:
    torch.manual_seed(5)
    network = Network(config.Network(width=16, depth=1)).eval()
    planes, ratings = torch.rand(3, 24, 8, 8), torch.full((3,), 1500.0)
    with torch.no_grad():
        logits, value = network(planes, ratings, ratings)
        network.cool(1.25)
        cooled, same = network(planes, ratings, ratings)
    torch.testing.assert_close(cooled, logits / 1.25)
    assert torch.equal(same, value)


def known_network(width: int, depth: int) -> Network:
    """As if it had been trained: no norm is what it is at first."""
    torch.manual_seed(8)
    network = Network(config.Network(width=width, depth=depth))
    for norm in (module for module in network.modules() if isinstance(module, torch.nn.BatchNorm2d)):
        torch.nn.init.uniform_(norm.weight, 0.1, 3.0)
        torch.nn.init.normal_(norm.bias)
    network.eval()
    return network


@pytest.fixture
def inputs() -> tuple[Any, ...]:
    """The positions of a game, and ratings."""
    found = replay(shard_of([random_game(9, 60)]))
    halfmove, ratings = torch.from_numpy(found.halfmove), torch.linspace(800, 2500, 60)
    planes = planes_of(torch.from_numpy(found.bitboards.view(np.int64)), halfmove, torch.from_numpy(found.black))
    return planes, ratings, ratings


def test_a_levelled_network_gives_the_same_answers_and_its_channels_go_from_minus_1_to_1(
    inputs: tuple[Any, ...],
) -> None:
    network, given = known_network(16, 2), list[Any]()
    with torch.no_grad():
        before = network(*inputs)
        level(network, *inputs)
        network.body.blocks[1].second_norm.register_forward_hook(lambda _, __, output: given.append(output))
        after = network(*inputs)
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(given[0].amax((0, 2, 3)), torch.ones(16), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(given[0].amin((0, 2, 3)), -torch.ones(16), rtol=1e-3, atol=1e-3)


def test_a_checkpoint_cut_off_leaves_the_one_before_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoints.save(tmp_path, {"step": 1})
    checkpoints.save(tmp_path, {"step": 2, "filler": torch.zeros(10_000)})
    last = tmp_path / checkpoints.LAST
    last.write_bytes(last.read_bytes()[:5000])
    (tmp_path / "checkpoint.part").write_bytes(b"half")
    state = checkpoints.load(tmp_path)
    assert state == {"step": 1}
    assert "cannot be read" in capsys.readouterr().out


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("small")
    data = data_of(folder, csv_file(folder, [row(i) for i in range(1000, 1250)]), opening_share=1.0)
    make_shards(data)
    network = config.Network(width=32, depth=1)
    training = config.Training(positions=1024, batch=64, validate_positions=512, legality_weight=0.5)
    return Run(folder=folder / "run", data=data, network=network, training=training)


def test_a_run_in_two_sittings_is_the_run_in_one(run: Run) -> None:
    whole, parts = run, replace(run, folder=run.folder.with_name("parts"))
    train.train(whole)
    train.train(parts, seconds=0.2)
    middle = checkpoints.load(parts.folder)
    assert middle is not None
    train.train(parts)
    one, two = checkpoints.load(whole.folder), checkpoints.load(parts.folder)
    assert one is not None
    assert two is not None
    assert one["step"] == two["step"] == 16
    assert middle["step"] < 16
    for name, weight in one["network"].items():
        torch.testing.assert_close(two["network"][name], weight, rtol=1e-3, atol=1e-4)


def test_a_batch_has_the_legal_slots_of_its_first_positions_and_half_are_without_the_last_moves(run: Run) -> None:
    seen = dataset.load(run.data, "train", run.seed)
    order, kept = Order(len(seen), 64, run.seed), []
    for step, batch in enumerate(stream(seen, order, 0, 8, mask_processes=1, masked=0.25, bare=0.5)):
        whole = gathered(seen, order.indices(step))
        assert batch.legal is not None
        assert np.array_equal(batch.legal.numpy(), legal_mask(seen.positions.bitboards[order.indices(step)[:16]]))
        assert torch.equal(batch.bitboards[:, :15], whole.bitboards[:, :15])
        left = (batch.bitboards[:, 15:] != 0).any(1)
        assert torch.equal(batch.bitboards[left], whole.bitboards[left])
        kept.append(left.sum() / (whole.bitboards[:, 15:] != 0).any(1).sum())
    assert 0.4 < np.mean(kept) < 0.6


def test_a_taught_loss_is_the_cross_entropy_to_the_mixture_over_all_slots() -> None:
    torch.manual_seed(3)
    logits = torch.randn(6, 1880, dtype=torch.float64)
    slots = torch.stack([torch.randperm(1880)[:5] for _ in range(6)])
    weights = torch.softmax(torch.randn(6, 5, dtype=torch.float64), 1)
    played, share = torch.randint(0, 1880, (6,)), 0.7
    mixture = torch.zeros(6, 1880, dtype=torch.float64).scatter_add_(1, slots, weights) * share
    mixture[torch.arange(6), played] += 1 - share
    expected = -(mixture * torch.log_softmax(logits, 1)).sum(1).mean()
    assert taught_loss(logits, played, slots, weights, share).item() == pytest.approx(expected.item(), rel=1e-12)


def test_the_loss_of_the_rules_is_what_cross_entropy_over_all_slots_has_beyond_that_over_the_legal_ones() -> None:
    torch.manual_seed(4)
    logits = torch.randn(6, 1880, dtype=torch.float64)
    slot = torch.randint(0, 1880, (6,))
    legal = torch.rand(6, 1880) < 0.02
    legal[torch.arange(6), slot] = True
    beyond = policy_loss(logits, slot, None) - policy_loss(logits, slot, legal, 0)
    assert rules_loss(logits, legal).item() == pytest.approx(beyond.item(), rel=1e-12)
    assert rules_loss(logits, torch.ones_like(legal)).item() == pytest.approx(0, abs=1e-12)


def test_a_larger_network_begins_with_the_answers_of_the_one_it_starts_from(
    inputs: tuple[Any, ...], tmp_path: Path
) -> None:
    older = known_network(32, 1)
    checkpoints.save(tmp_path, {"network": older.state_dict()})
    file = tmp_path / checkpoints.LAST
    for width, depth in ((32, 1), (32, 3), (48, 2)):
        larger = Network(config.Network(width=width, depth=depth))
        begin_with(larger, file)
        with torch.no_grad():
            for mine, its in zip(larger.eval()(*inputs), older(*inputs), strict=True):
                torch.testing.assert_close(mine, its, rtol=1e-4, atol=1e-4)
        larger.train()(*inputs)[0].logsumexp(1).sum().backward()
        assert all(parameter.grad.abs().max() > 0 for parameter in larger.body.blocks[-1].second_norm.parameters())
    with pytest.raises(SystemExit, match="more than the run's network"):
        begin_with(Network(config.Network(width=16, depth=1)), file)


def test_a_run_that_is_told_to_anneal_ends_early_with_its_rates_lowered(run: Run) -> None:
    run = replace(run, folder=run.folder.with_name("annealed"), training=replace(run.training, positions=10**7))
    train.train(run, anneal=1)
    annealed = checkpoints.load(run.folder)
    assert annealed is not None
    assert 0 < annealed["step"] < 10**7 // 64
    assert all(group["lr"] < group["peak"] for one in annealed["optimizers"] for group in one["param_groups"])
    line = json.loads((run.folder / "log.jsonl").read_text().splitlines()[-1])
    assert line["with_moves"]["cross_entropy"] != line["cross_entropy"]

"""What a user would lose: a judgement by the right figures, on positions of its own, and a card that says the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import chess
import chess.pgn
import numpy as np
import pytest
import zstandard
from numpy.typing import NDArray

from movemask.board.position import Elo, Position
from movemask.cli.models import quantisation_table
from movemask.errors import SourceError
from movemask.network.model import Model
from movemask.quantisation import positions
from movemask.quantisation.comparison import Apart, Comparison, Judgement, Limits, Speed
from movemask.quantisation.positions import Known, Sets, sets
from movemask.quantisation.run import Quantised, contract_of, weights_for
from tests.ground_truth import random_game
from tests.networks import FixedSession, contract, fake_model, fixed_model

#: Two legal moves each, all different.
FENS = tuple(f"7k/8/8/8/8/8/7r/{rank} w - - 0 1" for rank in ("2K5", "3K4", "4K3"))


def slots(model: Model, fen: str) -> tuple[list[chess.Move], NDArray[np.intp]]:
    moves, found = model.vocabulary.legal_slots(Position.read(fen))
    return list(moves), found


def test_every_figure_is_what_its_name_says() -> None:
    fen = "7k/8/8/8/8/8/r7/7K w - - 0 1"  # Kg1 alone
    two = "7k/8/8/8/8/8/8/r5BK w - - 0 1"
    model = fake_model()
    moves, place = slots(model, two)
    assert len(moves) >= 2
    before, after = np.full(1880, -2.0, dtype=np.float32), np.full(1880, -2.0, dtype=np.float32)
    before[place], after[place] = -5.0, -5.0
    before[place[:2]], after[place[:2]] = [1.0, 0.5], [0.4, 0.6]
    known = [
        Known(Position.read(two), None, {moves[0]: 3, moves[1]: 1}),
        Known(Position.read(fen), None, {}),
    ]
    model = fixed_model(before)
    found = Comparison(model, known).judged(FixedSession(contract(), after))

    def policy(logits: NDArray[np.float32], legal: NDArray[np.intp]) -> NDArray[np.float64]:
        weights = np.exp(logits[legal].astype(np.float64))
        return np.asarray(weights / weights.sum())

    p, q = policy(before, place), policy(after, place)
    assert found.positions == 2
    assert found.kl == pytest.approx((p * np.log(p / q)).sum() / 2)
    assert found.flips == 0.5
    assert found.clear == 2  # 0.62 against 0.38, and a move without an alternative
    assert found.clear_flips == 0.5
    assert found.largest == pytest.approx(np.abs(p - q).max())
    assert found.played == 1
    assert (found.accuracy_before, found.accuracy_after) == (0.75, 0.25)
    all_weights = np.exp(before.astype(np.float64))
    legals = [place, slots(model, fen)[1]]
    raw = np.mean([1 - all_weights[legal].sum() / all_weights.sum() for legal in legals])
    assert found.raw_before == pytest.approx(raw)
    assert found.raw_after != found.raw_before
    assert found.value is None
    assert found.accuracy_error == 0  # of one position
    assert found.excess(Limits()) == (
        f"mean KL {found.kl:.4f}, limit 0.005",
        "top-move flips 50.00%, limit 5.00%",
        "flips of first moves that led by 0.1 50.00%, limit 0.50%",
        "human-move accuracy 50.00 points lower, limit 0.3",
    )


def test_the_error_of_a_lost_accuracy_is_that_of_paired_differences() -> None:
    """Of three positions with two moves each, one flips away from the move that was played."""
    before = np.zeros(1880, dtype=np.float32)
    known, flipped = [], before.copy()
    for number, fen in enumerate(FENS):
        moves, place = slots(fake_model(), fen)
        before[place[0]] = 1.0
        flipped[place] = [0.0, 1.0] if number == 0 else [1.0, 0.0]
        known.append(Known(Position.read(fen), None, {moves[0]: 1}))
    found = Comparison(fixed_model(before), known).judged(FixedSession(contract(), flipped))
    assert found.accuracy_before == 1
    assert found.accuracy_after == pytest.approx(2 / 3)
    assert found.accuracy_error == pytest.approx(np.std([-1, 0, 0]) / np.sqrt(3))


def test_the_same_network_is_within_all_limits() -> None:
    model = fake_model()
    known = [Known(Position.read(), None, {chess.Move.from_uci("e2e4"): 1})]
    found = Comparison(model, known).judged(model.session)
    assert (found.kl, found.flips, found.largest) == (0, 0, 0)
    assert found.accuracy_before == found.accuracy_after
    assert found.excess(Limits()) == ()
    unknown = Comparison(model, [Known(Position.read(), None, {})]).judged(model.session)
    assert unknown.accuracy_before is None  # nobody is known to have played a move
    assert unknown.excess(Limits()) == ()


def within() -> Judgement:
    return Judgement(1000, 800, 0.005, 0.05, 0.005, 0.9, 1000, 0.5, 0.497, 0.1, 0.1, 0.9, 0.5)


@pytest.mark.parametrize(
    "past",
    [{"kl": 0.00501}, {"flips": 0.0501}, {"clear_flips": 0.0051}, {"accuracy_after": 0.4969}, {"kl": float("nan")}],
)
def test_each_limit_is_kept_and_no_other_figure_is_one(past: dict[str, float]) -> None:
    assert within().excess(Limits()) == ()
    assert len(replace(within(), **past).excess(Limits())) == 1  # type: ignore[arg-type]


def games(number: int, plies: int = 40) -> tuple[str, list[set[str]]]:
    """Games of random moves, and the positions of each."""
    texts, keys = [], []
    for seed in range(number):
        board, found = chess.Board(), set()
        for move in random_game(seed, plies):
            found.add(" ".join(board.fen(en_passant="fen").split()[:4]))
            board.push(move)
        game = chess.pgn.Game.from_board(board)
        game.headers["WhiteElo"], game.headers["BlackElo"] = "1500", "1600"
        texts.append(str(game))
        keys.append(found)
    return "\n\n".join(texts), keys


def test_the_sets_share_no_position_and_no_game(tmp_path: Path) -> None:
    text, keys = games(40)
    file = tmp_path / "games.pgn.zst"
    file.write_bytes(zstandard.ZstdCompressor().compress(text.encode()))
    found = sets(fake_model(), [str(file)])
    parts = [found.calibration, found.search, found.judged]
    shared = set.union(*(first & second for i, first in enumerate(keys) for second in keys[i + 1 :]))  # openings
    seen: list[set[str]] = [{known.key for known in part} for part in parts]
    of_games = [{i for i, game in enumerate(keys) if (part - shared) & game} for part in seen]
    for i in range(3):
        assert len(seen[i]) == len(parts[i])
        assert of_games[i]
        for j in range(i):
            assert not seen[i] & seen[j]
            assert not of_games[i] & of_games[j]
    assert all(len(known.played) == 1 for part in parts for known in part)
    assert {known.elo for known in found.judged} == {Elo(1500, 1600), Elo(1600, 1500)}
    again = sets(fake_model(), [str(file)])
    assert [known.key for known in again.judged] == [known.key for known in found.judged]


def test_lists_of_positions_are_read_and_what_cannot_be_is_counted(tmp_path: Path) -> None:
    _, keys = games(30)
    lines = sorted(set.union(*keys))
    (tmp_path / "some.epd").write_text("\n".join([*lines, "no position", "7k/5KQ1/8/8/8/8/8/8 b - -"]))
    found = sets(fake_model(), [str(tmp_path / "some.epd")])
    parts = [found.calibration, found.search, found.judged]
    assert {known.key for part in parts for known in part} == set(lines)
    assert sum(map(len, parts)) == len(lines)
    assert all(known.played == {} for part in parts for known in part)
    assert sum(found.skipped.reasons.values()) == 2


def test_too_few_positions_are_refused_by_their_source(tmp_path: Path) -> None:
    (tmp_path / "few.fen").write_text("\n".join(FENS))
    with pytest.raises(SourceError, match=r"few\.fen: 1 positions to calibrate on are too few, at least 64 are needed"):
        sets(fake_model(), [str(tmp_path / "few.fen")])


def test_the_probes_are_taken_without_files() -> None:
    found = sets(fake_model(), [])
    assert len(found.judged) > 1500
    assert len(found.calibration) >= positions.LEAST_CALIBRATION
    assert found.source == "the shipped probes (probes.jsonl.gz)"


@pytest.mark.parametrize(
    ("flags", "asked", "bits", "said"),
    [
        ("flags\t\t: fpu avx2 avx512_vnni", None, 8, "8 bits: this processor has VNNI (avx512_vnni)"),
        ("flags\t\t: fpu avx2 avx_vnni", None, 8, "8 bits: this processor has VNNI (avx_vnni)"),
        ("Features\t: fp asimd asimddp", None, 8, "8 bits: this processor has Arm's dot product (asimddp)"),
        ("flags\t\t: fpu avx2", None, 7, "7 bits: this processor has no VNNI, and signed products of "),
        ("flags\t\t: fpu avx2", 8, 8, "8 bits, as asked: this processor has no VNNI, and signed products of "),
        ("flags\t\t: avx_vnni", 7, 7, "7 bits, as asked: this processor has VNNI (avx_vnni)"),
    ],
)
def test_eight_bits_are_for_processors_that_do_not_saturate(
    tmp_path: Path, flags: str, asked: int | None, bits: int, said: str
) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nvendor_id\t: x\n{flags}\n")
    found = weights_for(asked, tmp_path / "cpuinfo")
    assert found.bits == bits
    assert found.reason.startswith(said)
    unknown = weights_for(cpuinfo=tmp_path / "none")
    assert unknown.bits == 7
    assert "cannot be read" in unknown.reason


SWEPT = Apart(200, 0.01, 0.001)


@pytest.mark.parametrize("ratio", [1.3252, 1.32499, 1.005])
def test_the_speed_is_rounded_once(tmp_path: Path, ratio: float) -> None:
    judgement = Judgement(1000, 800, 0.004, 0.04, 0.004, 0.9, 0, None, None, None, 0.1, 0.1, None)
    result = Quantised(b"", judgement, None, SWEPT, Speed(100.0, 75.46, ratio), ("a",), (), 64)
    (tmp_path / "n.toml").write_text("")
    known = Sets([], [], [], "games")
    card = contract_of(tmp_path / "n.toml", "sha256:0", result, known, weights_for(7), Limits())["card"]
    shown = replace(result.speed, ratio=card["quantised"]["speed"]["ratio"])
    assert quantisation_table(result, Limits()) == quantisation_table(replace(result, speed=shown), Limits())


def test_a_network_that_is_past_a_limit_from_bare_fens_alone_is_refused() -> None:
    """maia-1300 lost 0.43 points of human moves from bare FENs, and gained 0.08 with the games before them."""
    good = Judgement(1000, 800, 0.004, 0.04, 0.004, 0.9, 1000, 0.5, 0.5008, 0.001, 0.1, 0.1, None)
    bare = replace(good, accuracy_after=0.4957)
    result = Quantised(b"", good, bare, SWEPT, Speed(100.0, 70.0, 1.43), ("a",), (), 64)
    assert result.excess(Limits()) == ("from bare FENs: human-move accuracy 0.43 points lower, limit 0.3",)
    assert "0.43" not in quantisation_table(replace(result, bare=None), Limits())

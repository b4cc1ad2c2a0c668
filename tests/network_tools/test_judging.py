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
from movemask.errors import SourceError
from movemask.network.model import Model
from movemask.network_tools.diagnosis import Played
from movemask.network_tools.judging import FIGURES, Judgement, Mean, Sets, Speed, differences, sets
from movemask.network_tools.quantising import Quantised, weights_for
from tests.ground_truth import random_game
from tests.networks import FixedSession, contract, fake_model, fixed_model

#: Two legal moves each, all different.
FENS = tuple(f"7k/8/8/8/8/8/7r/{rank} w - - 0 1" for rank in ("2K5", "3K4", "4K3"))


def slots(model: Model, fen: str) -> tuple[list[chess.Move], NDArray[np.intp]]:
    moves, found = model.vocabulary.legal_slots(Position.read(fen))
    return list(moves), found


def judgement(model: Model, other: FixedSession, known: list[Played]) -> Judgement:
    return Judgement.of(differences(model, replace(model, session=other), known))


def test_every_figure_is_what_its_name_says() -> None:
    fen = "7k/8/8/8/8/8/r7/7K w - - 0 1"  # Kg1 alone
    two = "7k/8/8/8/8/8/8/r5BK w - - 0 1"
    moves, place = slots(fake_model(), two)
    assert len(moves) >= 2
    before, after = np.full(1880, -2.0, dtype=np.float32), np.full(1880, -2.0, dtype=np.float32)
    before[place], after[place] = -5.0, -5.0
    before[place[:2]], after[place[:2]] = [1.0, 0.5], [0.4, 0.6]
    known = [Played(Position.read(two), None, {moves[0]: 3, moves[1]: 1}), Played(Position.read(fen), None, {})]
    model = fixed_model(before)
    found = judgement(model, FixedSession(contract(), after), known)

    def policy(logits: NDArray[np.float32], legal: NDArray[np.intp]) -> NDArray[np.float64]:
        weights = np.exp(logits[legal].astype(np.float64))
        return np.asarray(weights / weights.sum())

    p, q = policy(before, place), policy(after, place)
    kl = (p * np.log(p / q)).sum()
    all_weights = np.exp(before.astype(np.float64))
    legals = [place, slots(model, fen)[1]]
    raw = np.mean([1 - all_weights[legal].sum() / all_weights.sum() for legal in legals])
    assert found.positions == 2
    assert found.largest == pytest.approx(np.abs(p - q).max())
    values = {name: mean.value for name, mean in found.means.items()}
    assert values.pop("raw_change") != 0
    assert values == pytest.approx(
        {
            "kl": kl / 2,
            "flips": 0.5,
            "clear_flips": 0.5,  # 0.62 against 0.38, and a move without an alternative
            "lost": 0.75 * np.log(p[0] / q[0]) + 0.25 * np.log(p[1] / q[1]),
            "accuracy": 0.75,
            "accuracy_change": -0.5,
            "raw": raw,
        }
    )
    assert found.means["kl"].error == pytest.approx(np.std([kl, 0]) / np.sqrt(2))
    assert found.means["lost"].positions == 1


def test_the_error_of_human_moves_is_that_of_paired_differences() -> None:
    """Of three positions with two moves each, one flips away from the move that was played."""
    before = np.zeros(1880, dtype=np.float32)
    known, flipped = [], before.copy()
    for number, fen in enumerate(FENS):
        moves, place = slots(fake_model(), fen)
        before[place[0]] = 1.0
        flipped[place] = [0.0, 1.0] if number == 0 else [1.0, 0.0]
        known.append(Played(Position.read(fen), None, {moves[0]: 1}))
    found = judgement(fixed_model(before), FixedSession(contract(), flipped), known)
    change, lost = found.means["accuracy_change"], found.means["lost"]
    assert (change.value, change.error) == pytest.approx((-1 / 3, np.std([-1, 0, 0]) / np.sqrt(3)))
    assert (lost.value, lost.error) == pytest.approx((1 / 3, np.std([1, 0, 0]) / np.sqrt(3)))


KNOWN = Sets([], [Played(Position.read(), None, {})] * 1000, "games", 300)


def verdict(value: float, error: float, name: str = "lost", ratio: float = 2.0) -> tuple[list[str], list[str]]:
    """Why a network is refused, and what is said of one that is not."""
    judged = Judgement(1000, 0.9, {name: Mean(value, error, 1000)})
    result = Quantised(b"", ["a"], [], {"from bare FENs: ": judged}, None, Speed(100.0, 50.0, ratio))
    return result.excess(), result.unsure(KNOWN)


def test_a_network_is_refused_only_for_what_chance_does_not_explain() -> None:
    """A loss of 0.33 points, 0.03 above the limit with a standard error of 0.22, was refused."""
    text = "from bare FENs: human moves' cross-entropy, rise in nats"
    assert verdict(0.0049, 0.001) == ([], [])
    refused, unsure = verdict(0.0071, 0.001)
    assert (refused, unsure) == ([f"{text} 0.0071 ± 0.0010, limit 0.0050"], [])
    refused, unsure = verdict(0.0055, 0.001)
    assert refused == []
    assert unsure == [  # (2 x 0.001 / 0.0005) ** 2 = 16 times the games
        f"{text} 0.0055 ± 0.0010, limit 0.0050: chance could explain that; about 4,800 games or lines would tell"
    ]
    assert verdict(0.0051, 0.001)[1][0].endswith("but no more than 65,536 positions are judged")


@pytest.mark.parametrize("name", ["kl", "flips", "clear_flips", "lost"])
@pytest.mark.parametrize("error", [0.0, float("nan")])
def test_each_limit_is_kept_and_no_other_figure_is_one(name: str, error: float) -> None:
    limit = FIGURES[name][2]
    assert limit is not None
    value = limit * 1.01 if error == 0 else float("inf")
    assert verdict(limit, 0.0, name)[0] == []
    assert len(verdict(value, error, name)[0]) == 1
    assert [verdict(9.0, 0.0, other) for other, (_, _, its) in FIGURES.items() if its is None] == [([], [])] * 5
    assert verdict(0.0, 0.0, name, ratio=0.98)[0] == ["no faster: 0.98 times the speed"]


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
    parts = [found.calibration, found.judged]
    shared = set.union(*(first & second for i, first in enumerate(keys) for second in keys[i + 1 :]))  # openings
    seen: list[set[str]] = [{known.key for known in part} for part in parts]
    of_games = [{i for i, game in enumerate(keys) if (part - shared) & game} for part in seen]
    for i in range(2):
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
    parts = [found.calibration, found.judged]
    assert {known.key for part in parts for known in part} == set(lines)
    assert sum(map(len, parts)) == len(lines)
    assert all(known.played == {} for part in parts for known in part)
    assert sum(found.skipped.reasons.values()) == 2


def test_too_few_positions_are_refused_by_their_source(tmp_path: Path) -> None:
    (tmp_path / "few.fen").write_text("\n".join(FENS))
    with pytest.raises(SourceError, match=r"few\.fen: 1 positions to calibrate on are too few, at least 64 are needed"):
        sets(fake_model(), [str(tmp_path / "few.fen")])


@pytest.mark.parametrize(
    ("flags", "asked", "bits", "said"),
    [
        ("flags\t\t: fpu avx2 avx512_vnni", None, 8, "8 bits: VNNI (avx512_vnni)"),
        ("flags\t\t: fpu avx2 avx_vnni", None, 8, "8 bits: VNNI (avx_vnni)"),
        ("Features\t: fp asimd asimddp", None, 8, "8 bits: Arm's dot product (asimddp)"),
        ("flags\t\t: fpu avx2", None, 7, "7 bits: no VNNI in PROC, and products of 8 bits saturate without it"),
        ("flags\t\t: fpu avx2", 8, 8, "8 bits, as asked: no VNNI in PROC, and products of 8 bits saturate without it"),
        ("flags\t\t: avx_vnni", 7, 7, "7 bits, as asked: VNNI (avx_vnni)"),
    ],
)
def test_eight_bits_are_for_processors_that_do_not_saturate(
    tmp_path: Path, flags: str, asked: int | None, bits: int, said: str
) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nvendor_id\t: x\n{flags}\n")
    assert weights_for(asked, tmp_path / "cpuinfo") == (bits, said.replace("PROC", str(tmp_path / "cpuinfo")))
    assert weights_for(cpuinfo=tmp_path / "none")[0] == 7

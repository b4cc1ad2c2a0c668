"""Games to shards to positions, against python-chess."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import chess
import chess.pgn
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from movemask.board.position import Position, boards_of
from movemask.encoding.encoders import plane_encoder
from movemask.encoding.movemask_planes import bitboards
from movemask.encoding.vocabularies import vocabulary
from tests.ground_truth import DATA, random_game
from training import dataset
from training.config import Data, load_run
from training.data import PROGRESS, make_shards
from training.games import Game, Unwanted, parse, records
from training.legal import board_of, legal_mask
from training.replay import replay
from training.shards import GAME, LONGEST, Shard, ShardError, pack, read_shard, write_shard

SOURCE = "lichess:benwheeler12/ChessAuto"


def shard_of(games: list[list[chess.Move]]) -> Shard:
    packed = [pack(Game(1500, 1600, "lichess", "1-0", SOURCE, moves)) for moves in games]
    return Shard(np.array([row for row, _ in packed], dtype=GAME), np.concatenate([plies for _, plies in packed]))


@settings(max_examples=5, deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=3))
def test_replay_matches_python_chess(seeds: list[int]) -> None:
    games = [random_game(seed) for seed in seeds]
    replayed = replay(shard_of(games))
    rows = {(int(game), int(ply)): row for row, (game, ply) in enumerate(zip(replayed.game, replayed.ply, strict=True))}
    assert len(rows) == sum(len(moves) for moves in games)
    slots = vocabulary("movemask-1880")
    for number, moves in enumerate(games):
        board = chess.Board()
        for ply, move in enumerate(moves):
            row, position = rows[number, ply], Position(board.copy(stack=False))
            expected = bitboards([position], boards_of([position]))[0]
            assert np.array_equal(replayed.bitboards[row], expected), board.fen()
            assert replayed.black[row] == (board.turn == chess.BLACK)
            assert slots.move(int(replayed.slot[row]), board) == move
            board.push(move)


def test_packed_positions_have_legal_moves() -> None:
    moves = random_game(7)
    replayed = replay(shard_of([moves]))
    mask = legal_mask(replayed.bitboards)
    board = chess.Board()
    slots = vocabulary("movemask-1880")
    for row, move in enumerate(moves):
        expected = sorted(slots.slot(legal, board) for legal in board.legal_moves)
        assert np.flatnonzero(mask[row]).tolist() == expected
        assert board_of(replayed.bitboards[row]).turn == chess.WHITE
        board.push(move)


def test_long_game_is_cut() -> None:
    board = chess.Board()
    for uci in ("g1f3", "g8f6", "f3g1", "f6g8") * (LONGEST // 4 + 5):
        board.push_uci(uci)
    row, plies = pack(Game(1, 2, "lichess", "1/2-1/2", SOURCE, list(board.move_stack)))
    assert row[-1] == len(plies) == LONGEST


Damage = Callable[[bytes], bytes]


def flipped(whole: bytes) -> bytes:
    """One bit is another."""
    middle = len(whole) // 2
    return whole[:middle] + bytes([whole[middle] ^ 0x10]) + whole[middle + 1 :]


#: What may have become of a file: cut off, one bit changed, another file, an empty one.
DAMAGES: list[Damage] = [lambda whole: whole[: len(whole) // 2], flipped, lambda whole: b"hello", lambda whole: b""]


@pytest.mark.parametrize("damage", DAMAGES)
def test_corrupt_shard_raises(damage: Damage, tmp_path: Path) -> None:
    row, plies = pack(Game(1, 2, "lichess", "1-0", SOURCE, random_game(1)))
    file = tmp_path / "train-00003.shard"
    write_shard(file, [row], [plies])
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ShardError, match=r"train-00003\.shard"):
        read_shard(file)


def csv_file(folder: Path, rows: list[dict[str, str]], name: str = "games.csv.zst") -> Path:
    columns = [*row(0), "rated", "date"]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="")
    writer.writeheader()
    writer.writerows(rows)
    file = folder / name
    raw = text.getvalue().encode()
    half = len(raw) // 2  # two frames, as the files are
    compress = zstandard.ZstdCompressor().compress
    file.write_bytes(compress(raw[:half]) + compress(raw[half:]))
    return file


def row(number: int, **changed: str) -> dict[str, str]:
    moves = " ".join(move.uci() for move in random_game(number, 30))
    usual = {"white_elo": "1500", "black_elo": "1610", "time_control": "600+0", "result": "1-0", "source": SOURCE}
    return {**usual, "rating_system": "lichess", "moves": moves, **changed}


def data_of(folder: Path, *files: Path, **changed: object) -> Data:
    return Data(folder=folder / "shards", games=files, games_per_shard=16, processes=1, **changed)  # type: ignore[arg-type]


def test_every_game_is_in_shard_or_counted(tmp_path: Path) -> None:
    rows = [row(i) for i in range(40)]
    rows[3] = row(3, moves="e2e4 e7e5 e1e8")
    rows[5] = row(5, white_elo="")
    rows[7] = row(7, source="elsewhere:x")
    rows[9] = row(9, time_control="60+0")
    rows[11] = row(11, moves="")
    rows[13] = row(13, moves="e2e4 hello")
    rows[15] = row(15, rating_system="uscf")
    data = data_of(tmp_path, csv_file(tmp_path, rows))
    counts = make_shards(data)
    assert counts["left out: illegal move"] == 2
    for reason in ("no ratings", "source of another licence", "too fast", "no moves", "unknown rating system"):
        assert counts[f"left out: {reason}"] == 1
    assert sum(counts[f"{split} games"] for split in ("train", "validation", "test")) == 33
    assert sum(count for name, count in counts.items() if not name.endswith("plies")) == 40
    plies = [read_shard(file).plies for file in data.folder.glob("*.shard")]
    assert sum(map(len, plies)) == sum(count for name, count in counts.items() if name.endswith("plies"))


def test_killed_run_resumes_to_same_shards(tmp_path: Path) -> None:
    file = csv_file(tmp_path, [row(i) for i in range(70)])
    whole, cut = data_of(tmp_path / "whole", file), data_of(tmp_path / "cut", file)
    expected = make_shards(whole)
    make_shards(cut, limit=32)
    (cut.folder / "train-00002.shard").write_bytes(b"half of a shard")
    (cut.folder / "train-00003.part").write_bytes(b"half of a shard")
    assert make_shards(cut) == expected
    for shard in whole.folder.glob("*.shard"):
        assert (cut.folder / shard.name).read_bytes() == shard.read_bytes()
    assert json.loads((cut.folder / PROGRESS).read_text())["records"] == 70


def test_shards_of_other_games_raise(tmp_path: Path) -> None:
    make_shards(data_of(tmp_path, csv_file(tmp_path, [row(1)])))
    other = data_of(tmp_path, csv_file(tmp_path, [row(i) for i in range(9)], "other.csv.zst"))
    with pytest.raises(SystemExit, match="name another"):
        make_shards(other)


def pgn(number: int, **headers: str) -> str:
    game = chess.pgn.Game()
    game.add_line(random_game(number, 20))
    usual = {"Site": "https://lichess.org/x", "WhiteElo": "1500", "BlackElo": "1600", "TimeControl": "600+0"}
    game.headers.update({**usual, **headers})
    return str(game)


def test_lichess_pgn_is_read(tmp_path: Path) -> None:
    good = pgn(1).replace(" e4", " e4 { [%eval 0.17] [%clk 0:10:00] }")
    texts = {
        good: None,
        pgn(2, Variant="Atomic"): "variant or a starting position of its own",
        '[FEN "8/8/8/8/8/8/4K3/4k3 w - - 0 1"]\n[SetUp "1"]\n' + pgn(3): "variant or a starting position of its own",
        pgn(4, WhiteElo="?"): "no ratings",
        pgn(5, WhiteTitle="BOT"): "a bot's game",
        pgn(6, TimeControl="60+0"): "too fast",
        pgn(7).replace("1. ", "1. Qh5 "): "illegal move",
        pgn(8, TimeControl="-"): None,
    }
    file = tmp_path / "lichess.pgn.zst"
    file.write_bytes(zstandard.ZstdCompressor().compress("\n\n".join(texts).encode()))
    games = list(records(file))
    assert len(games) == len(texts)
    data = Data()
    for record, reason in zip(games, texts.values(), strict=True):
        if reason is None:
            game = parse(record, data)
            assert (game.white_elo, game.black_elo) == (1500, 1600)
            assert game.moves
        else:
            with pytest.raises(Unwanted, match=reason):
                parse(record, data)


def test_dataset_perspective_and_corrupt_games(tmp_path: Path) -> None:
    data = data_of(tmp_path, csv_file(tmp_path, [row(i, rating_system="fide") for i in range(60)]))
    make_shards(data)
    (data.folder / "train-00001.shard").write_bytes(b"gone")
    loaded = dataset.load(data, "train")
    assert len(loaded.skipped) == 1
    assert set(loaded.ply) == set(range(30))
    black = loaded.ply % 2 == 1
    assert set(loaded.elo_self[black]) == {1860}  # 1610 brought from FIDE's scale to lichess's
    assert set(loaded.elo_self[~black]) == {1750}
    assert set(loaded.result[~black]) == {0}
    assert set(loaded.result[black]) == {2}


def test_planes_match_service(tmp_path: Path) -> None:
    with open(DATA / "evaluated.pgn") as pgn_file:
        games = [list(game.mainline_moves()) for game in iter(lambda: chess.pgn.read_game(pgn_file), None)]
    games += [random_game(seed) for seed in range(20)]
    rows = [row(number, moves=" ".join(move.uci() for move in moves)) for number, moves in enumerate(games)]
    data = data_of(tmp_path, csv_file(tmp_path, rows))
    make_shards(data)
    encoder, loaded = plane_encoder("movemask-tokens-99"), dataset.load(data, "train")
    kinds = np.zeros(3)
    starts = np.flatnonzero(loaded.ply == 0)
    for start, end in zip(starts, [*starts[1:], len(loaded)], strict=True):
        board, positions = chess.Board(), []
        for slot in loaded.slot[start:end].tolist():
            positions.append(Position(board.copy()))
            board.push(vocabulary("movemask-1880").move(slot, board))
        bare = [Position(position.board.copy(stack=False)) for position in positions]
        for alone, those in ((False, positions), (True, bare)):
            tokens = loaded.tokens(np.arange(start, end), np.full(end - start, alone))
            assert np.array_equal(tokens, encoder.encode_all(those, boards_of(those)))
            kinds += tokens[:, :, 96:].any(axis=1).sum(axis=0)
    assert kinds.all()  # castling rights of both sides and en passant were there


def test_order_of_rare_ratings_and_openings(tmp_path: Path) -> None:
    rows = [row(i, white_elo=str(2300 if i % 10 == 0 else 1500), black_elo="1500") for i in range(200)]
    data = data_of(tmp_path, csv_file(tmp_path, rows))
    make_shards(data)
    loaded = dataset.load(data, "train")
    order = dataset.order(loaded, data, seed=3)
    assert sorted(order) == list(range(len(loaded)))
    first, last = np.split(order, [len(order) // 4])[0], order[-len(order) // 4 :]
    assert (loaded.elo_self[first] == 2300).mean() > 1.5 * (loaded.elo_self[last] == 2300).mean()
    assert (loaded.ply[first] < data.opening_plies).mean() < 0.5 * (loaded.ply[last] < data.opening_plies).mean()
    assert dataset.order(loaded, data, seed=3).tolist() == order.tolist()


def test_misspelt_run_key_raises(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[network]\nwidht = 64\n[training]\nbatch = 0\n[data]\ngames = ["x.csv"]\n')
    with pytest.raises(SystemExit, match=r"network\.widht.*\n.*training\.batch: .*greater than 0"):
        load_run(file)


def test_width_other_than_teacher_raises(tmp_path: Path) -> None:
    """Before games are made into shards: the network matches the teacher's states."""
    file = tmp_path / "run.toml"
    file.write_text("[network]\nwidth = 64\n")
    with pytest.raises(SystemExit, match=r"run\.toml: network\.width: must be the teacher's, 256, not 64$"):
        load_run(file)


def test_runs_of_repository_are_readable() -> None:
    files = sorted(Path(__file__, "../../../training/runs").resolve().rglob("*.toml"))
    assert files
    assert len({load_run(file).folder for file in files}) == len(files)

"""Networks of 64 x 64 and of a file of moves: served policies, moves without a slot, contracts."""

from __future__ import annotations

import json
from pathlib import Path

import chess
import numpy as np
import onnx
import onnxruntime as ort
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from movemask.board.position import Position
from movemask.encoding.encoders import plane_encoder
from movemask.encoding.vocabularies import FROM_TO, vocabulary
from movemask.network.registry import Entry, load_entry
from tests.conftest import Serve
from tests.networks import Tensor, write_fake, write_named
from tests.processes import run

PROMOTIONS = "8/P1k5/8/8/8/8/8/K6R w - - 0 1"
BLACK = "k6r/8/8/8/8/2K5/p7/8 b - - 0 1"
CASTLING = "r3k2r/pppq1ppp/2npbn2/2b1p3/2B1P3/2NPBN2/PPPQ1PPP/R3K2R b KQkq - 7 8"
TOML = """
[contract]
planes = "maia2-18"
vocabulary = "{vocabulary}"
trained_with_mask = false
{extra}
[inputs]
planes = "planes"
[outputs]
logits = "logits"
"""


def written(folder: Path, words: str, extra: str = "", slots: int = 4096) -> Path:
    """A random network of so many slots and its contract; the TOML."""
    write_named(folder / "net.onnx", [Tensor("planes", (18, 8, 8))], [Tensor("logits", (slots,))])
    (folder / "net.toml").write_text(TOML.format(vocabulary=words, extra=extra))
    return folder / "net.toml"


def served(file: Path) -> Entry:
    entry = load_entry(file, threads=1)
    assert entry.served, entry.failure
    return entry


def logits_of(file: Path, fen: str) -> NDArray[np.float64]:
    """What the network gives, by onnxruntime alone."""
    session = ort.InferenceSession(str(file.with_name("net.onnx")), providers=["CPUExecutionProvider"])
    planes = plane_encoder("maia2-18").encode(Position.read(fen))[None]
    return np.asarray(session.run(["logits"], {"planes": planes})[0][0], dtype=np.float64)


def place(move: chess.Move, board: chess.Board, name: str) -> int:
    """The slot of a move by the definition of 64 x 64."""
    numbers = []
    for square in (move.from_square, move.to_square):
        rank, file = divmod(square, 8)
        if board.turn == chess.BLACK and not name.endswith("white"):
            rank = 7 - rank
        numbers.append(file * 8 + rank if "by-file" in name else rank * 8 + file)
    return numbers[0] * 64 + numbers[1]


@pytest.mark.parametrize("name", FROM_TO)
def test_policies_of_64_by_64_are_softmax_over_their_slots(name: str, tmp_path: Path, serve: Serve) -> None:
    file = written(tmp_path, name, 'promotions = "queen-only"')
    client = serve(tmp_path)
    for fen in (chess.STARTING_FEN, PROMOTIONS, BLACK, CASTLING):
        answer = client.post("/v1/policy", json={"fen": fen}).json()
        board, logits = chess.Board(fen), logits_of(file, fen)
        weights = {
            move.uci(): np.exp(logits[place(move, board, name)])
            for move in board.legal_moves
            if move.promotion in (None, chess.QUEEN)
        }
        total = sum(weights.values())
        assert {move["uci"]: move["probability"] for move in answer["moves"]} == {
            uci: pytest.approx(weight / total, rel=1e-5) for uci, weight in weights.items()
        }
        missing = sorted(move.uci() for move in board.legal_moves if move.uci() not in weights)
        assert answer.get("without_slot", []) == missing
        assert answer["leakage"]["raw"] == pytest.approx(1 - total / np.exp(logits).sum(), rel=1e-4)


def test_move_without_slot_needs_incomplete(tmp_path: Path) -> None:
    failure = load_entry(written(tmp_path, "from-to-4096"), 1).failure or ""
    assert "a7a8r in '1n5k/P4ppp" in failure or "has no slot in the vocabulary from-to-4096" in failure
    assert "write incomplete = true" in failure
    served(written(tmp_path, "from-to-4096", "incomplete = true"))


def test_extra_slots_of_promotions_follow_the_4096(tmp_path: Path) -> None:
    letters = [
        f"{a}7{b}8{piece}" for piece in "rbn" for a in "abcdefgh" for b in "abcdefgh" if abs(ord(a) - ord(b)) < 2
    ]
    file = written(tmp_path, "from-to-4096", f"promotions = {json.dumps(['', *letters])}", 4097 + len(letters))
    model = served(file).model
    assert model is not None
    moves, slots = model.vocabulary.legal_slots(Position.read(BLACK))
    assert dict(zip([move.uci() for move in moves], slots.tolist(), strict=True)) | {
        "a2a1q": (6 * 8 + 0) * 64 + 7 * 8,
        "a2a1r": 4097 + letters.index("a7a8r"),
        "a2a1n": 4097 + letters.index("a7a8n"),
    } == dict(zip([move.uci() for move in moves], slots.tolist(), strict=True))


@pytest.fixture
def some_moves(tmp_path: Path) -> list[str]:
    """1,500 moves in an order of their own, with two unused slots, as a file beside the contract."""
    names = [name for name in vocabulary("movemask-1880").names() if name[4:] in ("", "q")]
    shuffled = np.random.default_rng(5).permutation(names).tolist()[:1498]
    moves = [*shuffled[:700], "", *shuffled[700:], ""]
    (tmp_path / "moves.txt").write_text("\n".join(moves) + "\n")
    return moves


FILE = 'perspective = "side_to_move"\nincomplete = true'


def test_policies_of_1500_listed_moves(tmp_path: Path, some_moves: list[str], serve: Serve) -> None:
    file = written(tmp_path, "moves.txt", FILE, 1500)
    client = serve(tmp_path)
    for fen in (chess.STARTING_FEN, PROMOTIONS, CASTLING):
        answer = client.post("/v1/policy", json={"fen": fen}).json()
        board, logits, weights = chess.Board(fen), logits_of(file, fen), {}
        for move in board.legal_moves:
            name = move.uci()
            if board.turn == chess.BLACK:
                name = name.translate(str.maketrans("12345678", "87654321"))
            if name in some_moves:
                weights[move.uci()] = np.exp(logits[some_moves.index(name)])
        assert {move["uci"]: move["probability"] for move in answer["moves"]} == {
            uci: pytest.approx(weight / sum(weights.values()), rel=1e-5) for uci, weight in weights.items()
        }
        assert answer["without_slot"] == sorted({move.uci() for move in board.legal_moves} - {*weights})
        for seed in range(20):
            request = {"fen": fen, "method": "sample", "temperature": 3, "seed": seed}
            assert client.post("/v1/move", json=request).json()["move"]["uci"] in weights


def test_digest_covers_the_file_of_moves(tmp_path: Path, some_moves: list[str]) -> None:
    """The model's digest is that of the lines of sha256sum."""
    file = written(tmp_path, "moves.txt", FILE, 1500)
    before = served(file)
    (tmp_path / "moves.txt").write_text("\n".join([*some_moves[1::-1], *some_moves[2:]]) + "\n")
    after = served(file)
    assert before.digest != after.digest
    assert before.model is not None
    assert after.model is not None
    assert before.model.vocabulary.names()[:2] == after.model.vocabulary.names()[1::-1]
    file.write_text(f'[network]\ndigest = "{before.digest}"\n' + file.read_text())
    assert "network.digest: says " in str(load_entry(file, 1).failure)


@pytest.mark.parametrize(
    ("change", "extra", "words"),
    [
        (
            lambda moves: moves[:-1],
            FILE,
            "moves.txt has 1499 lines, and output 'logits' has 1500 logits: its last, line",
        ),
        (lambda moves: [*moves, ""], FILE, "moves.txt has 1501 lines, and output 'logits' has 1500 logits: its last, "),
        (lambda moves: ["e2e9", *moves[1:]], FILE, "contract.vocabulary: moves.txt: line 1: 'e2e9': not a move in UCI"),
        (lambda moves: moves, "incomplete = true", 'contract.perspective: a file of moves needs it: "side_to_move" if'),
        (lambda moves: moves, FILE.split("\n")[0], "has no slot in the vocabulary moves.txt: correct contract.voc"),
        (lambda moves: moves, f'{FILE}\npromotions = ["a7a8r"]', "contract.promotions: slots can be added to from-to"),
    ],
    ids=["short", "long", "bad move", "no perspective", "not incomplete", "promotions"],
)
def test_contract_of_a_moves_file_names_its_fault(
    change: object, extra: str, words: str, tmp_path: Path, some_moves: list[str]
) -> None:
    assert callable(change)
    file = written(tmp_path, "moves.txt", extra, 1500)
    (tmp_path / "moves.txt").write_text("\n".join(change(some_moves)) + "\n")
    assert words in str(load_entry(file, 1).failure)


@pytest.mark.parametrize(
    ("promotions", "words"),
    [
        ('"queens"', "contract.promotions: must be \"queen-only\" or a list of moves, got 'queens'"),
        ("[1]", 'contract.promotions: must be "queen-only" or a list of moves, got [1]'),
        ('["a7a8r", "e2e4"]', "contract.promotions: 'e2e4', number 2, is no promotion, or named twice"),
        ('["a7a8r", "a7a8r"]', "contract.promotions: 'a7a8r', number 2, is no promotion, or named twice"),
        ('["a7a9r"]', "contract.promotions: 'a7a9r', number 1: not a move in UCI"),
    ],
)
def test_promotions_name_their_fault(promotions: str, words: str, tmp_path: Path) -> None:
    failure = load_entry(written(tmp_path, "from-to-4096", f"promotions = {promotions}"), 1).failure
    assert words in str(failure)


@pytest.mark.parametrize("name", ["../moves.txt", "/etc/moves.txt", "a/moves.txt", "missing.txt"])
def test_moves_file_is_beside_its_contract(name: str, tmp_path: Path) -> None:
    failure = str(load_entry(written(tmp_path, name, FILE, 1500), 1).failure)
    assert "must be the name of a file in the folder" in failure or "missing.txt: No such file" in failure


PGN = """[White "a"]
[SetUp "1"]
[FEN "8/P1k5/8/8/8/8/8/K6R w - - 0 1"]

1. a8=N+ Kb7 2. Rh7+ Kxa8 *
"""


def test_played_move_without_slot_is_not_judged(tmp_path: Path, serve: Serve) -> None:
    """Never ln 0."""
    written(tmp_path, "from-to-4096", 'promotions = "queen-only"')
    client = serve(tmp_path)
    (game,) = client.post("/v1/games", json={"pgn": PGN}).json()["games"]
    first, _, third, _ = game["moves"]
    assert {"probability", "rank", "surprise"}.isdisjoint(first)
    assert third["probability"] > 0
    assert game["white"]["moves"] == 1
    assert game["white"]["cross_entropy"] == pytest.approx(third["surprise"])
    (tmp_path / "g.pgn").write_text(PGN)
    audited = run("audit", tmp_path / "g.pgn", "--models-dir", tmp_path, "--out", tmp_path / "o", "--jobs", "1")
    assert audited.exit_code == 0, audited.output
    rows = pq.read_table(tmp_path / "o" / "positions.parquet")
    assert [value is None for value in rows["played_probability"].to_pylist()] == [True, False, False, False]
    played = json.loads((tmp_path / "o" / "summary.json").read_text())["models"]["net"]["played"]
    assert played["moves"] == 3
    assert np.isfinite(played["cross_entropy"])
    annotated = run("annotate", tmp_path / "g.pgn", "--models-dir", tmp_path).stdout
    assert "P not judged (no slot)" in annotated
    (tmp_path / "twice.pgn").write_text(annotated)
    assert run("annotate", tmp_path / "twice.pgn", "--models-dir", tmp_path).stdout.count("not judged") == 1


def test_move_without_slot_has_no_ratings(tmp_path: Path, serve: Serve) -> None:
    """The answer was once a 500."""
    file = write_fake(tmp_path, vocabulary="from-to-4096", elo=True)
    words = 'vocabulary = "from-to-4096"'
    file.write_text(file.read_text().replace(words, f'{words}\npromotions = "queen-only"'))
    waiting = " ".join("Rh2 Kd7 Rh1 Kc7" for _ in range(3))  # 12 plies: the next move is compared
    pgn = PGN.replace("1. a8=N+", f"{waiting} a8=N+")
    (game,) = serve(tmp_path).post("/v1/games", json={"pgn": pgn, "include": ["ratings"]}).json()["games"]
    assert "probability" not in game["moves"][12]
    assert [move["ply"] for move in game["moves"] if "at_ratings" in move] == [14, 15, 16]


def test_calibration_leaves_out_moves_without_slot(tmp_path: Path) -> None:
    written(tmp_path, "from-to-4096", 'promotions = "queen-only"')
    (tmp_path / "g.pgn").write_text(PGN)
    fit = run("calibrate", tmp_path / "g.pgn", "--models-dir", tmp_path, "--first-ply", 0, "--dry-run")
    assert "from 3 moves of 1 games" in fit.output
    assert "1 moves are not judged: the network has no slot for them" in fit.output


def test_vocabulary_command_prints_checks_and_compares(tmp_path: Path, some_moves: list[str]) -> None:
    file = tmp_path / "moves.txt"
    printed = run("vocabulary", file)
    assert printed.stdout.splitlines() == [f"{slot}\t{move}" for slot, move in enumerate(some_moves)]
    assert "1500 slots, 2 of them unused; castling is e1g1; 382 moves have no slot: " in printed.stderr
    moves = run("vocabulary", "maia2-1880", "--moves").stdout
    (tmp_path / "maia2.txt").write_text(moves)
    same = run("vocabulary", tmp_path / "maia2.txt", "maia2-1880")
    assert (same.exit_code, same.stdout.endswith("have the same slots\n")) == (0, True)
    other = run("vocabulary", "maia2-1880", "movemask-1880")
    assert other.exit_code == 1
    assert "castling: king_two_squares in maia2-1880, king_takes_rook in movemask-1880" in other.stdout
    assert "slots have another move, the first is slot 0: a1h8 in maia2-1880, a1b1 in movemask-1880" in other.stdout
    file.write_text("e2e4\ne2e5x\n")
    refused = run("vocabulary", file)
    assert (refused.exit_code, "moves.txt: line 2: 'e2e5x': not a move in UCI" in refused.output) == (1, True)


def test_model_with_a_moves_file_is_removed_with_it(tmp_path: Path, some_moves: list[str]) -> None:
    written(tmp_path, "moves.txt", FILE, 1500)
    assert onnx.load(tmp_path / "net.onnx").graph.node
    assert run("models", "remove", "net", "--yes", "--models-dir", tmp_path).output.count("deleted: ") == 3
    assert not list(tmp_path.glob("*.*"))

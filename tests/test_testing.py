"""`assert_masked`: which mistakes of a mask it finds, and what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import chess
import chess.variant
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from movemask.board.position import Position
from movemask.encoding.vocabularies import vocabulary, vocabulary_names
from movemask.errors import ContractError, InvalidFen, InvalidParameter, InvalidPosition, UnsupportedVariant
from movemask.local.network import Network
from movemask.testing import POSITIONS, assert_masked
from tests.conftest import ROOT
from tests.processes import environment, with_packages

Vector = NDArray[np.floating]


def failure(policy: Any, *arguments: Any, **options: Any) -> str:
    """The text of the AssertionError."""
    with pytest.raises(AssertionError) as raised:
        assert_masked(policy, *arguments, **options)
    text = str(raised.value)
    assert len(text.splitlines()) <= 12
    return text


def weighted(moves: Iterable[chess.Move]) -> dict[str, float]:
    """A distribution over moves, without two that are equal."""
    weights = {move.uci(): 1.0 + place for place, move in enumerate(moves)}
    return {uci: weight / sum(weights.values()) for uci, weight in weights.items()}


def right(fen: str) -> dict[str, float]:
    return weighted(chess.Board(fen).legal_moves)


def softmax(logits: Vector) -> Vector:
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


def test_shipped_network_and_saved_answers_pass(network: Network) -> None:
    assert_masked(lambda fen: network.policy(chess.Board(fen)).probabilities)
    assert_masked({fen: right(fen) for fen in POSITIONS})


@settings(max_examples=10)
@given(
    st.sampled_from(vocabulary_names()),
    st.integers(0, 2**32 - 1),
    st.floats(0.1, 10),
    st.sampled_from([np.float32, np.float64]),
)
def test_softmax_over_legal_slots_passes(name: str, seed: int, scale: float, dtype: Any) -> None:
    words, logits = vocabulary(name), (np.random.default_rng(seed).normal(size=5000) * scale).astype(dtype)

    def policy(fen: str) -> Vector:
        mask = np.full(len(words), -np.inf, dtype=dtype)
        mask[words.legal_slots(Position.read(fen))[1]] = 0
        return softmax(logits[: len(words)] + mask)

    assert_masked(policy, vocabulary=name)


def unsafe(board: chess.Board) -> Iterator[chess.Move]:
    yield from board.pseudo_legal_moves


def castling_through_check(board: chess.Board) -> Iterator[chess.Move]:
    other = board.copy()
    for square in chess.SquareSet(board.occupied_co[not board.turn] & ~board.kings):
        other.remove_piece_at(square)
    yield from (move for move in other.legal_moves if other.is_castling(move))


def castling_with_every_right(board: chess.Board) -> Iterator[chess.Move]:
    other = board.copy()
    other.castling_rights = other.rooks & chess.BB_CORNERS
    yield from (move for move in other.legal_moves if other.is_castling(move))


def en_passant_at_any_time(board: chess.Board) -> Iterator[chess.Move]:
    other = board.copy()
    for square in chess.SquareSet(board.pawns & board.occupied_co[not board.turn] & chess.BB_RANK_5):
        other.ep_square = square + 8
        yield from (move for move in other.generate_legal_ep())


def around_the_board(board: chess.Board) -> Iterator[chess.Move]:
    for square in chess.SquareSet(board.knights & board.occupied_co[board.turn]):
        for step in (17, 15, 10, 6, -6, -10, -15, -17):
            if 0 <= square + step < 64 and not board.piece_at(square + step):
                yield chess.Move(square, square + step)


@pytest.mark.parametrize(
    ("extra", "cause", "expected"),
    [
        (unsafe, "leaves_king_in_check", "pinned pieces"),
        (unsafe, "leaves_king_in_check", "en passant that exposes the king"),
        (unsafe, "leaves_king_in_check", "double check"),
        (castling_through_check, "castling_path", "castling over an attacked square"),
        (castling_through_check, "castling_path", "castling out of check"),
        (castling_with_every_right, "castling_right", "no right to castle"),
        (en_passant_at_any_time, "en_passant", "en passant a move too late"),
        (around_the_board, "wrong_geometry", "knights on the edge of the board"),
    ],
)
def test_forgotten_rule_is_found(
    extra: Callable[[chess.Board], Iterator[chess.Move]], cause: str, expected: str
) -> None:
    def policy(fen: str) -> dict[str, float]:
        return weighted([*chess.Board(fen).legal_moves, *extra(chess.Board(fen))])

    for fen in (fen for fen, shows in POSITIONS.items() if shows == expected):
        if any(not chess.Board(fen).is_legal(move) for move in extra(chess.Board(fen))):
            message = failure(policy, [fen])
            assert f"{fen} ({expected})" in message
            assert f"({cause})" in message
            break
    else:
        pytest.fail(f"{expected!r} does not show it")
    assert cause in failure(policy)


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        (lambda board, move: not board.is_en_passant(move), "en passant out of check"),
        (lambda board, move: not board.is_castling(move), "castling to both sides"),
        (lambda board, move: move.promotion in (None, chess.QUEEN), "promotion on every file"),
        (
            lambda board, move: not (board.is_castling(move) and board.attackers(not board.turn, move.to_square - 1)),
            "queenside castling with b1 attacked, which is legal",
        ),
        (lambda board, move: list(board.legal_moves).index(move) < 128, "218 legal moves"),
    ],
)
def test_forbidden_legal_move_is_found(allowed: Callable[[chess.Board, chess.Move], bool], expected: str) -> None:
    def policy(fen: str) -> dict[str, float]:
        board = chess.Board(fen)
        return weighted(move for move in board.legal_moves if allowed(board, move))

    message = failure(policy)
    assert f"({expected})" in message
    assert "legal moves with 0: " in message
    assert "illegal moves have" not in message.replace("illegal moves may have", "")


def test_mistakes_of_notation_are_named() -> None:
    def bare(fen: str) -> dict[str, float]:
        return {uci.removesuffix("q"): p for uci, p in right(fen).items()}

    def by_rook(fen: str) -> dict[str, float]:
        board = chess.Board(fen)
        return {board.uci(chess.Move.from_uci(uci), chess960=True): p for uci, p in right(fen).items()}

    def seen_by_the_mover(fen: str) -> dict[str, float]:
        board = chess.Board(fen)
        return right((board if board.turn else board.mirror()).fen(en_passant="fen"))

    for policy, pattern in ((bare, "bare_promotion"), (by_rook, "castling_slot"), (seen_by_the_mover, "unmirrored")):
        assert f"looks like {pattern} (" in failure(policy)
    assert_masked(by_rook, chess960=True)
    assert_masked(seen_by_the_mover, [fen for fen in POSITIONS if " w " in fen])


def test_mask_of_other_position_is_not_multiplied() -> None:
    start = [move.uci() for move in chess.Board().legal_moves]
    message = failure(lambda _: dict.fromkeys(start, 1 / len(start)))
    assert "illegal moves have 1" in message
    assert "multiplied" not in message


def test_underpromotion_is_not_exchanged_slots() -> None:
    """As Maia-1 does where a side has eight pawns and queens: the slot without a letter is the knight's, and legal."""
    words = vocabulary("lc0-1858")

    def unmasked(fen: str) -> Any:
        position, vector = Position.read(fen), np.full(len(words), 1e-5)
        moves, slots = words.legal_slots(position)
        weights = np.array([9.0 if move.promotion == chess.KNIGHT else 1.0 for move in moves])
        vector[slots] = weights / weights.sum()
        return vector / vector.sum()

    message = failure(unmasked, vocabulary="lc0-1858")
    assert "illegal moves have" in message
    assert "bare_promotion" not in message


@given(st.sampled_from(list(POSITIONS)), st.integers(0, 4095), st.floats(0, 0.9), st.floats(0, 0.5))
def test_leak_above_limit_is_found(fen: str, squares: int, leaked: float, at_most: float) -> None:
    board, move = chess.Board(fen), chess.Move(squares >> 6, squares & 63)
    if squares >> 6 == squares & 63 or board.is_legal(move):
        return
    answer = {uci: p * (1 - leaked) for uci, p in right(fen).items()} | {move.uci(): leaked}
    if leaked < 0.999 * at_most:
        assert_masked({fen: answer}, [fen], at_most)
    elif leaked > 1.001 * at_most:
        message = failure({fen: answer}, [fen], at_most)
        assert f"  {fen} ({POSITIONS[fen]})" in message
        assert f"at most {at_most:g}" in message
        named = re.search(rf"illegal moves have (\S+): {move.uci()} (\S+) \(\w+\)", message)
        assert named
        assert [float(number) for number in named.groups()] == pytest.approx([leaked, leaked], rel=0.01)


@given(st.floats(1e-9, 0.99), st.floats(0, 0.1))
def test_vanished_probability_is_found(lost: float, at_most: float) -> None:
    policy = {fen: {uci: p * (1 - lost) for uci, p in right(fen).items()} for fen in (chess.STARTING_FEN,)}
    if lost < 0.999 * max(at_most, 1e-5):
        assert_masked(policy, policy, at_most)
    elif lost > 1.001 * max(at_most, 1e-5):
        assert f"the legal moves sum to {1 - lost:.6g}" in failure(policy, policy, at_most)


def test_certain_network_may_round_to_zero() -> None:
    assert_masked({chess.STARTING_FEN: {"e2e4": 1.0}}, [chess.STARTING_FEN])
    message = failure({chess.STARTING_FEN: {"e2e4": 0.5, "d2d4": 0.5}}, [chess.STARTING_FEN])
    assert "legal moves with 0: g1h3" in message
    assert "and 14 more" in message


def test_worst_positions_come_first() -> None:
    message = failure(lambda fen: weighted(chess.Board(fen).pseudo_legal_moves))
    difficulties = re.findall(r"^  \S+ . \S+ \S+ \d+ \d+ \((.*)\)$", message, re.M)
    leaked = [float(share) for share in re.findall(r"illegal moves have (\S+):", message)]
    assert len(set(difficulties)) == len(leaked) == 3
    assert leaked == sorted(leaked, reverse=True)


def test_raising_policy_fails_with_its_error() -> None:
    def policy(fen: str) -> dict[str, float]:
        if " b " in fen:
            raise LookupError("no planes\nfor Black")
        return right(fen)

    with pytest.raises(AssertionError, match="the policy raised LookupError: no planes for Black") as raised:
        assert_masked(policy)
    assert isinstance(raised.value.__cause__, LookupError)
    assert f"in {len(POSITIONS) // 2} of {len(POSITIONS)} positions" in str(raised.value)


@pytest.mark.parametrize(
    ("answer", "name", "words"),
    [
        (np.full(1880, 1 / 1880), "lc0-1858", "1880 numbers; the vocabulary lc0-1858 has 1858 slots"),
        (np.full((1858, 1), 1 / 1858), "lc0-1858", "not a distribution: "),
        (np.full(1858, np.nan), "lc0-1858", "probabilities[0]: nan is not a probability from 0 to 1"),
        (np.full(1858, 0.5), "lc0-1858", "the sum is 929, too far from 1"),
        (np.full(1858, 1 / 1858), None, "ndarray is not a dict of moves; name a vector's vocabulary=, one of alpha"),
        (["e2e4"] * 1858, "lc0-1858", "could not convert string to float: 'e2e4'"),
        ({"e2e4": None}, None, "not 'NoneType'"),
        ({"Nf3": 1.0}, None, "policy: 'Nf3' is not a UCI move"),
        ({}, None, "policy: nothing is above 0"),
    ],
)
def test_invalid_distribution_is_named(answer: Any, name: str | None, words: str) -> None:
    assert words in failure(lambda fen: answer, [chess.STARTING_FEN], vocabulary=name)


CHESS960 = "4k3/8/8/8/8/8/8/1R2K1R1 w BG - 0 1"


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"positions": []}, InvalidParameter, "nothing could fail with 0 positions"),
        ({"at_most": 1}, InvalidParameter, "nothing could fail with 42 positions and at_most 1"),
        ({"at_most": float("nan")}, InvalidParameter, "at_most nan"),
        ({"vocabulary": "lc0"}, ContractError, "no vocabulary 'lc0'; available: alphazero-4672"),
        ({"positions": ["7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"]}, InvalidParameter, "/8 b - - 0 1' has no legal move"),
        ({"positions": [chess.Board()]}, InvalidParameter, "positions: a chess.Board; pass its FEN"),
        ({"positions": [chess.variant.AtomicBoard()]}, UnsupportedVariant, "positions: Atomic has other rules"),
        ({"positions": [3]}, InvalidParameter, "positions: 3 is not a FEN"),
        ({"positions": "startpos"}, InvalidParameter, "positions: 'startpos' is not a list of FENs"),
        ({"positions": chess.Board()}, InvalidParameter, "is not a list of FENs"),
        ({"positions": ["8/8"]}, InvalidFen, "fen: '8/8' is cut short"),
        ({"positions": [CHESS960]}, InvalidPosition, "valid as Chess960: ask with chess960 true"),
    ],
)
def test_arguments_that_test_nothing_raise(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)):
        assert_masked(right, **arguments)


def test_chess960_on_request() -> None:
    board = chess.Board(CHESS960, chess960=True)
    answer = weighted(board.legal_moves)
    assert {"e1b1", "e1g1"} <= set(answer)  # the king takes its rooks
    assert_masked({CHESS960: answer}, [CHESS960], chess960=True)
    answer["e1c1"] = answer.pop("e1b1")
    assert "e1c1" in failure({CHESS960: answer}, [CHESS960], chess960=True)
    policy, position = {CHESS960: np.full(1880, 1 / 1880)}, [CHESS960]
    assert "maia2-1880 writes castling as" in failure(policy, position, chess960=True, vocabulary="maia2-1880")


PAGE = (ROOT / "docs" / "masking.md").read_text()


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a Python that has numpy, python-chess and pytest alone."""
    names = ("numpy", "chess", "pytest", "pluggy", "iniconfig", "packaging", "pygments")
    return with_packages(tmp_path_factory.mktemp("bare"), *names)


def test_imports_numpy_and_chess_only(bare: dict[str, str], tmp_path: Path) -> None:
    program = "import sys, movemask.testing; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-S", "-c", program], env=bare, cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr == ""
    loaded = set(done.stdout.split()) - sys.stdlib_module_names
    assert loaded == {"__main__", "movemask", "numpy", "chess"}


def test_documented_example_fails_as_documented(bare: dict[str, str], tmp_path: Path) -> None:
    """In pytest as it is installed, without a plugin."""
    (example,) = re.findall(r"```python\n# test_mask.py\n(.*?)```", PAGE, re.S)
    (documented,) = re.findall(r"```text\n(E .*?)```", PAGE, re.S)
    (tmp_path / "test_mask.py").write_text(example)
    command = [sys.executable, "-S", "-m", "pytest", "-p", "no:cacheprovider", "test_mask.py"]
    done = subprocess.run(command, env=bare, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert [line.rstrip() for line in done.stdout.splitlines() if line.startswith("E ")] == documented.splitlines()
    assert "movemask/testing.py" not in done.stdout  # the traceback ends in the caller's line
    (tmp_path / "test_mask.py").write_text(example.replace("pseudo_legal_moves", "legal_moves"))
    assert subprocess.run(command, env=bare, cwd=tmp_path, capture_output=True).returncode == 0


def test_documented_mask_passes() -> None:
    (example,) = re.findall(r"```python\n(import numpy.*?)```", PAGE, re.S)
    page: dict[str, Any] = {}
    exec(example, page)
    words, logits = vocabulary("lc0-1858"), np.random.default_rng(3).normal(size=1858).astype(np.float32)

    def policy(fen: str) -> Vector:
        p, slots = np.zeros(len(words)), words.legal_slots(Position.read(fen))[1]
        p[slots] = page["probabilities"](logits, slots)
        return p

    assert_masked(policy, vocabulary="lc0-1858")


def test_example_finds_missing_and_multiplied_mask() -> None:
    command = [sys.executable, str(ROOT / "examples" / "mask.py")]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    unmasked, multiplied, masked = done.stdout.strip().split("\n\n")
    assert unmasked.startswith("unmasked: the policy fails in ")
    assert multiplied.startswith("multiplied: the policy fails in ")
    assert "\nlooks like multiplied (" in multiplied
    assert masked == "masked: passed"


def test_vector_of_batch_of_one_and_rounding() -> None:
    """An export answers `[1, A]`; float16 sums to 0.9998, which is a fault, but not one of writing promotions."""
    size = len(vocabulary("lc0-1858"))
    one_hot = np.zeros(size)
    one_hot[0] = 1
    words = [failure(lambda fen, v=v: v, [chess.STARTING_FEN], vocabulary="lc0-1858") for v in (one_hot, one_hot[None])]
    assert words[0] == words[1]
    assert "not a distribution" not in words[1]
    rounded = {fen: {uci: float(np.float16(p)) for uci, p in right(fen).items()} for fen in POSITIONS}
    text = failure({fen: {uci: 0.999 * p for uci, p in moves.items()} for fen, moves in rounded.items()}, rounded)
    assert "the legal moves sum to 0.99" in text
    assert "looks like" not in text


def test_bfloat16_is_named_with_what_to_write_instead() -> None:
    """It read as a wrong mask: `fails in 42 of 42 positions … Got unsupported ScalarType BFloat16`."""

    class Tensor:
        """A tensor as numpy sees it."""

        dtype = "torch.bfloat16"

        def __array__(self, dtype: object = None, copy: object = None) -> NDArray[np.float64]:
            raise TypeError("Got unsupported ScalarType BFloat16")

    with pytest.raises(InvalidParameter, match=re.escape("torch.bfloat16, which numpy cannot read")) as raised:
        assert_masked(lambda fen: Tensor(), vocabulary="lc0-1858")
    assert "write logits.float() before the softmax" in str(raised.value)

"""Variations of planes and slots."""

from __future__ import annotations

import chess
import numpy as np
import pytest

from movemask.board.position import Position
from movemask.encoding.encoders import plane_encoder
from movemask.encoding.variations import variation, variation_names, varied_encoder, varied_vocabulary
from movemask.encoding.vocabularies import vocabulary
from movemask.errors import ContractError, MoveOutsideVocabulary
from movemask.network.contract import Contract

FEN = "r3k2r/1P4pp/8/8/8/8/1p6/R3K2R b Kq - 30 40"
PLAIN = {"contract": {"planes": "lc0-112", "vocabulary": "lc0-1858", "trained_with_mask": False}}


def planes(name: str, encoder: str = "lc0-112", fen: str = FEN) -> tuple[np.ndarray, np.ndarray]:
    usual = plane_encoder(encoder)
    position = Position.read(fen)
    return usual.encode(position), varied_encoder(usual, [name]).encode(position)


def slot_name(name: str, words: str, uci: str, fen: str = FEN) -> str:
    varied = varied_vocabulary(vocabulary(words), [name])
    board = chess.Board(fen)
    slot = varied.slot(chess.Move.from_uci(uci), board)
    assert varied.move(slot, board) == chess.Move.from_uci(uci)
    return vocabulary(words).names()[slot]


@pytest.mark.parametrize(
    ("name", "encoder", "changed"),
    [
        ("castling_planes", "lc0-112", {104, 105, 106, 107}),
        ("castling_planes", "maia2-18", {13, 14, 15, 16}),
        ("clock_scale", "lc0-112", {109}),
        ("no_ones_plane", "lc0-112", {111}),
        ("no_side_plane", "lc0-112", {108}),
        ("no_history", "lc0-112", set(range(13, 104))),
    ],
)
def test_plane_variations_change_only_their_planes(name: str, encoder: str, changed: set[int]) -> None:
    usual, varied = planes(name, encoder)
    different = {plane for plane in range(len(usual)) if not np.array_equal(usual[plane], varied[plane])}
    assert different
    assert different <= changed
    assert name != "clock_scale" or varied[109, 0, 0] == pytest.approx(0.30)


def test_planes_unmirrored_and_rotated() -> None:
    usual, unmirrored = planes("planes_unmirrored")
    assert np.array_equal(unmirrored[:12], usual[:12, ::-1])
    assert unmirrored[5, 7, 4] == 1  # Black's king, ours, stays on e8
    _, rotated = planes("planes_rotated")
    assert rotated[5, 0, 3] == 1  # and on d1, turned around
    white = FEN.replace(" b ", " w ")
    assert np.array_equal(*planes("planes_rotated", fen=white))


def test_en_passant_unflipped() -> None:
    fen = "4k3/8/8/8/3pP3/8/8/4K3 b - e3 0 1"
    usual, varied = planes("en_passant_unflipped", "maia2-18", fen)
    assert np.argwhere(usual[17]).tolist() == [[5, 4]]
    assert np.argwhere(varied[17]).tolist() == [[2, 4]]


def test_slot_variations_read_another_slot() -> None:
    assert slot_name("castling_slot", "lc0-1858", "e8c8") == "e1c1"
    assert slot_name("castling_slot", "maia2-1880", "e8c8") == "e1a1"
    assert slot_name("bare_promotion", "lc0-1858", "b2a1q") == "b7a8"
    assert slot_name("bare_promotion", "lc0-1858", "b2a1n") == "b7a8q"
    assert slot_name("bare_promotion", "alphazero-4672", "b2a1n") == "b7a8"
    assert slot_name("promotion_order", "maia2-1880", "b2a1q") == "b7a8n"
    assert slot_name("promotion_order", "maia3-4352", "b2a1r") == "b7a8b"
    assert slot_name("slots_rotated", "lc0-1858", "e8d8") == "d1e1"
    assert slot_name("slots_unmirrored", "lc0-1858", "e8d8") == "e8d8"
    with pytest.raises(MoveOutsideVocabulary, match="b2a1q"):
        slot_name("slots_unmirrored", "lc0-1858", "b2a1q")


@pytest.mark.parametrize("name", variation_names())
@pytest.mark.parametrize("words", ["lc0-1858", "maia2-1880", "maia3-4352", "alphazero-4672"])
def test_slot_variations_keep_moves_apart(name: str, words: str) -> None:
    if not variation(name).applies("none", vocabulary(words)) or name == "slots_unmirrored":
        return
    varied = varied_vocabulary(vocabulary(words), [name])
    for fen in (FEN, FEN.replace(" b ", " w "), chess.STARTING_FEN):
        position = Position.read(fen)
        moves, slots = varied.legal_slots(position)
        assert tuple(varied.move(slot, position.board) for slot in slots.tolist()) == moves


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["clock"], "no variation 'clock'; available: castling_slot"),
        (["clock_scale", "clock_scale"], "one is named twice"),
        (["en_passant_unflipped"], "'en_passant_unflipped' changes nothing for lc0-112 and lc0-1858"),
    ],
)
def test_contract_refuses_variations_without_effect(names: list[str], words: str) -> None:
    table = {**PLAIN, "inputs": {"planes": "p"}, "outputs": {"logits": "l"}}
    with pytest.raises(ValueError, match=words):
        Contract.model_validate({**table, "contract": {**PLAIN["contract"], "variations": names}})
    with pytest.raises(ContractError, match="no variation 'x'"):
        variation("x")

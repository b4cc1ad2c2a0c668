"""An lc0 network with python-chess and numpy, as anyone would write it; what the three servers beside this serve."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import chess
import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray


class Network:
    """The network in the file PEER_NETWORK, its moves named by the JSON list in PEER_SLOTS."""

    def __init__(self) -> None:
        self.session = ort.InferenceSession(os.environ["PEER_NETWORK"], providers=["CPUExecutionProvider"])
        self.input = self.session.get_inputs()[0].name
        self.output = os.environ["PEER_LOGITS"]
        names = json.loads(Path(os.environ["PEER_SLOTS"]).read_text())
        self.slots = {name: slot for slot, name in enumerate(names)}

    def answers(self, fens: Sequence[str]) -> list[dict[str, Any]]:
        """The policy of each position, and what plain softmax would have given to illegal moves."""
        boards = [chess.Board(fen) for fen in fens]
        logits = self.session.run([self.output], {self.input: np.stack([planes(board) for board in boards])})[0]
        return [self.answer(board, row) for board, row in zip(boards, logits, strict=True)]

    def answer(self, board: chess.Board, logits: NDArray[np.float32]) -> dict[str, Any]:
        moves = list(board.legal_moves)
        slots = [self.slots[slot_name(board, move)] for move in moves]
        legal = logits[slots].astype(np.float64)
        weights = np.exp(legal - legal.max())
        policy = weights / weights.sum()
        everything = np.exp(logits.astype(np.float64) - logits.max())
        raw = 1 - everything[slots].sum() / everything.sum()
        order = np.argsort(-policy)
        return {
            "fen": board.fen(),
            "moves": [{"uci": moves[i].uci(), "probability": float(policy[i])} for i in order],
            "leakage": {"raw": float(raw)},
        }


def planes(board: chess.Board) -> NDArray[np.float32]:
    """The 112 planes of a position without a game."""
    view = board if board.turn == chess.WHITE else board.mirror()
    array = np.zeros((112, 8, 8), dtype=np.float32)
    for square, piece in view.piece_map().items():
        plane = piece.piece_type - 1 + (0 if piece.color == chess.WHITE else 6)
        array[plane:104:13, square // 8, square % 8] = 1
    array[104] = view.has_queenside_castling_rights(chess.WHITE)
    array[105] = view.has_kingside_castling_rights(chess.WHITE)
    array[106] = view.has_queenside_castling_rights(chess.BLACK)
    array[107] = view.has_kingside_castling_rights(chess.BLACK)
    array[108] = board.turn == chess.BLACK
    array[109] = board.halfmove_clock
    array[111] = 1
    return array


def slot_name(board: chess.Board, move: chess.Move) -> str:
    """The move as lc0 names it: seen by the side to move, castling as king takes rook, knights without a letter."""
    source, target = move.from_square, move.to_square
    if board.is_castling(move):
        target = chess.square(7 if chess.square_file(target) > 4 else 0, chess.square_rank(target))
    if board.turn == chess.BLACK:
        source, target = chess.square_mirror(source), chess.square_mirror(target)
    letter = "" if move.promotion in (None, chess.KNIGHT) else chess.piece_symbol(move.promotion or 0)
    return chess.square_name(source) + chess.square_name(target) + letter

"""Plane encoders of Maia-2, Maia-3, movemask, AlphaZero and searchless_chess."""

from __future__ import annotations

import chess
import numpy as np
import pytest

from movemask.board.position import PlayedGame, Position, boards_of
from movemask.encoding.encoders import plane_encoder, plane_encoder_names
from tests.ground_truth import pgx_positions, tricky

REPEATED = 4  # of pgx's positions have one in their history that came twice
GAME = ("e2e4", "c7c5", "e4e5", "d7d5")  # White may take en passant now
AFTER = "rnbqkbnr/pp2pppp/8/2ppP3/8/8/PPPP1PPP/RNBQKBNR w KQkq d6 0 3"


def fens() -> list[str]:
    return [fen for fen, _, _ in tricky() if chess.Board(fen).is_valid()]


@pytest.mark.parametrize("name", plane_encoder_names())
def test_batch_matches_single_positions(name: str) -> None:
    encoder = plane_encoder(name)
    game = ["e2e4", "c7c5", "g1f3", "d7d6", "d2d4", "c5d4", "f3d4", "g8f6", "b1c3", "a7a6"]
    played = [Position.read(moves=game[:plies]) for plies in range(11)]
    shuffled = ["g1f3", "g8f6", "f3g1", "f6g8", "g1f3", "g8f6"]
    clocks = ["8/8/8/8/8/8/k7/7K b - - 300 999", "8/8/8/8/8/8/k7/7K w - - 5000 60000"]
    positions = [*played, Position.read(moves=shuffled), *(Position.read(fen) for fen in [*fens()[::5], *clocks])]
    together = encoder.encode_all(positions, boards_of(positions))
    assert together.shape[1:] == encoder.shape
    assert together.dtype == encoder.dtype
    assert np.isfinite(together).all()
    for position, planes in zip(positions, together, strict=True):
        np.testing.assert_array_equal(planes, encoder.encode(position), position.fen)


def test_maia2_planes_match_mirrored_board() -> None:
    """Written from the package's description, square by square, on python-chess's own mirrored board."""
    encode = plane_encoder("maia2-18").encode
    for fen in fens():
        board = chess.Board(fen)
        view = board if board.turn == chess.WHITE else board.mirror()
        expected = np.zeros((18, 8, 8), dtype=np.float32)
        for square, piece in view.piece_map().items():
            plane = piece.piece_type - 1 + (0 if piece.color == chess.WHITE else 6)
            expected[plane, square // 8, square % 8] = 1
        expected[12] = 1
        rights = [
            view.has_kingside_castling_rights(chess.WHITE),
            view.has_queenside_castling_rights(chess.WHITE),
            view.has_kingside_castling_rights(chess.BLACK),
            view.has_queenside_castling_rights(chess.BLACK),
        ]
        expected[13:17] = np.array(rights, dtype=np.float32)[:, None, None]
        if view.ep_square is not None:
            expected[17, view.ep_square // 8, view.ep_square % 8] = 1
        assert np.array_equal(encode(Position.read(fen)), expected), fen


def test_maia3_tokens_name_the_piece_on_each_square() -> None:
    encode = plane_encoder("maia3-tokens-12").encode
    for fen in fens():
        board = chess.Board(fen)
        view = board if board.turn == chess.WHITE else board.mirror()
        tokens = encode(Position.read(fen))
        for square in chess.SQUARES:
            piece = view.piece_at(square)
            symbols = "".join("PNBRQKpnbrqk"[place] for place in np.flatnonzero(tokens[square]))
            assert symbols == (piece.symbol() if piece else "")


def test_maia3_history_is_oldest_first() -> None:
    encode, one = plane_encoder("maia3-tokens-96").encode, plane_encoder("maia3-tokens-12").encode
    tokens = encode(Position.read(moves=GAME))
    for back in range(8):
        known = max(0, len(GAME) - back)
        expected = one(Position.read(moves=GAME[:known]))
        block = 7 - back
        assert np.array_equal(tokens[:, 12 * block : 12 * (block + 1)], expected)
    bare = encode(Position.read(AFTER))
    assert all(np.array_equal(bare[:, 12 * i : 12 * (i + 1)], one(Position.read(AFTER))) for i in range(8))


def test_movemask_tokens_extend_maia3_tokens() -> None:
    """What a user would lose: `moves` that say more than the FEN, and the rights that Maia-3 does not know."""
    ours, theirs = plane_encoder("movemask-tokens-99"), plane_encoder("maia3-tokens-96")
    game = ["g1f3", "g8f6", "g2g3", "g7g6", "f1g2", "f8g7", "e1g1", "e7e5", "d2d4", "e5e4", "c2c4", "e4e3"]
    positions = [Position.read(moves=game[:plies]) for plies in range(13)]
    positions += [Position.read(moves=GAME), *(Position.read(fen) for fen in fens())]
    for position, tokens in zip(positions, ours.encode_all(positions, boards_of(positions)), strict=True):
        board = position.board
        mover, other = (
            board.clean_castling_rights() & board.occupied_co[color] for color in (board.turn, not board.turn)
        )
        en_passant = chess.BB_SQUARES[board.ep_square or 0] if board.has_legal_en_passant() else 0
        assert np.array_equal(tokens[:, :96], theirs.encode(position)), position.fen
        for column, marked in zip((96, 97, 98), (mover, other, en_passant), strict=True):
            expected = {square if board.turn else chess.square_mirror(square) for square in chess.SquareSet(marked)}
            assert set(np.flatnonzero(tokens[:, column])) == expected, position.fen


@pytest.mark.parametrize(
    ("fen", "ours", "theirs", "en_passant"),
    [
        ("r3k2r/8/8/8/8/8/8/R3K2R b Qk - 30 20", ["h1"], ["a8"], []),  # seen from Black
        ("nrkbbqrn/pppppppp/8/8/8/8/PPPPPPPP/NRKBBQRN w GBgb - 0 1", ["b1", "g1"], ["b8", "g8"], []),
        ("8/8/8/3pP3/8/8/8/K6k w - d6 0 1", [], [], ["d6"]),
        ("rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b - e3 0 1", [], [], []),  # no pawn can take there
    ],
)
def test_movemask_tokens_of_castling_and_en_passant(
    fen: str, ours: list[str], theirs: list[str], en_passant: list[str]
) -> None:
    tokens = plane_encoder("movemask-tokens-99").encode(Position.read(fen, chess960="GB" in fen))
    marked = [[chess.square_name(int(square)) for square in np.flatnonzero(column)] for column in tokens[:, 96:].T]
    assert marked == [ours, theirs, en_passant]


def test_positions_of_one_game_share_boards() -> None:
    encoder, played = plane_encoder("movemask-tokens-99"), chess.Board()
    for uci in GAME:
        played.push_uci(uci)
    line = PlayedGame.of(played)
    along = [Position.along(line, ply) for ply in range(len(GAME) + 1)]
    expected = [encoder.encode(Position.read(moves=GAME[:ply])) for ply in range(len(GAME) + 1)]
    assert np.array_equal(encoder.encode_all(along, boards_of(along)), np.stack(expected))


def test_alphazero_planes_match_pgx() -> None:
    encode = plane_encoder("pgx-119").encode
    weights = np.arange(1, 65).reshape(8, 8, 1)
    repeated = 0
    for fen, moves, _, expected in pgx_positions():
        position = Position.read(moves=moves)
        assert position.board.fen(en_passant="legal").split()[:4] == chess.Board(fen).fen().split()[:4]
        sums = (encode(position).astype(np.float64) * weights).sum((0, 1))
        np.testing.assert_allclose(sums, expected, rtol=1e-5, atol=1e-4, err_msg=fen)
        repeated += any(expected[13:112:14])
    assert repeated == REPEATED


@pytest.mark.parametrize(
    ("fen", "text"),
    [
        (chess.STARTING_FEN, "wrnbqkbnrpppppppp" + "." * 32 + "PPPPPPPPRNBQKBNRKQkq..0..1.."),
        (AFTER, "wrnbqkbnrpp..pppp..........ppP...................PPPP.PPPRNBQKBNRKQkqd60..3.."),
        ("8/8/8/8/8/k7/8/7K b - - 99 120", "b" + "." * 40 + "k" + "." * 22 + "K" + "......99.120"),
        ("4k3/8/8/8/8/8/8/4K2R w K - 5000 2000", "w....k" + "." * 55 + "K..RK.....999999"),
    ],
)
def test_fen_tokens_are_the_characters_of_the_fen(fen: str, text: str) -> None:
    tokens = plane_encoder("fen-77").encode(Position.read(fen))
    assert "".join("0123456789abcdefghpnrkqPBNRQKw."[token] for token in tokens) == text

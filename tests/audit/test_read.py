"""Files of an audit: formats, chunks, encodings, and damaged or hostile files."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path

import chess.pgn
import numpy as np
import pytest
import zstandard

from movemask.audit import read as reading
from movemask.audit.read import Chunk, Form, check, total_bytes
from movemask.audit.read import read as read_file
from movemask.board.split import GameText
from movemask.board.textfile import TextSource
from movemask.errors import SourceError

GAMES = """[Event "one"]
[Site "x"]

1. e4 {a comment
[Event "not a game"]
that ends here} e5 2. Nf3 *

[Event "two"]
[Result "1-0"]

1. d4 {one} d5 {two (1... Nf6 2. c4) } ; the rest { of the line
2. c4 {; not } 1-0


[Event "three"]

*

[Event "four"]
1. c4 { [%clk 0:01:00] [%eval 0.1] } c5 *
"""

LINES = """# positions
rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1

4k3/8/8/8/8/8/8/4K2R w K - bm O-O; id "a";
"""


def read(*files: Path | str, form: Form | None = None, size: int = 2, limit: int | None = None) -> list[Chunk]:
    chunks: list[Chunk] = []
    for index, file in enumerate(files):
        left = None if limit is None else limit - sum(len(chunk.items) for chunk in chunks)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reading, "_MOST", {"pgn": size, "fen": size})
            chunks += read_file(index, str(file), form, left)
    return chunks


def texts(chunks: list[Chunk]) -> list[str]:
    """The games or lines of chunks as they stand in the file."""
    items = [item for chunk in chunks for _, item in chunk.items]
    return [item.text if isinstance(item, GameText) else item for item in items]


def compressed(text: str, how: str) -> bytes:
    data = text.encode()
    if how == "gz":
        return gzip.compress(data)
    if how == "zst":  # in two frames, as large files are written
        middle = len(data) // 2
        return zstandard.compress(data[:middle]) + zstandard.compress(data[middle:])
    return (b"\xef\xbb\xbf" if how == "bom" else b"") + data


@pytest.mark.parametrize("how", ["plain", "bom", "gz", "zst"])
def test_games_match_python_chess(tmp_path: Path, how: str) -> None:
    file = tmp_path / ("games.pgn" + (f".{how}" if how in ("gz", "zst") else ""))
    file.write_bytes(compressed(GAMES, how))
    chunks = read(file)
    assert [(chunk.key, [number for number, _ in chunk.items], chunk.form) for chunk in chunks] == [
        ((0, 0), [1, 2], "pgn"),
        ((0, 1), [3, 4], "pgn"),
    ]
    whole = io.StringIO(GAMES)
    for text in texts(chunks):
        expected, own = chess.pgn.read_game(whole), chess.pgn.read_game(io.StringIO(text))
        assert expected is not None
        assert own is not None
        assert own.headers == expected.headers
        assert list(own.mainline_moves()) == list(expected.mainline_moves())
    assert chess.pgn.read_game(whole) is None


def test_lines_keep_numbers(tmp_path: Path) -> None:
    (tmp_path / "x.epd").write_text(LINES)
    chunks = read(tmp_path / "x.epd")
    assert [number for chunk in chunks for number, _ in chunk.items] == [2, 4]
    assert [text[:5] for text in texts(chunks)] == ["rnbqk", "4k3/8"]


@pytest.mark.parametrize(("text", "form"), [(GAMES, "pgn"), ("1. e4 e5 *", "pgn"), (LINES, "fen")])
def test_format_is_detected_from_content(tmp_path: Path, text: str, form: Form) -> None:
    (tmp_path / "unknown").write_text("\n\n" + text)
    assert {chunk.form for chunk in read(tmp_path / "unknown")} == {form}


def test_limit_spans_files_and_chunks_cover_all_bytes(tmp_path: Path) -> None:
    for name in ("a.pgn", "b.pgn"):
        (tmp_path / name).write_text(GAMES)
    assert [len(chunk.items) for chunk in read(tmp_path / "a.pgn", tmp_path / "b.pgn", size=3, limit=5)] == [3, 1, 1]
    names = [str(tmp_path / name) for name in ("a.pgn", "b.pgn")]
    assert sum(chunk.size for chunk in read(*names, size=3)) == total_bytes(names) == 2 * len(GAMES)


#: Games of which it is hard to say where they begin or end.
PIECES = (
    '[Event "plain"]\n[Site "x"]\n\n1. e4 e5 *\n\n',
    '[Event "no blank line"]\n1. d4 *\n',
    '[Event "a header in a comment"]\n\n1. c4 { said\n[Event "not a game"]\n\nso } c5 *\n\n',
    '[Event "a comment that ends in what looks like a header"]\n\n1. c4 {\n[x] } c5 *\n',
    '[Event "braces } in { a header"]\n\n1. e4 { a } e5 {b} *\n\n',
    '[White "no event"]\r\n[Black "y"]\r\n\r\n1. Nf3 *\r\n\r\n',
    '[Event "of an old Mac"]\r\r1. Nc3 *\r\r',
    '[Event "escapes"]\n\n% an { escape\n1. e4 ; { not a comment\nc5 {a\n% } an escape\n} *\n% after\n\n',
    '[Event "é in Latin-1"]\n\n1. e4 { ' + "é" * 40 + " } *\n\n\n\n",
)


def test_games_split_at_headers_across_blocks(tmp_path: Path) -> None:
    for seed in range(40):
        games = [PIECES[index] for index in np.random.default_rng(seed).integers(0, len(PIECES), 30)]
        (tmp_path / "x.pgn").write_bytes("".join(games).encode("latin-1"))
        game_texts = texts(read(tmp_path / "x.pgn"))
        normal = "".join(games).replace("\r\n", "\n").replace("\r", "\n")
        assert "".join(game_texts) == normal
        assert len(game_texts) == len(games)


@pytest.mark.parametrize("form", [None, "pgn", "fen"])
def test_binary_file_is_rejected_in_one_line(tmp_path: Path, form: Form | None) -> None:
    noise = np.random.default_rng(1).integers(0, 256, 100_000).astype(np.uint8).tobytes()
    for name, data in {
        "program": Path(sys.executable).read_bytes(),
        "noise": noise,
        "noise.pgn": noise,
        "noise.pgn.zst": zstandard.compress(noise),
        "zeros.fen": bytes(1000),
    }.items():
        (tmp_path / name).write_bytes(data)
        for refuse in (lambda file: check([file], form), lambda file: read(file, form=form)):
            with pytest.raises(SourceError) as raised:
                refuse(str(tmp_path / name))
            assert f"{name}: binary data, neither a PGN nor a list of FENs" in str(raised.value)
            assert str(raised.value).isprintable()


def test_latin1_pgn_is_read_and_latin1_fens_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "x.pgn").write_bytes(GAMES.replace("a comment", "é" * 500).encode("latin-1"))
    check([str(tmp_path / "x.pgn")], None)
    assert sum(len(chunk.items) for chunk in read(tmp_path / "x.pgn")) == 4
    (tmp_path / "x.txt").write_bytes(("прив " * 100).encode("cp1251"))
    with pytest.raises(SourceError, match="neither a PGN nor a list of FENs, which are plain ASCII"):
        check([str(tmp_path / "x.txt")], None)


def test_digest_of_content(tmp_path: Path) -> None:
    (tmp_path / "a.pgn").write_text(GAMES)
    before = [chunk.digest for chunk in read(tmp_path / "a.pgn")]
    assert len(set(before)) == 2
    (tmp_path / "a.pgn").write_text(GAMES.replace("c4 { ", "c3 { "))
    after = [chunk.digest for chunk in read(tmp_path / "a.pgn")]
    assert (before[0] == after[0], before[1] == after[1]) == (True, False)


@pytest.mark.parametrize("games", [2, 200])
@pytest.mark.parametrize("how", ["gz", "zst"])
def test_truncated_file_is_named(tmp_path: Path, how: str, games: int) -> None:
    file = tmp_path / f"games.pgn.{how}"
    file.write_bytes(compressed(GAMES * games, how)[:-20])
    with pytest.raises(SourceError, match=rf"games\.pgn\.{how}: cannot be read to its end"):
        read(file)


def test_damaged_file_is_named(tmp_path: Path) -> None:
    data = bytearray(compressed(GAMES * 200, "zst"))
    data[20:60] = b"\0" * 40
    (tmp_path / "x.pgn.zst").write_bytes(data)
    with pytest.raises(SourceError, match=r"x\.pgn\.zst: cannot be read"):
        read(tmp_path / "x.pgn.zst")
    with pytest.raises(SourceError, match="nowhere: No such file"):
        read("nowhere")


def test_decompression_bomb_is_rejected(tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=30)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    file = tmp_path / "window.pgn.zst"
    file.write_bytes(compressor.compress(b"1. e4 *\n" * 1000) + compressor.flush())
    with pytest.raises(SourceError, match="too much memory"):
        read(file)
    file.write_bytes(zstandard.compress((b"%" + b" " * 1022 + b"\n") * (1 << 15)))
    with pytest.raises(SourceError, match="a game of more than 16 MiB"):
        read(file)


def test_endless_line_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "long.pgn"
    file.write_bytes(b"1. e4 e5 " * 2_000_000)
    with TextSource(str(file)) as source, pytest.raises(SourceError, match="a line of more than 16 MiB"):
        source.readline()
    file.write_bytes((b"2. e4 {" + b"x" * 1_000 + b"} e5\n") * 18_000)
    with pytest.raises(SourceError, match="a game of more than 16 MiB"):
        read(file)


@pytest.mark.parametrize("name", ["blank.pgn", "blank.fen", "blank"])
def test_endless_blank_lines_are_refused(tmp_path: Path, name: str) -> None:
    """300 MiB of newlines kept an audit busy for minutes."""
    file = tmp_path / name
    file.write_bytes(b"\n" * (1 << 20) + b"1. e4 e5 *\n")
    assert sum(chunk.count for chunk in read_file(0, str(file), "pgn")) == 1
    file.write_bytes(b"\n" * (2 << 20))
    with pytest.raises(SourceError, match="more than 1 MiB of blank lines in a row"):
        list(read_file(0, str(file), None))


def test_unclosed_comment_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "x.pgn").write_text('[Event "x"]\n\n1. e4 {\n' + '[Event "y"]\n\n1. d4 { ; } {\n' * 50_000)
    assert [len(chunk.items) for chunk in read(tmp_path / "x.pgn")] == [1]

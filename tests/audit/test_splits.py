"""What would be lost where many machines read one file: a game, or a game twice, or its number in the file."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import zstandard

from movemask.audit.sources import Chunk, Entry, Sizes, Source, chunks, entries, passage, read, survey
from movemask.errors import SourceError

#: Whatever makes it hard to say, in the middle of a file, where a game begins.
PIECES = (
    '[Event "plain"]\n[Site "x"]\n\n1. e4 e5 *\n\n',
    '[Event "no blank line"]\n1. d4 *\n',
    '[Event "a header in a comment"]\n\n1. c4 { said\n[Event "not a game"]\n\nso } c5 *\n\n',
    '[White "no event"]\r\n[Black "y"]\r\n\r\n1. Nf3 *\r\n\r\n',
    '[Event "no moves"]\n\n',
    '[Event "no newline at its end"]\n\n% an escape\n1. e4 ; { not a comment\nc5 *',
    '[Event "é in Latin-1"]\n\n1. e4 { ' + "é" * 40 + " } *\n\n",
    "\n\n\n",
)


def made(seed: int, count: int = 25) -> bytes:
    rng = np.random.default_rng(seed)
    text = "".join(f"{PIECES[rng.integers(len(PIECES))]}" for _ in range(count))
    return text.encode("latin-1")


def read_in_splits(source: Source, sizes: Sizes) -> list[Chunk]:
    """As the workers of a cluster do: each split by itself, in any order."""
    passages = [passage(source, split) for split in range(len(source.starts))]
    found: list[Chunk] = []
    for entry, _ in reversed(list(entries(source, passages))):
        found += chunks(source, sizes, entry)
    return sorted(found, key=lambda chunk: chunk.key)


def without_sizes(found: Sequence[Chunk]) -> list[tuple[object, ...]]:
    return [(chunk.key, chunk.source, chunk.form, chunk.first, chunk.items) for chunk in found]


def items(found: Sequence[Chunk]) -> list[str]:
    return [item for chunk in found for item in chunk.items]


def in_frames(data: bytes, seed: int, *, pzstd: bool = False) -> bytes:
    """In frames of many sizes, some empty, some with a checksum or without the size of their content."""
    rng = np.random.default_rng(seed)
    cuts = [0, *sorted(rng.integers(0, len(data), 12).tolist()), len(data)]
    frames = b""
    for number, (low, high) in enumerate(itertools.pairwise(cuts)):
        compressor = zstandard.ZstdCompressor(write_checksum=number % 2 == 0, write_content_size=number % 3 == 0)
        frame = compressor.compress(data[low:high])
        if pzstd:
            frames += b"\x50\x2a\x4d\x18\x04\0\0\0" + len(frame).to_bytes(4, "little")
        frames += frame
    return frames


@pytest.mark.parametrize("how", ["plain", "zst", "pzstd", "fen"])
def test_splits_of_any_size_have_every_item_once_with_its_number(tmp_path: Path, how: str) -> None:
    for seed in range(8):
        data = made(seed)
        data = data.replace(b"\xe9", b"e") if how == "fen" else data  # FENs are ASCII
        file = tmp_path / ("x.fen" if how == "fen" else "x.pgn")
        file.write_bytes(data if how in ("plain", "fen") else in_frames(data, seed, pzstd=how == "pzstd"))
        whole = items(list(read(0, str(file), None, Sizes(3, 3))))
        for size in ((1, 40, 500), (3, 101), (7, 5000))[seed % 3] if seed else (1, 2, 101):
            sizes = Sizes(3, 3, size)
            source = survey(0, str(file), None, sizes)
            assert len(source.starts) > 1 or size > 500 or how != "plain"
            sequential = list(read(0, str(file), None, sizes))
            assert items(sequential) == whole
            assert [number for chunk in sequential for number, _ in enumerate(chunk.items, chunk.first)] == [
                *range(1, len(whole) + 1)
            ]
            assert without_sizes(read_in_splits(source, sizes)) == without_sizes(sequential), (seed, size)


def test_a_limit_is_the_same_for_splits(tmp_path: Path) -> None:
    (tmp_path / "x.pgn").write_bytes(made(1))
    sizes = Sizes(3, 3, 100)
    source = survey(0, str(tmp_path / "x.pgn"), None, sizes)
    counted = list(entries(source, (passage(source, split) for split in range(len(source.starts)))))
    limit = 20
    found: list[Chunk] = []
    for entry, count in counted:
        assert count is not None
        found += chunks(source, sizes, entry, limit=max(0, limit + 1 - entry.item))
    assert without_sizes(found) == without_sizes(list(read(0, str(tmp_path / "x.pgn"), None, sizes, limit)))
    assert len(items(found)) == limit


def test_damage_ends_a_file_at_the_same_place_for_all_its_readers(tmp_path: Path) -> None:
    file = tmp_path / "x.pgn.zst"
    sizes = Sizes(3, 3, 200)
    for seed in range(20):
        data = bytearray(in_frames(made(seed, 200), seed))
        middle = len(data) * (seed + 1) // 22
        data[middle : middle + 3] = bytes(255 - byte for byte in data[middle : middle + 3])
        file.write_bytes(data)
        sequential = []
        error = ""
        try:
            for chunk in read(0, str(file), None, sizes):
                sequential.append(chunk)
        except SourceError as damage:
            error = str(damage)
        source = survey(0, str(file), None, sizes)
        apart, errors = [], []
        for entry, _ in entries(source, (passage(source, split) for split in range(len(source.starts)))):
            try:
                for chunk in chunks(source, sizes, entry):
                    apart.append(chunk)
            except SourceError as damage:
                errors.append(str(damage))
        assert without_sizes(apart) == without_sizes(sequential)
        assert bool(error) == bool(errors)


def test_what_cannot_be_sought_in_is_one_split(tmp_path: Path) -> None:
    (tmp_path / "x.pgn.gz").write_bytes(gzip.compress(made(1)))
    assert survey(0, str(tmp_path / "x.pgn.gz"), None, Sizes(3, 3, 10)).starts == (0,)
    (tmp_path / "x.pgn.zst").write_bytes(zstandard.compress(made(1)))
    assert survey(0, str(tmp_path / "x.pgn.zst"), None, Sizes(3, 3, 10)).starts == (0,)


def test_an_entry_begins_where_it_says(tmp_path: Path) -> None:
    (tmp_path / "x.fen").write_bytes(b"first\nsecond\nthird\n")
    source = Source(0, str(tmp_path / "x.fen"), survey(0, str(tmp_path / "x.fen"), None, Sizes()).form, (0, 8))
    assert items(list(chunks(source, Sizes(), Entry(1, partial=True, item=3)))) == ["third"]

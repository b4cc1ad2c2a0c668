"""Audits of files that other programs wrote, and the reasons for what is rejected."""

from __future__ import annotations

import bz2
import io
import lzma
import tarfile
import tomllib
import zipfile
from pathlib import Path

import chess
import pytest

from movemask.audit.read import Choice, Sample, Skipped, check, read, samples
from movemask.board.textfile import TextSource
from movemask.errors import SourceError
from tests.field import CASES, FIELD

FILES = tomllib.loads((FIELD / "file-cases.toml").read_text(encoding="utf-8"))["case"]


def audited(path: Path) -> tuple[set[str], list[Sample], list[str]]:
    """What a file holds, its positions, and what is said of the others."""
    check([str(path)], None)
    skipped = Skipped()
    chunks = list(read(0, str(path), None))
    positions = [sample for chunk in chunks for sample in samples(chunk, Choice(), skipped)]
    assert sum(skipped.reasons.values()) == len(skipped.examples)
    return {chunk.form for chunk in chunks}, positions, [example for _, example in skipped.examples]


def test_field_files_are_read_or_rejected_with_reason() -> None:
    for case in FILES:
        name = case["file"]
        form, positions, skipped = audited(FIELD / name)
        assert form == {case["form"]}, name
        read = [sample.position.board.fen() for sample in positions]
        assert read == [chess.Board(fen).fen() for fen in case["positions"]], name
        expected = case.get("skipped", [])
        assert len(skipped) == len(expected), name
        assert [part for part, reason in zip(expected, skipped, strict=True) if part not in reason] == [], (
            name,
            skipped,
        )


def test_audit_reads_same_games_as_service() -> None:
    for case in CASES:
        _, positions, skipped = audited(case.path)
        games: dict[int, list[Sample]] = {}
        for sample in positions:
            games.setdefault(sample.item, []).append(sample)
        moves = [" ".join(sample.played.uci() for sample in game if sample.played) for game in games.values()]
        assert moves == [game["moves"] for game in case.good], case.path
        for game, expected in zip(games.values(), case.good, strict=True):
            if "elo" in expected:
                ratings = {sample.position.board.turn: sample.elo.self for sample in game if sample.elo}
                assert [ratings[chess.WHITE], ratings[chess.BLACK]] == expected["elo"], case.path
        errors = [text for game in case.games if (text := game.get("error") or game.get("notes"))]
        assert [error for error, reason in zip(errors, skipped, strict=True) if error not in reason] == [], case.path


def packed() -> dict[str, tuple[bytes, str]]:
    """Files that are neither games nor positions, and what has to be said of them."""
    games = b'[White "Ann"]\n\n1. e4 *\n' * 50
    archive, tar = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(archive, "w") as archive_file:
        archive_file.writestr("twic1500.pgn", games)
    with tarfile.open(fileobj=tar, mode="w") as bundle:
        member = tarfile.TarInfo("games.pgn")
        member.size = len(games)
        bundle.addfile(member, io.BytesIO(games))
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    return {
        "twic.zip": (archive.getvalue(), "a zip archive: unpack it first (gzip and zstandard are read as they are)"),
        "old.pgn.bz2": (bz2.compress(games), "compressed by bzip2: unpack it first"),
        "x.pgn.xz": (lzma.compress(games), "compressed by xz: unpack it first"),
        "x.7z": (b"7z\xbc\xaf\x27\x1c\0\4" + bytes(40), "a 7z archive: unpack it first"),
        "x.rar": (b"Rar!\x1a\x07\1\0" + bytes(40), "a rar archive: unpack it first"),
        "x.tar": (tar.getvalue(), "a tar archive: unpack it first"),
        "page.pgn": (b"\n <!DOCTYPE html>\n<html><head>", "a web page: download the file itself"),
        "pointer.pgn": (pointer, "a Git LFS pointer in place of the file: run `git lfs pull`"),
        "wide.pgn": ("1. e4 {Müller} *".encode("utf-16"), "UTF-16 text: save it as UTF-8"),
        "paper.pgn": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "a PDF"),
        "notes.pgn": (b"{\\rtf1\\ansi 1. e4}", "an RTF document"),
        "base.si4": (b"Scid.si\0\x01\x90" + bytes(40), "a Scid database"),
        "maia-1500.pb": (b"\x0d\xc0\x01\0\0\x1a\x05abcde", "`movemask models import`"),
        "maia.onnx": (b"\x08\x08\x12\x07pytorch\x1a\x05", "`movemask models add`"),
    }


@pytest.mark.parametrize("name", packed())
def test_unsupported_file_names_solution(tmp_path: Path, name: str) -> None:
    data, advice = packed()[name]
    (tmp_path / name).write_bytes(data)
    for refuse in (TextSource, lambda file: check([file], None), lambda file: check([file], "pgn")):
        with pytest.raises(SourceError) as raised:
            refuse(str(tmp_path / name))
        assert str(raised.value).startswith(f"{tmp_path / name}: ")
        assert advice in str(raised.value)


def test_chess960_line_names_flag(tmp_path: Path) -> None:
    (tmp_path / "frc.epd").write_text("4k3/8/8/8/8/8/8/1R2K3 w B - 0 1\n")
    _, _, skipped = audited(tmp_path / "frc.epd")
    assert "valid as Chess960: use --chess960" in skipped[0]

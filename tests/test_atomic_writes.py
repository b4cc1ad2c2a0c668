"""Files written whole or not at all: links, pipes, modes, full disks."""

from __future__ import annotations

import os
import stat
import sys
import threading
from pathlib import Path

import pytest

from movemask.atomic_writes import atomic_write
from tests.disks import file_system
from tests.processes import run

GAME = '[Event "x"]\n\n1. e4 e5 *\n'


def write(target: Path, content: bytes = b"new") -> None:
    with atomic_write(target) as stream:
        stream.write(content)


def test_new_file_has_usual_mode_and_leaves_nothing_beside(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write(tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"new"
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert sorted(file.name for file in tmp_path.iterdir()) == ["out", "plain"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other modes, and links need a privilege")
def test_existing_file_keeps_link_and_mode(tmp_path: Path) -> None:
    file, link = tmp_path / "folder" / "file", tmp_path / "link"
    file.parent.mkdir()
    link.symlink_to(file)
    write(link, b"through a link that points to nothing yet")
    assert link.is_symlink()
    file.chmod(0o600)
    write(link)
    assert link.is_symlink()
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_pipe_stays_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write(pipe)
    reader.join(30)
    assert read == [b"new"]
    assert pipe.is_fifo()


def test_error_leaves_file_and_folder_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")
    (tmp_path / "file.part").write_bytes(b"of the user")

    def fail() -> None:
        with atomic_write(file) as stream:
            stream.write(b"half")
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        fail()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "file": b"old",
        "file.part": b"of the user",
    }


def test_full_disk_and_missing_folder_name_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        write(tmp_path / "missing" / "out")
    assert missing.value.filename == str(tmp_path / "missing" / "out")
    with file_system(tmp_path / "small", "size=64k") as small:
        with pytest.raises(OSError, match="No space left on device") as full:
            write(small / "out", bytes(1 << 20))
        assert full.value.filename == str(small / "out")
        assert list(small.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other modes, and links need a privilege")
def test_annotate_follows_link_and_keeps_mode(tmp_path: Path) -> None:
    (tmp_path / "games.pgn").write_text(GAME)
    file, link = tmp_path / "private.pgn", tmp_path / "link.pgn"
    file.touch(0o600)
    link.symlink_to(file)
    assert run("annotate", tmp_path / "games.pgn", "--out", link).exit_code == 0
    assert link.is_symlink()
    assert "surprise" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    result = run("annotate", tmp_path / "games.pgn", "--out", tmp_path / "missing" / "out.pgn")
    assert result.stderr == f"Error: {tmp_path / 'missing' / 'out.pgn'}: No such file or directory\n"


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_keys_follow_link(tmp_path: Path) -> None:
    file, link = tmp_path / "folder" / "keys", tmp_path / "keys"
    file.parent.mkdir()
    link.symlink_to(file)
    for name in ("one", "two"):
        assert run("keys", "new", name, "--file", link).exit_code == 0
    assert link.is_symlink()
    assert len(file.read_text().splitlines()) == 2

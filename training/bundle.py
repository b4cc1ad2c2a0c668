"""A folder with all that training on a lent GPU needs: `python -m training.bundle RUN.toml FOLDER --trunk FILE`.

Such a machine reaches nothing outside it, and has torch, numpy and tqdm. The folder holds the shards, the teacher in
float16, the weights to go on from, the code, and wheels of the other libraries that the code imports, for that
machine's Python. `train.sh` (training/bundle.sh) in it trains.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

import chess
import tomlkit
import torch

from training.config import load_run
from training.maia3 import read

ROOT = Path(__file__).parents[1]
LARGEST = 46 << 20  # bytes: 64 MiB travel, the repository among them
LIBRARIES = ("annotated-types", "pydantic", "pydantic-core", "typing-extensions", "typing-inspection", "zstandard")
STARTS = ("trunk", "random", "run")  # folders of the runs: the two that are tried, and the one that goes on


def bundle(run_file: Path, folder: Path, trunk: Path, python: str) -> None:
    """Writes the folder, which must not exist yet."""
    run = load_run(run_file)
    left_out = shutil.ignore_patterns("__pycache__", "checkpoints", "page", "*.md", "*.gz")
    for package in (ROOT / "training", ROOT / "service" / "movemask"):
        shutil.copytree(package, folder / "code" / package.name, ignore=left_out)
    shutil.copyfile(ROOT / "training" / "bundle.sh", folder / "train.sh")
    (folder / "data").mkdir()
    for split in ("train", "validation"):
        for shard in run.data.folder.glob(f"{split}-*.shard"):
            shutil.copyfile(shard, folder / "data" / shard.name)
    torch.save(read(run.teaching.teacher).half().state_dict(), folder / "teacher.pt")
    shutil.copyfile(trunk, folder / "trunk.pt")
    for start in STARTS:
        table = tomlkit.parse(run_file.read_text())
        table["folder"] = start
        table.setdefault("data", {})["folder"] = "data"
        table.setdefault("teaching", {})["teacher"] = "teacher.pt"
        (folder / f"{start}.toml").write_text(tomlkit.dumps(table))
    pinned = rf"^(?:{'|'.join(LIBRARIES)})==.*(?:\n .*)*"  # with their hashes, in the lines after
    pins = re.findall(pinned, (ROOT / "requirements" / "training.txt").read_text(), re.M)
    wheels = folder / "wheels"
    wheels.mkdir()
    (wheels / "pinned.txt").write_text("\n".join(pins))
    download = (sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes", "-r", wheels / "pinned.txt")
    options = ("--no-deps", "--only-binary", ":all:", "--python-version", python, "--dest", wheels)
    platforms = ("--platform", "manylinux_2_17_x86_64", "--platform", "manylinux2014_x86_64")
    subprocess.run([*download, *options, *platforms], check=True)
    chess_package = Path(chess.__file__).parent  # it has no wheel, and is Python alone
    shutil.copytree(chess_package, folder / "code" / "chess", ignore=left_out)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="a folder with all that training on a lent GPU needs")
    parser.add_argument("run", type=Path, help="such as training/runs/gpu.toml")
    parser.add_argument("folder", type=Path, help="must not exist yet")
    parser.add_argument("--trunk", type=Path, required=True, help="weights to go on from: a run's trunk.pt")
    parser.add_argument("--python", default="3.12", help="of the lent machine [default: 3.12]")
    arguments = parser.parse_args()
    bundle(arguments.run, arguments.folder, arguments.trunk, arguments.python)
    size = sum(file.stat().st_size for file in arguments.folder.rglob("*") if file.is_file())
    print(f"{arguments.folder}: {size:,} bytes")
    if size > LARGEST:
        raise SystemExit(f"more than {LARGEST:,}: it may not travel")


if __name__ == "__main__":
    main()

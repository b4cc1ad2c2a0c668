"""Makes a run's network the shipped one: `python -m training.ship RUN.toml NAME --teacher FILE --maia1 FOLDER`.

Each step is a command that is printed before it runs; `--begin STEP` goes on at a step. The steps that torch is needed
for run in this environment, the others in the one that `--python` names. What is left to people: the sentences of the
documentation that quote the network's figures. The last step lists them.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tomlkit

from training.config import load_run

ROOT = Path(__file__).parents[1]
MODELS = ROOT / "models"
#: Their text and figures are of earlier networks, and stay as they are.
HISTORY = (
    "CHANGELOG.md",
    "benchmarks/results/",
    "benchmarks/review-games.pgn",
    "docs/performance.md",
    "models/",
    "training/checkpoints/",
    "training/log.md",
)
NOTEBOOKS = ("study/study.ipynb", "examples/leakage.ipynb")


@dataclass(frozen=True)
class Shipping:
    """What is shipped, and where the networks are that it is measured beside."""

    run: Path
    name: str
    teacher: Path
    maia1: Path
    hardware: str
    python: str
    floats: Sequence[str]
    beside: Path = Path("runs/shipping")  # in ROOT: the report quotes its command, which holds no path of a machine

    def export(self) -> None:
        """Writes the network into a folder of its own; ends where people would see what the integers change."""
        target = self.beside / "new" / self.name
        floats = ["--floats", *self.floats] if self.floats else []
        self._here("-m", "training.export", self.run, target, "--hardware", self.hardware, *floats)
        weights = tomlkit.parse((ROOT / target.with_suffix(".toml")).read_text())["card"]["variant"]["weights"]
        if weights != "int8":
            raise SystemExit(f"{target}: the integers differ too much from the floats; see above")

    def neighbours(self) -> None:
        """Puts the shipped network, the teacher and Maia-1 into folders for the report."""
        for folder in ("shipped", "maia3", "maia1"):
            shutil.rmtree(ROOT / self.beside / folder, ignore_errors=True)
            (ROOT / self.beside / folder).mkdir(parents=True)
        for file in MODELS.iterdir():
            shutil.copyfile(file, ROOT / self.beside / "shipped" / file.name)
        command = ("-m", "movemask", "models")
        self._there(*command, "add", self.teacher, "--models-dir", self.beside / "maia3", "--licence", "AGPL-3.0")
        for file in sorted(self.maia1.glob("maia-*.pb.gz")):
            self._there(*command, "import", file, "--models-dir", self.beside / "maia1")

    def report(self) -> None:
        """Measures the network on the test split, beside the others, and puts the figures into its card."""
        folders = ("--beside", self.beside / "shipped", self.beside / "maia3", "--nearest", self.beside / "maia1")
        new = self.beside / "new" / self.name
        self._here("-m", "training.report", self.run, new, *folders, "--split", "test", "--write")

    def switch(self) -> None:
        """Replaces the shipped network by the new one, and its name in the sources, tests, examples and docs."""
        (old,) = (file.stem for file in MODELS.glob("*.toml"))
        for file in (file for file in MODELS.iterdir() if file.name.startswith(old)):
            file.unlink()
        for file in (ROOT / self.beside / "new").iterdir():
            if file.suffix in (".onnx", ".toml", ".md"):
                shutil.copyfile(file, MODELS / file.name)
        sample = f"{self.name}.sample.npz"
        (ROOT / "tests/data" / f"{old}.sample.npz").unlink(missing_ok=True)
        shutil.copyfile(ROOT / load_run(self.run).folder / sample, ROOT / "tests/data" / sample)
        named = subprocess.run(["git", "grep", "-lF", old], cwd=ROOT, capture_output=True, text=True, check=False)
        for name in named.stdout.splitlines():
            if not name.startswith(HISTORY):
                file = ROOT / name
                # The run keeps its name: a run trains several networks.
                file.write_text(re.sub(rf"(?<!runs/){old}", self.name, file.read_text()))
        self._figures()

    def _figures(self) -> None:
        """Writes the card's figures into README's row, and into the audit's list of known networks."""
        measured = tomlkit.parse((MODELS / f"{self.name}.toml").read_text())["card"]["measured"].unwrap()
        report = (MODELS / f"{self.name}.report.md").read_text()
        size = re.search(rf"^\| {self.name} \| \d+ \| ([\d.]+) \|$", report, re.M)
        assert size is not None, report
        # As the report rounds them: the card's are rounded to four digits, and would be rounded twice.
        means = re.findall(rf"^\| {self.name}(?: \+ moves)? \| ([\d.]+) ± .*? \| [\d.]+ \| ([\d.]+) ±", report, re.M)
        top, loss = zip(*means[:2], strict=True)
        cells = [
            " / ".join(f"{share} %" for share in top),
            " / ".join(loss),
            f"{measured['raw_leakage_mean']}",
            size[1],
        ]
        readme = ROOT / "README.md"
        row = re.compile(rf"^(\| `{self.name}` [^|]*\|[^|]*\|).*$", re.M)
        text = row.sub(lambda match: f"{match[1]} {' | '.join(cells)} |", readme.read_text())
        readme.write_text(re.sub(r"[\d,]+ held-out positions", f"{measured['positions']:,} held-out positions", text))
        known = ROOT / "service/movemask/leakage/known.py"
        row = re.compile(rf'("{self.name}": )[\d.]+')
        known.write_text(row.sub(rf"\g<1>{measured['raw_leakage_mean']}", known.read_text()))

    def resemblance(self) -> None:
        """Fits the correction of the rating that a player's moves resemble, and puts it into the card."""
        self._there("-m", "benchmarks.resemblance", "--write")

    def strength(self) -> None:
        """Plays the network against itself and Stockfish, at five ratings and three temperatures."""
        jobs = os.cpu_count() or 1
        self._there("-m", "benchmarks.strength", "--write", "--model", self.name, "--games", "40", "--jobs", jobs)

    def answers(self) -> None:
        """Asks what OpenAPI, README and docs/api.md show."""
        self._there("scripts/shipped-answers")
        self._there("-m", "tests.snapshots")

    def notebooks(self) -> None:
        """Runs the notebooks. One reads an audit, which is made of held-out games first."""
        games, audit = self.beside / "games.pgn", ROOT / "examples" / "audit"
        self._here("-m", "training.pgn", self.run, games, "--games", "50")
        self._there("-m", "movemask", "audit", games, "--out", audit, "--models-dir", MODELS)
        execute = ("nbconvert", "--to", "notebook", "--execute", "--ExecutePreprocessor.record_timing=False")
        for notebook in NOTEBOOKS:
            self._there("-m", *execute, "--inplace", notebook)
        shutil.rmtree(audit)

    def pictures(self) -> None:
        """Takes the page's pictures."""
        self._there("scripts/screenshots")

    def sentences(self) -> None:
        """Lists the lines of the documentation that name the network, whose figures a person compares."""
        subprocess.run(
            ["git", "grep", "-nF", self.name, "--", "docs/*.md", "README.md", "service"], cwd=ROOT, check=False
        )

    def _here(self, *command: object) -> None:
        self._call(sys.executable, *command)

    def _there(self, *command: object) -> None:
        self._call(self.python, *command)

    def _call(self, *command: object) -> None:
        words = [str(word) for word in command]
        print("+", *words, flush=True)
        paths = {"PYTHONPATH": f"{ROOT / 'service'}{os.pathsep}{ROOT}"}
        subprocess.run(words, cwd=ROOT, env={**os.environ, **paths}, check=True)


STEPS: dict[str, Callable[[Shipping], None]] = {
    step.__name__: step
    for step in (
        Shipping.export,
        Shipping.neighbours,
        Shipping.report,
        Shipping.switch,
        Shipping.resemblance,
        Shipping.strength,
        Shipping.answers,
        Shipping.notebooks,
        Shipping.pictures,
        Shipping.sentences,
    )
}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="make a run's network the shipped one")
    parser.add_argument("run", type=Path, help="such as training/runs/movemask-5.toml")
    parser.add_argument("name", help="of the new network, such as movemask-8")
    parser.add_argument("--teacher", type=Path, required=True, help="the teacher's ONNX file")
    parser.add_argument("--maia1", type=Path, required=True, help="a folder of maia-*.pb.gz")
    parser.add_argument("--hardware", required=True, help="what it was trained on")
    parser.add_argument("--python", default=".venv-test/bin/python", help="of the environment with the tests' packages")
    parser.add_argument("--floats", nargs="*", default=[], help="products that stay floats, such as head")
    parser.add_argument("--begin", choices=list(STEPS), default="export", help="the step to begin with")
    parser.add_argument("--end", choices=list(STEPS), default="sentences", help="the last step")
    arguments = parser.parse_args()
    paths = (arguments.run, arguments.name, arguments.teacher.resolve(), arguments.maia1.resolve())
    shipping = Shipping(*paths, arguments.hardware, arguments.python, arguments.floats)
    names = list(STEPS)
    for name in names[names.index(arguments.begin) : names.index(arguments.end) + 1]:
        print(f"== {name}", flush=True)
        STEPS[name](shipping)


if __name__ == "__main__":
    main()

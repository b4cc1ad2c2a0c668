"""`movemask audit FILE…`."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from movemask.cli.options import RATING, RatingsCommand, models_dir_option, show_skipped
from movemask.cores import available_cores
from movemask.errors import BulkError, SourceError, require
from movemask.leakage.kinds import KINDS
from movemask.network.registry import load_registry
from movemask.settings import NetworkSettings
from movemask.version import __version__

if TYPE_CHECKING:
    from movemask.audit.read import Form
    from movemask.audit.run import Backend, PartDone
    from movemask.audit.summary import ModelSummary, Threshold

#: Exit status if a threshold is exceeded. 1 is an error, 2 a wrong command line.
EXCEEDED = 3


@click.command("audit-diff", short_help="Compare two finished audits.")
@click.argument("first", metavar="A", type=click.Path(path_type=Path))
@click.argument("second", metavar="B", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def audit_diff(first: Path, second: Path, as_json: bool) -> None:
    """Compare two finished audits, A and B: folders that `movemask audit --out` wrote, or their summary.json.

    Compares networks with the same name, or else the only network of each audit. Positions that are in both tables are
    compared one by one, so that different files do not look like a different network.
    """
    require("audit", "movemask audit-diff")
    from movemask.audit.diff import compare, lines

    comparisons = compare(first, second)
    if as_json:
        click.echo(
            json.dumps({"networks": [comparison.as_json() for comparison in comparisons]}, indent=1)
        )
    else:
        for line in lines(comparisons):
            click.echo(line)


@click.command(
    cls=RatingsCommand,
    short_help="Measure leakage over files of games or positions.",
    epilog=f"Kinds: {', '.join(KINDS)}.",
)
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option(
    "--model", "names", multiple=True, help="Name of the model; repeat it to compare several."
)
@models_dir_option
@click.option(
    "--out", default="audit", show_default=True, help="Folder for the results, or its URI."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["pgn", "fen"]),
    help="[default: by the files' name and content]",
)
@click.option("--chess960", is_flag=True, help="Read FENs as Chess960; a PGN says so itself.")
@click.option(
    "--elo",
    type=RATING,
    nargs=2,
    metavar="SELF [OPPONENT]",
    help="Ratings for positions that have none.",
)
@click.option(
    "--first-ply",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="First ply of a game to take.",
)
@click.option(
    "--every",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Take one ply in N of a game.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Most games or lines to take.")
@click.option(
    "--kinds", default="all", show_default=True, help="Kinds of leakage, separated by commas."
)
@click.option(
    "--threshold", type=click.FloatRange(0, 1, min_open=True), default=1e-4, show_default=True,
    help="Least probability of an illegal move to name it and find its cause.",
)  # fmt: skip
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Worker processes. [default: one per core]"
)
@click.option(
    "--ray",
    metavar="ADDRESS",
    help="Run on Ray: auto, local (starts a cluster here), ray://HOST or HOST:PORT.",
)
@click.option(
    "--gpus", type=click.FloatRange(min=0), default=0, show_default=True,
    help="With --ray: GPUs per worker, such as 0.5; above 0, the networks run on them.",
)  # fmt: skip
@click.option(
    "--keep-going/--no-keep-going", default=None,
    help="Leave out files that cannot be read, and count them. [default: with --ray]",
)  # fmt: skip
@click.option(
    "--progress", type=click.Choice(["bar", "json"]), default="bar", show_default=True,
    help="On stderr: a bar (only on a terminal), or a JSON line per finished chunk.",
)  # fmt: skip
@click.option("--fail-above", multiple=True, metavar="KIND.STATISTIC=VALUE",
    help="Exit with 3 if the figure is above the value or was not measured, such as raw.p99=0.1; may be repeated.",
)  # fmt: skip
@click.option("--restart", is_flag=True, help="Discard the results of an earlier run.")
def audit(
    files: tuple[str, ...],
    names: tuple[str, ...],
    settings: NetworkSettings,
    out: str,
    form: Form | None,
    chess960: bool,
    elo: tuple[float, float] | None,
    first_ply: int,
    every: int,
    limit: int | None,
    kinds: str,
    threshold: float,
    jobs: int | None,
    ray: str | None,
    gpus: float,
    keep_going: bool | None,
    progress: str,
    fail_above: tuple[str, ...],
    restart: bool,
) -> None:
    """Measure leakage over whole FILEs: games (.pgn) or positions (.epd, or one FEN per line), also as .zst or .gz.

    Use - for standard input. Writes positions.parquet, summary.json and report.html into the folder --out. To resume an
    interrupted audit, run the same command again. `movemask audit-diff A B` compares two finished audits.
    """
    require("audit", "movemask audit")
    if ray is not None:
        require("ray", "--ray")
    # Imported here because pyarrow and matplotlib are slow to import.
    from movemask.audit import run as running
    from movemask.audit.assessment import assessment_of, one_sided
    from movemask.audit.files import Folder, is_uri
    from movemask.audit.read import Choice, check, total_bytes
    from movemask.audit.report import page
    from movemask.audit.summary import Threshold, summarise
    from movemask.board.position import Elo
    from movemask.board.textfile import STDIN

    chosen = _kinds(kinds)
    thresholds = [Threshold.read(text, chosen) for text in fail_above]
    keep_going = ray is not None if keep_going is None else keep_going
    for name in files:
        if name != STDIN and not is_uri(name) and not Path(name).exists():
            raise SourceError(f"{name}: no such file")
    if not keep_going:
        check(files, form)
    contracts, digests = _networks(names, settings)
    choice = Choice(chosen, threshold, first_ply, every, chess960, Elo(*elo) if elo else None)
    job = running.Job(files, choice, Folder(out), form, limit, keep_going)
    total = total_bytes(files) if limit is None else limit
    with _writing(out):
        if running.begin(job, digests, restart=restart):
            click.echo(f"{out}: resuming an earlier run", err=True)
        with _backend(ray, contracts, jobs, gpus) as backend:
            try:
                with _progress_on(progress, total, limited=limit is not None) as done:
                    finished = running.make_parts(job, backend, done)
                table = running.join(job, finished, backend)
                models = backend.run(summarise, chosen, list(digests), table.absolute())
            except KeyboardInterrupt:
                click.echo(f"\nstopped; the same command resumes from here ({out})", err=True)
                sys.exit(130)
    skipped = finished.skipped
    show_skipped(skipped)
    if not models:
        many = f" and {len(files) - 5} more" if len(files) > 5 else ""
        raise BulkError(f"{', '.join(files[:5])}{many}: no position to audit")
    command = "movemask audit " + shlex.join(
        sys.argv[2:] if sys.argv[1:2] == ["audit"] else list(files)
    )
    summary = {
        "movemask": __version__,
        "command": command,
        "files": list(files),
        "left_out": dict(skipped.reasons),
        "models": {model.name: model.as_json() for model in models},
    }
    report = page(models, job, command, skipped, thresholds)
    with _writing(out):
        (job.out / running.REPORT).write_bytes(report.encode())
        (job.out / running.SUMMARY).write_bytes((json.dumps(summary, indent=1) + "\n").encode())
        running.end(job)
    for model in models:
        for line in _figures(model):
            click.echo(line)
    for model in models:
        click.echo(assessment_of(model).words)
    for model in models[:1]:
        if warning := one_sided(model):
            click.echo(f"warning: {warning}", err=True)
    click.echo(f"written: {table}, {job.out / running.SUMMARY}, {job.out / running.REPORT}")
    unmeasured = [name for name in digests if name not in {model.name for model in models}]
    for name in unmeasured:
        click.echo(f"{name}: no position could be measured", err=True)
    failed = unmeasured if thresholds else []
    for limit_of in thresholds:
        for model in models:
            if not limit_of.applies(model):
                click.echo(
                    f"{model.name}: {limit_of} is skipped: the model was trained with the mask",
                    err=True,
                )
            elif limit_of.exceeded(model):
                failed.append(model.name)
                click.echo(_exceeded(limit_of, model), err=True)
    if failed:
        sys.exit(EXCEEDED)


def _kinds(text: str) -> tuple[str, ...]:
    if text == "all":
        return KINDS
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in KINDS:
            raise BulkError(f"--kinds: no {name!r}; available: {', '.join(KINDS)}, or all")
    return tuple(kind for kind in KINDS if kind in names)


def _networks(
    names: tuple[str, ...], settings: NetworkSettings
) -> tuple[tuple[Path, ...], dict[str, str]]:
    """Returns the networks' contract files, and their digests by name.

    Raises BulkError for a network that fails its check.
    """
    files = settings.model_folders.files(None)
    # an audit takes the CPU
    registry = load_registry(settings.model_folders, settings.default_model, settings.threads)
    digests: dict[str, str] = {}
    for name in names or (None,):
        entry = registry.entry(name)
        if entry.model is None:
            raise BulkError(f"--model {entry.name}: failed its check: {entry.failure}")
        digests[entry.name] = entry.model.digest
    return tuple(files[name].resolve() for name in digests), digests


def _backend(
    ray: str | None, contracts: tuple[Path, ...], jobs: int | None, gpus: float
) -> AbstractContextManager[Backend]:
    """Returns the processes of this machine, or a Ray cluster."""
    if ray is None:
        from movemask.audit.run import LocalBackend

        return nullcontext(LocalBackend(contracts, jobs or available_cores()))
    from movemask.audit.ray import connect

    return connect(ray, contracts, jobs, available_cores(), gpus)


@contextmanager
def _writing(out: str) -> Iterator[None]:
    """Turns an OSError in writing the folder into a BulkError."""
    try:
        yield
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else error
        raise BulkError(f"--out {out}: cannot be written: {why}") from None


@contextmanager
def _progress_on(
    how: str, total: int | None, *, limited: bool
) -> Iterator[Callable[[PartDone], None]]:
    """Shows progress on stderr: finished bytes of the files, or finished games and lines if `limited`; positions/s.

    A bar is shown only on a terminal.
    """
    from tqdm import tqdm

    unit, name = (" games", "total_items") if limited else ("B", "total_bytes")
    with tqdm(
        total=total,
        unit=unit,
        unit_scale=True,
        disable=None if how == "bar" else True,
        smoothing=0.1,
        file=sys.stderr,
    ) as bar:
        started, sums = time.monotonic(), Counter[str]()

        def done(part: PartDone) -> None:
            fresh = part.positions * part.fresh
            sums.update(positions=part.positions, items=part.items, bytes=part.size, fresh=fresh)
            rate = sums["fresh"] / max(time.monotonic() - started, 1e-9)
            if how == "json":
                line: dict[str, Any] = {
                    "file": part.key.file,
                    "chunk": part.key.number,
                    **sums,
                    "fresh": part.fresh,
                }
                click.echo(json.dumps(line | {name: total, "positions_per_second": rate}), err=True)
            step = part.items if limited else part.size
            bar.update(step if total is None else min(step, total - bar.n))
            bar.set_postfix_str(f"{sums['positions']:,} positions, {rate:,.0f}/s")

        yield done
        if total is not None:
            bar.update(total - bar.n)  # bytes after the last position, such as a checksum


def _exceeded(threshold: Threshold, model: ModelSummary) -> str:
    """Returns why a threshold counts as exceeded."""
    cell, statistic = model.of(threshold.kind), threshold.statistic_of(model)
    why = f"could not be measured at {cell.unmeasured:,} of {cell.positions:,} positions"
    if statistic is not None:
        why = f"is {statistic:.4g}, above {threshold.value:g}"
    return f"{model.name}: {threshold.kind}.{threshold.statistic} {why}"


def _figures(model: ModelSummary) -> Iterator[str]:
    """Yields the main figures of a network, a line each."""
    from movemask.audit.assessment import percent, sides

    white, black = sides(model).values()
    yield f"{model.name}: {model.positions:,} positions ({white:,} with White to move, {black:,} with Black)"
    for kind in ("raw", "multiplied"):
        cell = model.of(kind)
        if cell.count:
            p99 = percent(cell.quantiles["p99"])
            yield f"  {kind} leakage: mean {percent(cell.mean)}, p99 {p99}, maximum {percent(cell.max)}"
    if played := model.played:
        yield (
            f"  {played['moves']:,} played moves: cross-entropy {played['cross_entropy']:.3f} nats, "
            f"top-1 {100 * played['top1']:.1f} %"
        )

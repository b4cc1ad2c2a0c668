"""What users and their programs see of movemask, as text files: the OpenAPI document, `--help`, problems, settings,
the audit's Parquet columns and its summary. docs/api.md and tables of docs/numerics.md and docs/operations.md are among
them.

`python -m tests.snapshots` writes them anew; the change belongs in CHANGELOG.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from click.testing import CliRunner

from movemask.audit.rows import schema
from movemask.cli.main import main
from movemask.leakage.kinds import KINDS
from movemask.policy.normalisation import KERNELS
from movemask.server import problems
from movemask.server.app import create_app
from movemask.server.metrics import Metrics
from movemask.server.settings import Settings
from movemask.settings import PREFIX
from tests.audit.audits import audited
from tests.networks import write_net
from tests.snapshots.api_page import endpoints_page, fields_page

FOLDER = Path(__file__).parent
_DOCS = FOLDER.parents[1] / "docs"

GAMES = """[WhiteElo "1500"]
[BlackElo "2150"]

1. e4 e5 2. Nf3 Nc6 3. Bc4 Bc5 4. O-O Nf6 5. d3 d6 1-0

1. e4 e5 2. Ke3 *
"""


def openapi() -> str:
    return json.dumps(create_app(Settings()).openapi(), indent=1) + "\n"


def api() -> str:
    """docs/api.md with the endpoints."""
    return _page("api.md", "endpoints", endpoints_page(create_app(Settings()).openapi()))


def fields() -> str:
    """docs/fields.md with the objects of requests and answers."""
    return _page("fields.md", "objects", fields_page(create_app(Settings()).openapi()))


def numerics() -> str:
    """docs/numerics.md with the normalisers."""
    rows = [f"| `{name}` | {kernel.gives} |\n" for name, kernel in KERNELS.items()]
    return _page("numerics.md", "normalizers", "".join(["| normalizer | gives |\n|---|---|\n", *rows]))


def operations() -> str:
    """docs/operations.md with the metrics, as PromQL names them."""
    metrics_of_service = Metrics()
    metrics = [
        (f"{one._name}_total" if one._type == "counter" else one._name, one._type, one._labelnames, one._documentation)
        for one in vars(metrics_of_service).values()
        if hasattr(one, "_labelnames")
    ]
    metrics += [(one.name, one.type, (), one.documentation) for one in metrics_of_service.of_service.collect()]
    rows = [
        f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {text} |\n"
        for name, kind, labels, text in metrics
    ]
    return _page(
        "operations.md", "metrics", "".join(["| metric | type | labels | meaning |\n|---|---|---|---|\n", *rows])
    )


def _page(name: str, mark: str, text: str) -> str:
    """A page of docs/ as it is, with this text between its marks."""
    start, end = f"<!-- {mark} -->\n", f"<!-- /{mark} -->\n"
    before, _, rest = (_DOCS / name).read_text().partition(start)
    return before + start + text + end + rest.partition(end)[2]


def help_texts() -> str:
    """`--help` of every command, 120 columns wide."""

    def texts(command: click.Command, words: list[str]) -> list[str]:
        output = CliRunner().invoke(main, [*words, "--help"], prog_name="movemask", terminal_width=120).output
        result = [f"$ movemask {' '.join([*words, '--help'])}\n{output}"]
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in sorted(command.list_commands(context)):
                result += texts(command.get_command(context, name) or command, [*words, name])
        return result

    return "\n".join(texts(main, []))


def problem_types() -> str:
    return "".join(f"{status.value} {name}\n" for name, status in problems.STATUSES.items())


def settings() -> str:
    return "".join(
        f"{PREFIX}{name.upper()} = {Settings.default_shown(name)}\n  {field.description}\n"
        for name, field in Settings.model_fields.items()
    )


def parquet() -> str:
    return "".join(f"{field.name}: {field.type}\n" for field in schema(tuple(KINDS)))


def summary() -> str:
    """The audit's summary.json of two games: every key, with the type of its value."""

    def shape(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shape(one) for key, one in value.items()}
        if isinstance(value, list):
            return [shape(value[0])] if value else []
        return type(value).__name__

    with TemporaryDirectory() as folder:
        models = write_net(Path(folder) / "models").parent
        games, out = Path(folder) / "games.pgn", Path(folder) / "out"
        games.write_text(GAMES)
        audited(games, "--models-dir", models, "--out", out, "--jobs", 1)
        return json.dumps(shape(json.loads((out / "summary.json").read_text())), indent=1) + "\n"


SNAPSHOTS: dict[str, Callable[[], str]] = {
    "openapi.json": openapi,
    "../../docs/numerics.md": numerics,
    "../../docs/operations.md": operations,
    "help.txt": help_texts,
    "problems.txt": problem_types,
    "settings.txt": settings,
    "parquet.txt": parquet,
    "summary.json": summary,
}

#: Written with the others, and compared by nobody: it says what openapi.json says.
PAGES: dict[str, Callable[[], str]] = {"../../docs/api.md": api, "../../docs/fields.md": fields}

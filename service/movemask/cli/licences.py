"""`movemask licences`: the packages that movemask runs on, and their licences."""

from __future__ import annotations

import json
import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution, requires

import click

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

#: What movemask itself needs where it runs from a checkout, without metadata of its own.
_TOP = ("fastapi", "fastapi-offline", "uvicorn", "httptools", "numpy", "onnxruntime", "chess", "click", "orjson",
        "pydantic", "pydantic-settings", "prometheus-client", "sqlalchemy", "alembic", "psycopg", "psycopg-binary",
        "opentelemetry-api", "tomlkit", "onnx", "jinja2", "matplotlib", "pyarrow", "tqdm", "zstandard", "ray",
        "fsspec", "platformdirs", "opentelemetry-sdk", "httpx2")  # fmt: skip


@click.command()
@click.option("--json", "as_json", is_flag=True)
def licences(as_json: bool) -> None:
    """List the installed packages that movemask needs, directly or not, with their versions and licences."""
    rows = [
        {"name": found.metadata["Name"], "version": found.version, "licence": licence_of(found)}
        for found in sorted(needed(), key=lambda found: found.metadata["Name"].lower())
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        click.echo(f"{row['name']:<32} {row['version']:<16} {row['licence']}")


def needed() -> list[Distribution]:
    """The installed packages that movemask needs, directly or not, those of its extras included."""
    try:
        waiting = [_name(line) for line in requires("movemask") or ()]
    except PackageNotFoundError:
        waiting = list(_TOP)
    found: dict[str, Distribution] = {}
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:  # an extra, or another platform's
            continue
        waiting += [_name(line) for line in found[name].requires or () if "extra ==" not in line]
    return list(found.values())


def licence_of(found: Distribution) -> str:
    """The licence that a package states: an SPDX expression, else its classifiers, else the first line of its text."""
    metadata = found.metadata
    for expression in metadata.get_all("License-Expression") or ():
        return str(expression)
    classifiers = [value for value in metadata.get_all("Classifier") or () if value.startswith("License ::")]
    named = [value.rsplit(" :: ", 1)[-1] for value in classifiers if value != "License :: OSI Approved"]
    if named:
        return ", ".join(named)
    text = "\n".join(metadata.get_all("License") or ()).strip()
    return text.splitlines()[0][:80] if text else "not stated"


def _name(requirement: str) -> str:
    match = _NAME.match(requirement)
    return match[0] if match else ""

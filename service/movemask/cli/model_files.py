"""`movemask models remove | rename | export-onnx`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from movemask.cli.models import models_dir_option, own_models_dir, registry_of
from movemask.errors import ContractError, UnknownModel
from movemask.extras import require
from movemask.settings import Settings
from movemask.tasks import model_files


@click.command("remove")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@models_dir_option
def remove_model(name: str, yes: bool, models_dir: Path | None) -> None:
    """Delete the model NAME from your models folder: its contract and its network."""
    contract = _own_contract(name, models_dir)
    if not yes:
        click.confirm(f"delete {contract} and its network?", abort=True)
    for file in model_files.remove(contract):
        click.echo(f"deleted: {file}")


@click.command("rename")
@click.argument("name")
@click.argument("new_name")
@models_dir_option
def rename_model(name: str, new_name: str, models_dir: Path | None) -> None:
    """Give the model NAME of your models folder a NEW_NAME."""
    require("import", "movemask models rename")
    from movemask.tasks import installation  # imported here because it imports onnx, which is slow

    contract = _own_contract(name, models_dir)
    installation.checked_name(new_name)
    known = Settings.read(models_dir=models_dir).model_folders.files(None)
    if new_name in known:
        raise ContractError(f"{new_name}: there is a model of that name already, {known[new_name]}")
    installation.refuse_existing(contract.parent, new_name, replace=False)
    click.echo(f"{name} is now {new_name}: {model_files.rename(contract, new_name)}")


@click.command("export-onnx")
@click.argument("name")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--replace", is_flag=True, help="Overwrite FILE.")
@models_dir_option
def export_model(name: str, file: Path, replace: bool, models_dir: Path | None) -> None:
    """Write the network NAME to FILE as ONNX, with its contract in the file's metadata."""
    require("import", "movemask models export-onnx")
    from movemask.tasks.export import export_onnx

    entry = registry_of(models_dir).entry(name)
    contract = Settings.read(models_dir=models_dir).model_folders.files(None)[entry.name]
    export_onnx(entry, contract, file, replace=replace)
    click.echo(f"written: {file}; elsewhere, `{shlex.join(['movemask', 'models', 'add', file.name])}` reads it")


def _own_contract(name: str, models_dir: Path | None) -> Path:
    """The contract of a model that may be changed; raises UnknownModel, or ContractError for a shipped one."""
    folder = own_models_dir(models_dir)
    known = Settings.read(models_dir=models_dir).model_folders.files(None)
    if name not in known:
        raise UnknownModel(f"model: no model {name!r}; there are {', '.join(known)}")
    if known[name].parent != folder:
        raise ContractError(f"{name} is a shipped model, which is not changed; the models of {folder} can be")
    return known[name]

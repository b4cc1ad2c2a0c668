"""`movemask models list | vocabulary | import | add | default | check | remove | export-onnx`, and `calibrate`."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from movemask.atomic_writes import atomic_write
from movemask.board.textfile import TextSource
from movemask.cli.options import Progress, models_dir_option, own_models_dir, registry_of
from movemask.errors import ContractError, ModelError, UnknownModel, require
from movemask.leakage.known import BY_TAG
from movemask.network.contract import read_contract
from movemask.network.files import DEFAULT, ModelFolders, record_default
from movemask.network.model import Model
from movemask.network.onnx import provider_named
from movemask.network.registry import Entry, load_entry, model_files, open_model
from movemask.network_tools import calibration, diagnosis
from movemask.network_tools.diagnosis import Diagnosis, Finding, QuickLook, TagFigures
from movemask.network_tools.families import FAMILIES
from movemask.settings import NetworkSettings

if TYPE_CHECKING:
    from movemask.network_tools.installation import Judge

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@click.group()
def models() -> None:
    """List, check, import, add, choose, export and remove networks."""


@models.command("list", short_help="List the models, and what is wrong with one.")
@models_dir_option
def list_models(settings: NetworkSettings) -> None:
    """List the models: the default with a *, and with its fault one that does not keep its contract."""
    registry = registry_of(settings)
    for entry in registry:
        mark = "*" if entry.name == registry.default else " "
        failure = f"  {entry.failure}" if entry.failure else ""
        click.echo(f"{mark} {entry.name}{failure}")
        if entry.model is not None:
            terms, card = entry.model.contract.terms, entry.model.contract.card
            click.echo(f"    {terms.planes}  {terms.vocabulary}  {entry.model.digest[:19]}")
            click.echo(
                f"    licence {card.get('licence', 'not stated')}; source {card.get('source', 'not stated')}"
            )


def _card_options(command: Callable[..., None]) -> Callable[..., None]:
    """Returns the options of `import` and `add`: the card, and --force."""
    for option in (
        click.option(
            "--force", is_flag=True, help="Add a network that is read no better than chance."
        ),
        click.option("--source", help="Where the model is from, for its card."),
        click.option("--licence", help="Licence, for the model's card."),
    ):
        command = option(command)
    return command


@models.command("import", short_help="Convert a weight file of lc0 or Maia-1 to ONNX.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--name", help="Name of the model; otherwise the file's name.")
@click.option("--replace", is_flag=True, help="Replace a model of that name.")
@_card_options
@models_dir_option
def import_model(
    file: Path,
    name: str | None,
    replace: bool,
    licence: str | None,
    source: str | None,
    force: bool,
    settings: NetworkSettings,
) -> None:
    """Convert lc0's own weight FILE (.pb.gz; Maia-1 and other classical networks) to ONNX with its contract.

    Refuses a network that is read no better than chance on real games, unless --force is given.
    """
    require("import", "movemask models import")
    from movemask.network_tools import installation  # imported here because onnx is slow to import

    place = _place(name or file.name.removesuffix(".gz").removesuffix(".pb"), replace, settings)
    imported = installation.import_lc0(
        file, *place, _card(licence, source), _judge(place[1], force=force)
    )
    _show_installed(imported.entry, settings)


@models.command("add", short_help="Add an ONNX file.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--contract",
    "family",
    type=click.Choice(list(FAMILIES)),
    help="Family of the network; guessed if left out.",
)
@click.option("--planes", help="Name of its planes, of movemask or of an installed package.")
@click.option(
    "--vocabulary", metavar="NAME|FILE", help="Name of its vocabulary, or a file of moves (.txt)."
)
@click.option(
    "--perspective",
    type=click.Choice(["side_to_move", "white"]),
    help="Whether Black's moves are flipped, for 64 x 64 or a file of moves.",
)
@click.option(
    "--reorder",
    multiple=True,
    metavar="NAME",
    help="Put an order into the network that the diagnosis named. Can be repeated.",
)
@click.option("--name", help="Name of the model; otherwise the file's name.")
@click.option(
    "--trained-with-mask",
    is_flag=True,
    default=None,
    help="The network's logits for illegal moves mean nothing.",
)
@click.option("--replace", is_flag=True, help="Replace a model of that name.")
@_card_options
@models_dir_option
def add_model(
    file: Path,
    name: str | None,
    replace: bool,
    licence: str | None,
    source: str | None,
    force: bool,
    settings: NetworkSettings,
    **options: Any,
) -> None:
    """Add an ONNX FILE. Takes its contract from FILE or from the TOML beside it, or guesses it, and prints it.

    Where it cannot guess the contract, it writes a skeleton beside FILE for you to complete. Refuses a network that is
    read no better than chance on real games, unless --force is given.
    """
    require("import", "movemask models add")
    from movemask.network_tools import installation
    from movemask.network_tools.external_data import size_of

    place = _place(name or _stem(file), replace, settings)
    choices = installation.Choices(**options, card=_card(licence, source))
    if (size := size_of(file)) > _LARGE:
        click.echo(
            f"{file.name} has {size / 1e9:.1f} GB; its check takes up to {2 * size / 1e9:.0f} GB of memory"
        )
    try:
        added = installation.add_onnx(
            file, *place, choices, settings.trial_seconds, _judge(place[1], force=force)
        )
    except installation.Incomplete as error:
        raise ContractError(f"{error}. {_skeleton_message(file, error.skeleton)}") from None
    _show_installed(added.entry, settings)


#: Networks above this many bytes are told with the memory that they take.
_LARGE = 500_000_000


def _stem(file: Path) -> str:
    return file.name.removesuffix(".gz").removesuffix(".onnx")


def _skeleton_message(file: Path, text: str) -> str:
    """Writes a skeleton beside a network, unless there is a file. Tells what to do with it."""
    from movemask.network_tools.skeleton import open_lines

    target = file.with_name(f"{_stem(file)}.toml")
    where = f"complete {' and '.join(open_lines(text)) or 'it'}, and run `movemask models add {file.name}` again"
    checks = "it is then judged by the check (tensors, outputs, batches, value) and by a quick look at play"
    if target.exists():
        return f"{target.name}, beside it, is not a contract for it: {where}"
    try:
        with atomic_write(target) as stream:
            stream.write(text.encode())
    except OSError as error:
        return f"{target}: cannot be written: {error.strerror}; write a contract with these lines:\n{text}"
    return f"The skeleton of a contract is written to {target}: {where}; {checks}"


def _card(licence: str | None, source: str | None) -> dict[str, str]:
    return {key: value for key, value in (("licence", licence), ("source", source)) if value}


def _judge(name: str, *, force: bool) -> Judge:
    """Prints how a network is read and the result of a quick look. Refuses a network that is read wrongly."""

    def judge(model: Model, notes: Sequence[str]) -> None:
        for line in notes:
            click.echo(line)
        look = diagnosis.quick_look(model)
        click.echo(quick_table(look, name))
        if look.unreadable and not force:
            raise ContractError(
                f"{name} is not added: {look.unreadable}; correct the network; --force adds it anyway, and requests "
                "for such positions then fail"
            )
        if look.verdict == "wrong" and not force:
            raise ContractError(
                f"{name} is not added: it is READ WRONGLY, or untrained; --force adds it anyway, and then "
                f"`movemask models check {name} --diagnose` compares it with known mistakes"
            )

    return judge


def _place(
    name: str, replace: bool, settings: NetworkSettings, option: str = "--name"
) -> tuple[Path, str]:
    """Returns the user's folder, and the name of a new model in it.

    Raises ContractError if the name is not valid, or is taken and `replace` is not set. `option` is the flag with which
    the user can give another name.
    """
    folder = own_models_dir(settings)
    if not _NAME.fullmatch(name):
        raise ContractError(
            f"{name!r} is not a model name: use at most 64 lower-case letters, digits, '.', '_' and '-'; give "
            f"{option}{_suggested(name)}"
        )
    if settings.models_dir is None and name in settings.model_folders.preferred and not replace:
        raise ContractError(
            f"{name} is the name of a shipped model: choose another {option}, or use --replace to override it"
        )
    there = [ending for ending in (".onnx", ".toml") if (folder / f"{name}{ending}").exists()]
    if there and not replace:
        raise ContractError(
            f"{folder / name}{there[0]} already exists: use --replace, or choose another {option}"
        )
    return folder, name


def _suggested(name: str) -> str:
    """Returns a valid name similar to this name, after a blank; empty if nothing valid remains."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9._]+", "-", plain).strip("-._")[:64]
    return f" {words}" if _NAME.fullmatch(words) else ""


def _show_installed(entry: Entry, settings: NetworkSettings) -> None:
    for step in entry.steps:
        click.echo(f"  {step.name:<11} {step.found}")
    assert entry.model is not None
    command = ["movemask", "predict", "--model", entry.name]
    command += ["--models-dir", str(settings.models_dir)] if settings.models_dir else []
    click.echo(f"{entry.name} is added ({entry.model.digest[:19]}). Try `{shlex.join(command)}`.")
    click.echo("A running service serves it after `movemask reload`.")
    click.echo(
        f"Requests that name no model are answered by {_recorded_default(settings)}. `movemask models default NAME` "
        "changes that."
    )


def _recorded_default(settings: NetworkSettings) -> str:
    """Returns the default model.

    It is recorded in the user's folder if that holds it, so that no other takes its place.

    Where no default is chosen, it is the first by name that is served.
    """
    folders, own = settings.model_folders, own_models_dir(settings)
    files = folders.files(settings.default_model)
    default = settings.default_model or folders.default()
    if default is None:
        default = next(
            (name for name, file in files.items() if load_entry(file, settings.threads).served),
            next(iter(files)),
        )
    if folders.recorded is None and default in files and files[default].parent == own:
        record_default(own, default)
    return default


@models.command("default", short_help="Choose the model of requests that name none.")
@click.argument("name")
@models_dir_option
def default_model(name: str, settings: NetworkSettings) -> None:
    """Make NAME the model of requests that name none, in your models folder."""
    folder = own_models_dir(settings)
    _contract(name, settings)  # raises UnknownModel
    record_default(folder, name)
    click.echo(f"Requests that name no model are answered by {name}, once the service is reloaded.")
    if settings.default_model not in (None, name):
        click.echo(f"But not while MOVEMASK_DEFAULT_MODEL names {settings.default_model}.")


@models.command("check", short_help="Check models against their contracts.")
@click.argument("name", required=False)
@click.option(
    "--diagnose",
    is_flag=True,
    help="Compare the contract with plausible alternatives, on real games.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
@models_dir_option
def check_models(
    name: str | None, diagnose: bool, as_json: bool, settings: NetworkSettings
) -> None:
    """Check NAME, or every model, against its contract, and take a quick look at its play.

    Exits with 1 if a check fails. With --diagnose, also exits with 1 if the network is read wrongly: it is no better
    than chance, or another way to read it clearly fits better. A diagnosis takes one to two minutes of CPU time for a
    network of a few megabytes.
    """
    registry = registry_of(settings)
    entries = list(registry) if name is None else [registry.entry(name)]
    if diagnose:
        named = (
            entries[0].name
            if len(entries) == 1
            else f"{len(entries)} networks (give a NAME to diagnose one)"
        )
        cost = (
            "one to two minutes of CPU time for a network of a few megabytes, more for a larger one"
        )
        click.echo(f"diagnosing {named}: {cost}", err=True)
    results: list[dict[str, Any]] = []
    diagnosed: dict[str, tuple[str, Diagnosis]] = {}
    for number, entry in enumerate(entries, 1):
        result: dict[str, Any] = {"name": entry.name, "keeps_contract": entry.model is not None}
        result |= {
            "failure": entry.failure,
            "digest": entry.digest,
            "steps": [asdict(step) for step in entry.steps],
        }
        results.append(result)
        if not as_json:
            click.echo(_check_table(entry))
        if entry.model is not None and not diagnose:
            look = diagnosis.quick_look(entry.model)
            result["quick_look"] = look.as_json()
            if not as_json:
                click.echo(quick_table(look, entry.name))
                if look.verdict == "wrong":
                    click.echo(f"  `movemask models check {entry.name} --diagnose` says why.")
        if not diagnose or entry.contract is None or not (entry.steps and entry.steps[0].passed):
            continue
        same = f"{entry.digest} {entry.contract.model_dump_json(exclude={'network', 'card'})}"
        if known := diagnosed.get(same):
            if not as_json:
                click.echo(f"  the same network and contract as {known[0]}: see above")
        else:
            if len(entries) > 1:
                click.echo(f"diagnosing {entry.name} ({number} of {len(entries)})", err=True)
            model = entry.model or open_model(
                settings.model_folders.files(None)[entry.name],
                settings.threads,
                provider_named(settings.provider),
            )
            progress = Progress()
            result_of_diagnosis = diagnosis.diagnose(model, progress)
            progress.clear()
            diagnosed[same] = entry.name, result_of_diagnosis
            if not as_json:
                click.echo(diagnosis_table(result_of_diagnosis))
        result["diagnosis"] = diagnosed[same][1].as_json()
    if as_json:
        click.echo(json.dumps({"models": results}, indent=1))
    if any(result.misread for _, result in diagnosed.values()) or any(
        entry.model is None for entry in entries
    ):
        sys.exit(1)


def _check_table(entry: Entry) -> str:
    lines = [f"{entry.name}: {'keeps its contract' if entry.model else 'FAILS and is not served'}"]
    lines += [
        f"  {'ok  ' if step.passed else 'FAIL'} {step.name:<11} {step.found}"
        for step in entry.steps
    ]
    return "\n".join(lines if entry.steps else [*lines, f"  FAIL {entry.failure}"])


@models.command("remove", short_help="Delete a model from your models folder.")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@models_dir_option
def remove_model(name: str, yes: bool, settings: NetworkSettings) -> None:
    """Delete the model NAME from your models folder: its contract and its network."""
    folder = own_models_dir(settings)
    contract = _contract(name, settings)
    if contract.parent != folder:
        raise ContractError(
            f"{name} is a shipped model and cannot be removed; only models in {folder} can"
        )
    if not yes:
        click.confirm(f"delete {contract} and its network?", abort=True)
    others = [file for file in ModelFolders((folder,)).found().values() if file != contract]
    shared = {file for other in others for file in _files(other)}
    unshared = [file for file in _files(contract) if file not in shared and file.exists()]
    for file in [contract, *unshared]:
        file.unlink()  # the contract first: a service that starts meanwhile never sees half a model
        click.echo(f"deleted: {file}")
    if ModelFolders((folder,)).recorded == name:
        (folder / DEFAULT).unlink()
    default = _recorded_default(settings) if settings.model_folders.found() else "none"
    click.echo(
        f"Requests that name no model are answered by {default}, once the service is reloaded."
    )


def _files(contract: Path) -> tuple[Path, ...]:
    try:
        return model_files(contract, read_contract(contract))
    except ModelError:  # a contract that cannot be read can still be removed
        return model_files(contract, None)


@models.command("export-onnx", short_help="Write a network with its contract to an ONNX file.")
@click.argument("name")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--replace", is_flag=True, help="Overwrite FILE.")
@models_dir_option
def export_model(name: str, file: Path, replace: bool, settings: NetworkSettings) -> None:
    """Write the network NAME to FILE as ONNX, with its contract in the file's metadata."""
    require("import", "movemask models export-onnx")
    from movemask.network_tools.installation import export_onnx

    entry = registry_of(settings).entry(name)
    export_onnx(entry, _contract(entry.name, settings), file, replace=replace)
    click.echo(
        f"written: {file}; on another machine, add it with `{shlex.join(['movemask', 'models', 'add', file.name])}`"
    )


def _contract(name: str, settings: NetworkSettings) -> Path:
    known = settings.model_folders.files(None)
    if name not in known:
        raise UnknownModel(f"model: no model {name!r}; available: {', '.join(known)}")
    return known[name]


@click.command(short_help="Fit a model's temperature to the moves of games.")
@click.argument("games", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--model", help="Name of the model; otherwise the default.")
@models_dir_option
@click.option(
    "--first-ply",
    type=click.IntRange(min=0),
    default=8,
    show_default=True,
    help="First ply of a game to take.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Most positions to take.")
@click.option("--dry-run", is_flag=True, help="Show the fit, but write nothing.")
def calibrate(
    games: str,
    model: str | None,
    settings: NetworkSettings,
    first_ply: int,
    limit: int | None,
    dry_run: bool,
) -> None:
    """Fit a model's temperature to the moves of GAMES and write it to its contract.

    GAMES is a PGN, uncompressed or compressed (.gz, .zst), or - for standard input. A fit is refused, and nothing is
    written, if there are fewer than 500 moves, if it is at a limit of the search, or if its standard error is above a
    tenth of the temperature.
    """
    own = None if dry_run else own_models_dir(settings)
    chosen = registry_of(settings).get(model)
    contract = _contract(chosen.name, settings)
    if own is not None and own.is_dir() and not os.access(own, os.W_OK):
        raise ContractError(f"{own}: cannot be written; name another folder with --models-dir")

    progress = Progress()
    with TextSource(games) as source:
        fitted = calibration.fitted(
            chosen,
            source,
            first_ply=first_ply,
            limit=limit,
            progress=lambda count: progress(f"{count} positions"),
        )
    progress.clear()
    for reason in fitted.left_out[:10]:
        click.echo(f"left out: {reason}", err=True)
    fit = fitted.calibration
    click.echo(
        f"{chosen.name}: temperature {fit.temperature:.4f} ± {fit.standard_error:.4f} (standard error)"
    )
    click.echo(
        f"cross-entropy {fit.cross_entropy_before:.4f} at temperature 1, {fit.cross_entropy_after:.4f} after the fit"
    )
    click.echo(
        f"from {fitted.positions} moves of {fitted.games} games; {len(fitted.left_out)} games left out"
    )
    if fitted.without_slot:
        click.echo(f"{fitted.without_slot} moves are not judged: the network has no slot for them")
    if fitted.refusal:
        raise ContractError(f"{chosen.name}: the fit is refused: {fitted.refusal}")
    if own is not None:
        if contract.parent != own:
            contract = calibration.copied(contract, own)
            click.echo(f"copied to {own}, because the shipped models are never changed")
        calibration.write(contract, fitted, "standard input" if games == "-" else Path(games).name)
        click.echo(f"written to {contract}")


def quick_table(look: QuickLook, name: str) -> str:
    """Returns the quick look at the network `name` in one line; if it finds faults, also a table and sentences."""
    if look.overall is None or look.overall.perplexity is None or look.overall.at_random is None:
        return f"  CANNOT BE READ in a position of real games: {look.unreadable}"
    usual = f" (read rightly: up to {_USUAL:.1%})" if look.uses_leakage else ""
    line = (
        f"  {'quick look':<11} {look.positions} positions of games. Perplexity of the moves played: "
        f"{look.overall.perplexity:.3g} (at random: {look.overall.at_random:.3g}). "
        f"Raw leakage: {look.overall.raw_mean:.2%}{usual}."
    )
    if look.verdict == "right":
        return f"{line} Nothing is wrong, as far as this shows."
    lines = [line, *_tag_rows(look.by_tag)]
    if look.chance:
        lines.append(
            f"  NO BETTER THAN CHANCE: {_joined(look.chance)}. It is READ WRONGLY, or untrained."
        )
    else:
        lines.append(f"  SUSPICIOUS: {_joined(look.leaks)}.")
        lines.append(
            f"  `movemask models check {name} --diagnose` compares it with other ways to read it."
        )
    return "\n".join(lines)


#: Raw leakage of correctly read networks with White or Black to move, at most.
_USUAL = max(BY_TAG["white"], BY_TAG["black"])


def _joined(faults: Sequence[str]) -> str:
    """Returns the faults by kind of position in one line: the kinds, and the reason of the first."""
    kinds = [fault.split(": ", 1)[0] for fault in faults]
    if len(faults) == 1:
        return faults[0]
    return f"{', '.join(kinds)}. In {faults[0]}"


def _tag_rows(by_tag: Sequence[TagFigures]) -> Iterator[str]:
    heads = f"{'positions':>9} {'raw mean':>9} {'raw max':>9} {'perplexity':>10} {'at random':>9}"
    yield f"  {'as declared':<12} {heads}"
    for row in by_tag:
        own, random = (f"{p:.2f}" if p else "" for p in (row.perplexity, row.at_random))
        yield f"  {row.name:<12} {row.positions:>9} {row.raw_mean:>9.2g} {row.raw_max:>9.2g} {own:>10} {random:>9}"


def diagnosis_table(diagnosis: Diagnosis) -> str:
    """Returns the declared contract's figures by tag, the ranked alternatives, and the advice."""
    lines: list[str] = []
    if diagnosis.unreadable:
        lines += ["", f"  as declared it cannot be read: {diagnosis.unreadable}"]
    if diagnosis.by_tag:
        lines += ["", *_tag_rows(diagnosis.by_tag)]
    lines += [
        "",
        f"  {'read otherwise':<40} {'positions':>9} {'z':>6} {'leakage':>8} {'moves':>8} {'result':>8}  fits",
    ]
    lines += [_finding_row(finding) for finding in diagnosis.findings]
    what = (
        "leakage is the mean change of ln raw leakage"
        if diagnosis.uses_leakage
        else "leakage is not used, because the network was trained with the mask"
    )
    lines.append(
        f"  A z above 5 is clear. {what[0].upper()}{what[1:]}. Moves and result are mean changes of ln probability."
    )
    lines.append("")
    if diagnosis.chance:
        lines.append(f"  NO BETTER THAN CHANCE: {_joined(diagnosis.chance)}.")
    if diagnosis.better:
        for finding in diagnosis.better[:3]:
            lines.append(f"  CLEARLY BETTER: {finding.advice}")
            lines += _orders(finding)
    elif diagnosis.misread:
        lines.append(
            "  None of the known mistakes explains it: correct the network."
            if diagnosis.unreadable
            else "  READ WRONGLY, or untrained: none of the known mistakes explains it."
        )
    else:
        lines.append(
            "  It is read rightly, as far as this shows: no other way to read it is clearly better."
        )
    return "\n".join(lines)


def _orders(finding: Finding) -> Iterator[str]:
    """Yields the order of indices that undoes a mistake in a network, by tensor."""
    for tensor, reorder in (finding.order or {}).items():
        if len(reorder.indices) <= _SHOWN:
            sizes = ", ".join(["B", *map(str, reorder.shape)])
            order = " ".join(map(str, reorder.indices))
            yield f"    the order of {tensor!r} as [{sizes}], along axis {reorder.axis}: {order}"
        else:
            yield f"    --json has the order of the {len(reorder.indices)} indices of {tensor!r}"


#: Most indices of an order that are printed.
_SHOWN = 128


def _finding_row(finding: Finding) -> str:
    def number(value: float | None) -> str:
        return f"{value:+8.4f}" if value is not None else " " * 8

    figures = f"{number(finding.leakage)} {number(finding.moves)} {number(finding.result)}"
    verdict = (
        "better, yet no better than chance" if finding.verdict == "chance" else finding.verdict
    )
    if finding.impossible is not None:
        verdict = f"impossible: {finding.impossible[:70]}"
    return f"  {finding.name:<40} {finding.positions:>9} {finding.z:>6.1f} {figures}  {verdict}"

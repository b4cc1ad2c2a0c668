"""Installs a network into a models folder, and exports a network as an ONNX file that carries its contract.

A network is written and checked in a temporary folder, then renamed into place: a failure leaves the models folder
unchanged. `models add` of an exported file needs no guess.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import onnx
import tomlkit
from google.protobuf.message import DecodeError
from onnx import TensorProto

from movemask.atomic_writes import atomic_write
from movemask.board.position import Elo, Position
from movemask.encoding.moves_file import MovesFile, Perspective
from movemask.encoding.vocabularies import FROM_TO, vocabulary
from movemask.errors import ContractError, InferenceFailed, ModelError, MovemaskError
from movemask.network.check import CHECK_FENS
from movemask.network.contract import (
    Contract,
    is_moves_file,
    read_contract,
    read_moves_file,
    read_table,
)
from movemask.network.files import MAX_NETWORK_BYTES, digest_of, read_onnx, refuse_external
from movemask.network.model import Model
from movemask.network.onnx import OnnxSession
from movemask.network.registry import Entry, load_entry, model_digest, model_files
from movemask.network.trial import confine, finish, tried
from movemask.network_tools.alternatives import reorderings
from movemask.network_tools.external_data import size_of, taken_in
from movemask.network_tools.families import FAMILIES, Family, chosen_families
from movemask.network_tools.family_match import Change, UnknownFamily, fitted
from movemask.network_tools.guess import guess, settled
from movemask.network_tools.lc0 import PLANES, POLICY, VALUE, WDL, graph, read_network
from movemask.network_tools.rewriting import rewrite, write_reorder
from movemask.network_tools.skeleton import skeleton
from movemask.signatures import GZIP, ONNX, described

#: Largest difference of a number between a batch and a run of one position, for a network whose batch is freed.
_SAME = 1e-4


@dataclass(frozen=True, slots=True)
class Installed:
    """The checked model, and notes for the user: assumptions and omissions."""

    entry: Entry
    notes: tuple[str, ...]


class Judge(Protocol):
    """Looks at a checked model, and at the notes on how it is read, before it is moved into its folder."""

    def __call__(self, model: Model, notes: Sequence[str]) -> None:
        """Raises ContractError to refuse the model."""
        ...


def _with_notes(judge: Judge | None, notes: Sequence[str]) -> Callable[[Model], None] | None:
    return None if judge is None else partial(judge, notes=notes)


#: Names of the nine files of CSSLab/maia-chess.
_MAIA_1 = re.compile(r"maia-1[1-9]00\.pb(\.gz)?")
_MAIA_1_SHAPE = (6, 64)


def import_lc0(
    file: Path,
    folder: Path,
    name: str,
    card: Mapping[str, str] = MappingProxyType({}),
    judge: Judge | None = None,
) -> Installed:
    """Converts and installs an lc0 weight file. `card` is added to the contract's card.

    Raises WeightsError, or ContractError if the result fails its check or the `judge` refuses it.
    """
    network = read_network(file)
    policy = "flat" if network.policy_hidden is None else "convolution"
    notes = [f"{len(network.blocks)} blocks of {network.filters} filters, policy {policy}"]
    value: dict[str, Any] = {"name": VALUE, "order": "score"}
    if network.wdl:
        value = {"name": WDL, "order": "win_draw_loss", "softmaxed": True}
    table: dict[str, Any] = {
        "contract": {"planes": "lc0-112", "vocabulary": "lc0-1858", "trained_with_mask": False},
        "inputs": {"planes": PLANES},
        "outputs": {"logits": POLICY, "value": value},
        "card": {"source": f"{file.name}, converted by movemask models import"},
    }
    if network.licence:
        table["card"]["licence"] = network.licence
    elif _MAIA_1.fullmatch(file.name) and (len(network.blocks), network.filters) == _MAIA_1_SHAPE:
        table["card"]["licence"] = "GPL-3.0"
        table["card"]["source"] = f"github.com/CSSLab/maia-chess, {table['card']['source']}"
        notes.append(
            "licence GPL-3.0, that of CSSLab/maia-chess: the file has the name and the shape of its networks"
        )
    table["card"] |= card
    with _staging(folder, name) as staging:
        converted = staging / f"{name}.onnx"
        converted.write_bytes(graph(network).SerializeToString())
        entry = install(folder, name, table, [converted], _with_notes(judge, notes))
    return Installed(entry, tuple(notes))


@dataclass(frozen=True, slots=True)
class Choices:
    """What a user says about a network. What is left out is guessed.

    family : the network's family
    planes, vocabulary, perspective : keys of the contract; `vocabulary` may be the path of a file of moves
    reorder : orders in which the network takes or gives its numbers (`alternatives.reorderings`)
    card : added to the contract's card
    """

    family: str | None = None
    planes: str | None = None
    vocabulary: str | None = None
    perspective: Perspective | None = None
    trained_with_mask: bool | None = None
    reorder: tuple[str, ...] = ()
    card: Mapping[str, str] = field(default_factory=dict)

    @property
    def guesses(self) -> bool:
        """Whether the user says more of the contract than the network's own contract could."""
        terms = (
            self.family,
            self.planes,
            self.vocabulary,
            self.perspective,
            self.trained_with_mask,
        )
        return any(value is not None for value in terms)

    def families(self) -> tuple[list[Family], MovesFile | None]:
        """Returns the families to choose from, and the file of moves; no family if the user names nothing.

        Raises ContractError.
        """
        if self.family is not None:
            if self.family not in FAMILIES:
                raise ContractError(
                    f"no network family {self.family!r}; available: {', '.join(FAMILIES)}"
                )
            return [FAMILIES[self.family]], None
        if self.planes is None and self.vocabulary is None:
            return [], None
        terms = {} if self.perspective is None else {"perspective": self.perspective}
        if self.vocabulary is None or not is_moves_file(self.vocabulary):
            words = self.vocabulary
            if words in FROM_TO and self.perspective == "white" and not words.endswith("-white"):
                words = f"{words}-white"
            if words is not None:
                vocabulary(words)
            return chosen_families(self.planes, words, terms), None
        if self.perspective is None:
            raise ContractError(
                "--perspective: a file of moves needs it: side_to_move if Black's moves are flipped, else white"
            )
        file = read_moves_file(Path(self.vocabulary))
        return chosen_families(self.planes, file.vocabulary(self.perspective), terms), file


class Incomplete(ContractError):
    """A network whose contract cannot be guessed. `skeleton` is a contract for the user to complete."""

    def __init__(self, message: str, skeleton: str) -> None:
        super().__init__(message)
        self.skeleton = skeleton


def add_onnx(
    file: Path,
    folder: Path,
    name: str,
    choices: Choices = Choices(),
    trial_seconds: float = 0,
    judge: Judge | None = None,
) -> Installed:
    """Installs an ONNX file with a contract: by the user's choices, or the one in the file or
    beside it, or a guess.

    External weights are taken into the file if it has room. A batch fixed at 1 is freed if the
    numbers stay the same.

    trial_seconds : if not 0, a process of its own does all this first, within this time: the file
        may crash it, loop without end or ask for all memory

    Raises Incomplete if the contract cannot be guessed, or ContractError, also if the `judge`
    refuses the model.
    """
    with _staging(folder, name) as staging:
        if trial_seconds:
            return _added_after_trial(file, folder, name, choices, staging, trial_seconds, judge)
        table, files, notes = _prepared(file, staging, name, choices)
        return Installed(install(folder, name, table, files, _with_notes(judge, notes)), notes)


def _prepared(
    file: Path, staging: Path, name: str, choices: Choices
) -> tuple[dict[str, Any], list[Path], tuple[str, ...]]:
    """Returns the contract's table, the model's files in the folder `staging`, and notes for the user."""
    notes: list[str] = []
    raw, model = _parsed(file)
    at = staging / file.name  # the name in messages, and the folder of large weights
    weights, data = taken_in(file, model, staging / f"{name}.onnx.data")
    if weights:
        raw = model.SerializeToString()
        notes.append(f"weights copied: {weights / 2**20:.1f} MiB from the file next to {file.name}")
    refuse_external(raw, file.name, None if data is None else data.name)
    table, moves = (None, None) if choices.guesses else _contract_of(file, model, notes)
    guessed_here = table is None
    if table is None:
        families, moves = choices.families()
        session = _opened(at, model, raw)
        try:
            fit = fitted(session, families)
        except UnknownFamily as error:
            raise Incomplete(str(error), skeleton(session, choices)) from None
        if fit.changes:
            raw, session = _rewritten(at, model, fit.changes)
        try:
            guessed = guess(session, fit, choices.trained_with_mask)
        except InferenceFailed:  # of a batch: a size of 1 may be baked in behind the inputs
            raw, session = _declared_alone(at, model)
            guessed = guess(session, fit, choices.trained_with_mask)
        if guessed.changes:
            raw, session = _rewritten(at, model, guessed.changes)
        table = guessed.table
        changes = (*fit.changes, *guessed.changes)
        notes += [*guessed.notes, *(change.note for change in changes if change.note)]
    else:
        session = _opened(at, model, raw)
    if moves is not None:
        table["contract"]["vocabulary"] = f"{name}.txt"
        (staging / f"{name}.txt").write_bytes(moves.content)
    contract = read_table(table, staging)
    read = Model(file.stem, "", contract, session)
    if guessed_here and (turned := settled(read, table)):
        guess_of_value = f"output {table['outputs']['value']['name']!r} is "
        notes = [*(note for note in notes if not note.startswith(guess_of_value)), turned]
        contract = read_table(table, staging)
    if session.one_by_one:
        raw, note = _freed(at, model, raw, contract)
        notes.append(note)
    for order in choices.reorder:
        raw = _reordered(model, contract, order)
        notes.append(f"put into the graph: {order}")
    (staging / f"{name}.onnx").write_bytes(raw)
    if data is not None:
        table["network"] = {"data": data.name}
    table["card"] = {
        "source": f"{file.name}, added by movemask models add",
        **table.get("card", {}),
        **choices.card,
    }
    present = (staging / f"{name}{ending}" for ending in (".onnx", ".onnx.data", ".txt"))
    return table, [path for path in present if path.exists()], tuple(notes)


def _contract_of(
    file: Path, model: onnx.ModelProto, notes: list[str]
) -> tuple[dict[str, Any] | None, MovesFile | None]:
    """Returns the contract that a file carries, or the one beside it, with its file of moves.

    None if there is none.
    """
    if (table := carried_contract(model)) is not None:
        notes.append("its contract is the one that the file carries")
        return table, None
    beside = file.with_name(file.name.removesuffix(".gz")).with_suffix(".toml")
    if not beside.exists():
        return None, None
    contract = read_contract(beside)
    notes.append(f"its contract is {beside.name}, beside it")
    table = tomlkit.parse(beside.read_text(encoding="utf-8")).unwrap()
    return {key: table[key] for key in table if key != "network"}, contract.terms.moves_file


def _reordered(model: onnx.ModelProto, contract: Contract, order: str) -> bytes:
    """Returns the network with its numbers in another order. Raises ContractError."""
    orders = reorderings(contract)
    if order not in orders:
        raise ContractError(
            f"--reorder: no {order!r} for this network; there are: {'; '.join(orders)}"
        )
    for tensor, reorder in orders[order].items():
        write_reorder(model.graph, tensor, reorder)
    network: bytes = model.SerializeToString()
    return network


@contextmanager
def _staging(folder: Path, name: str) -> Iterator[Path]:
    """Yields a temporary folder in a models folder. Raises ContractError if nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder))
    except OSError as error:
        raise _unwritable(folder, error) from None
    try:
        yield staging
    except OSError as error:
        raise _unwritable(folder, error) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _unwritable(folder: Path, error: OSError) -> ContractError:
    no_folder = isinstance(error, (FileExistsError, NotADirectoryError))
    reason = "it is not a folder" if no_folder else error.strerror
    return ContractError(
        f"{folder}: cannot be written: {reason}; --models-dir names another folder"
    )


def _added_after_trial(
    file: Path,
    folder: Path,
    name: str,
    choices: Choices,
    staging: Path,
    seconds: float,
    judge: Judge | None,
) -> Installed:
    options = asdict(choices)
    if choices.vocabulary is not None and is_moves_file(choices.vocabulary):
        options["vocabulary"] = os.path.abspath(choices.vocabulary)
    # absolute, not resolved: keeps a link's own folder
    arguments = json.dumps([os.path.abspath(file), str(staging), name, options])
    try:
        result = tried(__name__, arguments, size=size_of(file), seconds=seconds)
    except ModelError as error:
        raise ContractError(f"{name} is not added: {error}") from None
    if result["skeleton"] is not None:
        raise Incomplete(result["failure"], result["skeleton"])
    if result["failure"] is not None:
        raise ContractError(result["failure"].replace(str(staging), str(folder)))
    table = tomlkit.parse((staging / f"{name}.toml").read_text(encoding="utf-8")).unwrap()
    notes = tuple(result["notes"])
    files = model_files(staging / f"{name}.toml", read_contract(staging / f"{name}.toml"))
    return Installed(install(folder, name, table, files, _with_notes(judge, notes)), notes)


def main(arguments: str, memory: str) -> None:
    """Adds a network in this process, limited to `memory` bytes. Writes the notes, or the error, as JSON."""
    confine(memory)
    file, folder, name, options = json.loads(arguments)
    choices = Choices(**{**options, "reorder": tuple(options["reorder"])})
    try:
        notes = add_onnx(Path(file), Path(folder), name, choices).notes
        finish({"failure": None, "skeleton": None, "notes": notes})
    except MovemaskError as error:
        finish({"failure": str(error), "skeleton": getattr(error, "skeleton", None)})


def _unpacked(file: Path, raw: bytes) -> bytes:
    """Returns the content of a gzipped ONNX file; other content unchanged. Raises ContractError."""
    if not raw.startswith(GZIP):
        return raw
    try:
        reader = zlib.decompressobj(31)
        network = reader.decompress(raw, MAX_NETWORK_BYTES + 1)
    except zlib.error as error:
        raise ContractError(f"{file.name}: damaged gzip: {error}; download it again") from None
    if len(network) > MAX_NETWORK_BYTES:
        raise ContractError(f"{file.name}: unpacks to more than {MAX_NETWORK_BYTES} bytes")
    if not reader.eof:
        raise ContractError(f"{file.name}: cut off: the gzip stream has no end; download it again")
    return network


def _parsed(file: Path) -> tuple[bytes, onnx.ModelProto]:
    """Returns the content of an ONNX file, gzipped or not, and its model.

    Raises ContractError, which says what else it is.
    """
    raw = read_onnx(file, external=True)
    if description := described(raw, ONNX):
        raise ContractError(f"{file.name}: {description}")
    if not raw:
        raise ContractError(
            f"{file.name}: not an ONNX file: it is empty; download or export it again"
        )
    raw = _unpacked(file, raw)
    try:
        model = onnx.load_model_from_string(raw)
    except DecodeError:
        raise ContractError(
            f"{file.name}: not an ONNX file, or one that is cut off or damaged"
        ) from None
    if not model.graph.node:
        raise ContractError(f"{file.name}: not an ONNX file, or an empty one")
    return raw, model


def _opened(file: Path, model: onnx.ModelProto, raw: bytes) -> OnnxSession:
    """Returns a session on the network. Raises ContractError, which names weight types that onnxruntime may lack."""
    try:
        return OnnxSession(file, threads=1, network=raw)
    except ContractError as error:
        shapeless = [
            value.name
            for value in model.graph.input
            if not value.type.tensor_type.HasField("shape")
        ]
        if shapeless:
            raise ContractError(
                f"{error}; input {shapeless[0]!r} has no shape: export it with one"
            ) from None
        types = {
            TensorProto.DOUBLE: "float64",
            TensorProto.BFLOAT16: "bfloat16",
            TensorProto.FLOAT16: "float16",
        }
        rare = sorted(
            {
                types[tensor.data_type]
                for tensor in model.graph.initializer
                if tensor.data_type in types
            }
        )
        if "Could not find an implementation" not in str(error) or not rare:
            raise
        raise ContractError(
            f"{error}; its weights are {' and '.join(rare)}: export them as float32 (in PyTorch, `model.float()`)"
        ) from None


def _rewritten(
    file: Path, model: onnx.ModelProto, changes: Iterable[Change]
) -> tuple[bytes, OnnxSession]:
    """Returns the network with these changes in its graph, and a session on it."""
    rewrite(model, changes)
    raw = model.SerializeToString()
    return raw, _opened(file, model, raw)


def _declared_alone(file: Path, model: onnx.ModelProto) -> tuple[bytes, OnnxSession]:
    """Returns the network with a batch of 1 declared, and a session on it, which runs position by position."""
    for value in (*model.graph.input, *model.graph.output):
        if dimensions := value.type.tensor_type.shape.dim:
            dimensions[0].dim_value = 1
    raw = model.SerializeToString()
    return raw, _opened(file, model, raw)


def _freed(file: Path, model: onnx.ModelProto, raw: bytes, contract: Contract) -> tuple[bytes, str]:
    """Returns the network with a free batch, and a note for the user.

    If a batch then gets other numbers than its positions one by one, the network stays unchanged.
    """
    graph = model.graph
    for value in (*graph.input, *graph.output):
        dimensions = value.type.tensor_type.shape.dim
        if len(dimensions) and dimensions[0].dim_value == 1:
            dimensions[0].dim_param = "B"
    del graph.value_info[:]
    shapes = {node.input[1] for node in graph.node if node.op_type == "Reshape"}
    constants = [
        node.attribute[0].t
        for node in graph.node
        if node.op_type == "Constant" and node.output[0] in shapes
    ]
    for tensor in (*constants, *(tensor for tensor in graph.initializer if tensor.name in shapes)):
        shape = onnx.numpy_helper.to_array(tensor).tolist()
        if len(shape) > 1 and shape[0] == 1 and -1 not in shape:
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.array([-1, *shape[1:]]), tensor.name))
    free = model.SerializeToString()
    positions = [Position.read(fen) for fen in CHECK_FENS]
    elos = [Elo(800 + 200 * row, 2200 - 200 * row) for row in range(len(positions))]
    numbers = []
    try:
        for network in (raw, free):
            variant = Model(file.stem, "", contract, OnnxSession(file, threads=1, network=network))
            outputs = variant.run(variant.whole_batch(positions, elos))
            numbers.append(
                outputs.logits
                if outputs.value is None
                else np.hstack([outputs.logits, outputs.value])
            )
        difference = float(np.abs(numbers[1] - numbers[0]).max())
        fault = (
            ""
            if difference <= _SAME
            else f"{len(positions)} positions together get other numbers ({difference:.1e})"
        )
    except ModelError as error:
        fault = str(error)
    if fault:
        return raw, f"its batch stays 1, so positions are run one by one: {fault}"
    return (
        free,
        f"its batch of 1 is freed: {len(positions)} positions together get the numbers of each ({difference:.1e})",
    )


def install(
    folder: Path,
    name: str,
    table: dict[str, Any],
    files: Sequence[Path],
    judge: Callable[[Model], None] | None = None,
) -> Entry:
    """Moves a model's files into a temporary folder, checks it there, and renames them into place, the TOML last.

    table : the contract, without `network.file` and `network.digest`
    files : the network `NAME.onnx`, its weights and its moves, as far as it has them

    An existing model of this name is replaced. Raises ContractError if the model fails its check, if the `judge`
    refuses it, or if the folder cannot be written.
    """
    with _staging(folder, name) as staging:
        digests = {file.name: digest_of(file) for file in files}
        network = {
            **table.get("network", {}),
            "file": f"{name}.onnx",
            "digest": model_digest(digests),
        }
        contract = staging / f"{name}.toml"
        contract.write_text(tomlkit.dumps({**table, "network": network}), encoding="utf-8")
        for file in files:
            shutil.move(file, staging / file.name)
        entry = load_entry(contract, threads=1)
        if entry.model is None:
            raise ContractError(f"{name} is not added: {entry.failure}")
        if judge is not None:
            judge(entry.model)
        for path in (*files, contract):
            os.replace(staging / path.name, folder / path.name)
        for ending in (".onnx.data", ".txt"):  # of a model that was replaced
            if f"{name}{ending}" not in digests:
                (folder / f"{name}{ending}").unlink(missing_ok=True)
    return entry


#: Key in ONNX's metadata for the contract as TOML.
CONTRACT = "movemask.contract"


def export_onnx(entry: Entry, contract: Path, target: Path, *, replace: bool) -> None:
    """Writes the network of a served model to `target`, with its contract. Raises ContractError."""
    if entry.contract is None or not entry.served:
        raise ContractError(f"{entry.name}: failed its check and is not exported: {entry.failure}")
    network, *others = model_files(contract, entry.contract)
    if others:
        names = ", ".join(path.name for path in (network, *others, contract))
        raise ContractError(
            f"{entry.name} has several files, which no ONNX file can hold: copy {names} from {contract.parent}"
        )
    if target.exists() and not replace:
        raise ContractError(f"{target} already exists; --replace overwrites it")
    model = onnx.load(network)
    table = tomlkit.parse(contract.read_text(encoding="utf-8"))
    table.pop("network", None)
    known = {entry.key: entry.value for entry in model.metadata_props}
    onnx.helper.set_model_props(model, {**known, CONTRACT: tomlkit.dumps(table)})
    with atomic_write(target) as stream:
        stream.write(model.SerializeToString())


def carried_contract(model: onnx.ModelProto) -> dict[str, Any] | None:
    """Returns the contract that an exported file carries, without `[network]`; None if it carries none."""
    text = next((entry.value for entry in model.metadata_props if entry.key == CONTRACT), None)
    if text is None:
        return None
    try:
        table: dict[str, Any] = tomlkit.parse(text).unwrap()
    except tomlkit.exceptions.ParseError as error:
        raise ContractError(f"the contract in the file's metadata is not TOML: {error}") from None
    return table


if __name__ == "__main__":
    main(*sys.argv[1:])

"""`Registry`: the models of the folders by name, with their contracts and check results, and the default model."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from movemask.errors import ContractError, ModelError, ModelUnavailable, UnknownModel, shown
from movemask.network.check import Step, check
from movemask.network.contract import Contract, read_contract
from movemask.network.files import ModelFolders, digest_of, read_onnx
from movemask.network.model import Model
from movemask.network.onnx import OnnxSession, Provider

log = logging.getLogger(__name__)

#: Why a default model without files cannot answer.
MISSING = "is not in the models folder; choose another with `movemask models default NAME`"


@dataclass(frozen=True, slots=True)
class Entry:
    """A model of the folder, served if `failure` is None. `model` is None if the check failed."""

    name: str
    contract: Contract | None
    model: Model | None
    failure: str | None
    steps: tuple[Step, ...] = ()  # of the contract check, up to the first failure
    digest: str | None = None

    @property
    def served(self) -> bool:
        """Whether the model answers requests."""
        return self.failure is None


class Registry:
    """Entries by name. The name None stands for the default."""

    def __init__(self, entries: Mapping[str, Entry], default: str | None) -> None:
        """Sorts the entries, at least one, by name.

        A `default` that is not served, or has no entry, is never replaced by another model. If it is None, the first
        entry by name that is served becomes the default.
        """
        self._entries = dict(sorted(entries.items()))
        self.default = default or _first_served(self._entries)

    def log_failures(self) -> None:
        """Logs which models are not served, and why."""
        for entry in self:
            if entry.failure:
                log.error("model %s is not served: %s", entry.name, entry.failure)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def entry(self, name: str | None) -> Entry:
        """Returns the entry of a name, or the default's.

        Raises UnknownModel, or ModelUnavailable for a missing default.
        """
        chosen = self.default if name is None else name
        if name is None and chosen not in self._entries:
            raise ModelUnavailable(f"the default model {chosen!r} {MISSING}")
        if chosen not in self._entries:
            hint = (
                "; add a file with `movemask models add` first"
                if str(chosen).endswith(".onnx")
                else ""
            )
            raise UnknownModel(
                f"model: no model {shown(str(chosen))!r}; available: {', '.join(self._entries)}{hint}"
            )
        return self._entries[chosen]

    def get(self, name: str | None) -> Model:
        """Returns the served model of a name, or the default. Raises UnknownModel or ModelUnavailable."""
        entry = self.entry(name)
        if entry.model is None:
            raise ModelUnavailable(
                f"model {entry.name!r} failed its check and is not served: {entry.failure}"
            )
        return entry.model


def load_registry(
    where: Path | ModelFolders, default: str | None, threads: int, provider: Provider = Provider.CPU
) -> Registry:
    """Returns the loaded and checked models of one or more folders.

    Raises SettingsError if there are none, or no model named `default`.
    """
    folders = ModelFolders.of(where)
    entries = {
        name: load_entry(file, threads, provider) for name, file in folders.files(default).items()
    }
    registry = Registry(entries, folders.default(default))
    registry.log_failures()
    return registry


def open_model(file: Path, threads: int, provider: Provider = Provider.CPU) -> Model:
    """Returns the model of a TOML file, unchecked. Raises ModelError."""
    return _opened(file, read_contract(file), threads, provider, 1)


def load_entry(file: Path, threads: int, provider: Provider = Provider.CPU, runs: int = 1) -> Entry:
    """Returns the loaded and checked model of a TOML file. Any failure is recorded in the entry, not raised."""
    contract = None
    try:
        contract = read_contract(file)
        model = _opened(file, contract, threads, provider, runs)
        steps = check(model)
    except ModelError as error:
        return Entry(file.stem, contract, None, _shown(str(error)))
    except Exception as error:
        # a bug, or a file that nobody thought of: the other models are served
        log.exception("%s cannot be opened", file)
        return Entry(
            file.stem, contract, None, _shown(f"{file.name}: {type(error).__name__}: {error}")
        )
    if not steps[-1].passed:
        dynamic = isinstance(model.session, OnnxSession) and model.session.quantizes_dynamically
        if steps[-1].name == "batches" and dynamic:
            result = f"{steps[-1].found}; quantize_dynamic does that: use quantize_static instead"
            steps = (*steps[:-1], replace(steps[-1], found=result))
        return Entry(file.stem, contract, None, steps[-1].found, steps, model.digest)
    return Entry(file.stem, contract, model, None, steps, model.digest)


def network_file(file: Path, contract: Contract | None) -> Path:
    """Returns the network file beside a TOML file."""
    return file.with_name((contract and contract.network.file) or f"{file.stem}.onnx")


def model_files(file: Path, contract: Contract | None) -> tuple[Path, ...]:
    """Returns the files of a model beside its TOML file: its network, its weights and its moves, as far as it
    has them.
    """
    moves = contract and contract.terms.moves_file
    others = (contract and contract.network.data, moves and moves.name)
    return (network_file(file, contract), *(file.with_name(name) for name in others if name))


def _shown(text: str) -> str:
    """Returns a text that may hold a part of a file name, for JSON."""
    return text.encode("utf-8", "backslashreplace").decode()


def _opened(file: Path, contract: Contract, threads: int, provider: Provider, runs: int) -> Model:
    network = network_file(file, contract)
    log.info("opening model %s: %s", file.stem, network)  # first: a network may end the process
    try:
        content = read_onnx(network, data=contract.network.data)
    except ContractError as error:
        raise ContractError(f"{file.name}: network.file: {error}") from None
    digests = {network.name: hashlib.sha256(content).hexdigest()}
    data = contract.network.data and file.with_name(contract.network.data)
    if data:
        size, digests[data.name] = _digest_of_data(file, data)
        log.info("%s takes at least %.1f GB of memory, for %s", file.stem, size / 1e9, data.name)
    if moves := contract.terms.moves_file:
        digests[moves.name] = moves.digest
    digest = model_digest(digests)
    if contract.network.digest not in (None, digest):
        names = ", ".join(digests)
        raise ContractError(
            f"{file.name}: network.digest: says {contract.network.digest}, but {names} "
            f"{'is' if len(digests) == 1 else 'are'} {digest}"
        )
    session = OnnxSession(network, threads, provider, runs, network=content)
    if data and _digest_of_data(file, data)[1] != digests[data.name]:
        raise ContractError(f"{file.name}: network.data: {data.name} changed while it was loaded")
    return Model(file.stem, digest, contract, session)


def _digest_of_data(file: Path, data: Path) -> tuple[int, str]:
    """Returns the size and the digest of a file of weights. Raises ContractError."""
    try:
        return data.stat().st_size, digest_of(data)
    except OSError as error:
        raise ContractError(f"{file.name}: network.data: {data.name}: {error.strerror}") from None


def model_digest(digests: Mapping[str, str]) -> str:
    """Returns the digest of a model, from its files' digests in hexadecimal by name.

    For a single file it is that of the file. For several it is that of the lines which `sha256sum` prints for them.
    """
    lines = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
    only = next(iter(digests.values()))
    return f"sha256:{only if len(digests) == 1 else hashlib.sha256(lines.encode()).hexdigest()}"


def _first_served(entries: Mapping[str, Entry]) -> str:
    """Returns the first model by name that is served; the first by name if none is."""
    default = next((name for name, entry in entries.items() if entry.served), next(iter(entries)))
    if len(entries) > 1:
        log.warning(
            "no default model is chosen: requests that name no model are answered by %s, the first by name that is "
            "served; choose one with `movemask models default NAME` or MOVEMASK_DEFAULT_MODEL",
            default,
        )
    return default

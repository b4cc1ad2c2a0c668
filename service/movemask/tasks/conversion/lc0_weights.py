"""Reads lc0's weight files (`.pb.gz`) into arrays.

Source: lc0's published format, `proto/net.proto` of LeelaChessZero/lczero-common: a gzipped `pblczero.Net`. Field
numbers are written where they are read. Networks other than the classical 112-plane kind are refused with the reason.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from movemask.errors import WeightsError
from movemask.tasks.conversion.lc0_layers import Convolution, Dense, Encoding, Message

MAGIC = 0x1C0
LARGEST = 1 << 30  # bytes after decompression; lc0's largest published networks are well below
_PIECE = 1 << 20


class Policy(Enum):
    """Supported kinds of policy head; the values are net.proto's."""

    FLAT = 1
    CONVOLUTION = 2


class Outcome(Enum):
    """Supported kinds of value head; the values are net.proto's."""

    SCALAR = 1
    WDL = 2


class Activation(Enum):
    """Supported activation functions; the values are net.proto's."""

    RELU = 0
    MISH = 1


@dataclass(frozen=True)
class Block:
    """A residual block, with squeeze-and-excitation where the network has it."""

    first: Convolution
    second: Convolution
    squeeze: Dense | None
    excite: Dense | None


@dataclass(frozen=True)
class Network:
    """The layers of a classical network."""

    stem: Convolution
    blocks: tuple[Block, ...]
    policy: Policy
    policy_hidden: Convolution | None  # before the last convolution, of a convolutional head
    policy_convolution: Convolution
    policy_dense: Dense | None  # of a flat head
    value_convolution: Convolution
    value_hidden: Dense
    value_out: Dense
    outcome: Outcome
    activation: Activation
    left_out: tuple[str, ...]  # parts of the file that are not converted
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def filters(self) -> int:
        return len(self.stem.bias)


def read_network(file: Path) -> Network:
    """The network in a `.pb.gz` or `.pb`. Raises WeightsError that names the file and the fault."""
    where = file.name
    return _network(memoryview(_unpacked(file, where)), where)


def _unpacked(file: Path, where: str) -> bytes:
    parts: list[bytes] = []
    total = 0
    try:
        with open(file, "rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            stream = gzip.GzipFile(fileobj=raw) if zipped else raw
            while piece := stream.read(_PIECE):
                total += len(piece)
                if total > LARGEST:
                    raise WeightsError(f"{where}: unpacks to more than {LARGEST >> 20} MiB; no lc0 network is so large")
                parts.append(piece)
    except EOFError:
        raise WeightsError(f"{where}: cut off: the gzip stream has no end; download it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise WeightsError(f"{where}: damaged: {error}") from None
    except OSError as error:
        raise WeightsError(f"{where}: cannot be read: {error.strerror}") from None
    return b"".join(parts)


def _network(message: memoryview, where: str) -> Network:
    net = Message(message, where)
    if net.fixed32(1) != MAGIC:
        raise WeightsError(f"{where}: not an lc0 weight file: its magic number is not {MAGIC:#x}")
    if net.has(11) and not net.has(10):
        raise WeightsError(f"{where}: holds an ONNX network; lc0 leela2onnx writes it out, then `models add`")
    form = net.message(4, "format").message(2, "network_format")
    default = Encoding(net.message(4, "format").number(1, 0)) if net.message(4, "format").number(1, 0) < 5 else None
    _require("format.network_format.input", form.number(1, 1), {1: "classical 112 planes"}, where)
    structure = form.number(3, 1)
    names = {1: "classical", 2: "squeeze-and-excitation", 3: "classical", 4: "squeeze-and-excitation"}
    _require("format.network_format.network", structure, names, where)
    headed = structure in (3, 4)  # only these formats say which heads they have
    policy = form.number(4, 1) if headed else 1
    outcome = form.number(5, 1) if headed else 2 if form.number(2, 1) == 2 else 1
    _require("format.network_format.policy", policy, {1: "flat", 2: "convolution"}, where)
    _require("format.network_format.value", outcome, {1: "scalar", 2: "win, draw, loss"}, where)
    activation = form.number(7, 0)
    _require("format.network_format.default_activation", activation, {0: "relu", 1: "mish"}, where)
    weights = net.message(10, "weights", default)
    for number, name in ((21, "pol_encoder"), (27, "encoder"), (25, "ip_emb_w"), (35, "smolgen_w")):
        if weights.has(number):
            raise WeightsError(f"{where}: weights.{name}: attention bodies and heads are not read; use lc0 leela2onnx")
    stem = weights.message(1, "input").convolution(112, 3)
    filters = len(stem.bias)
    blocks = tuple(_block(block, filters) for block in weights.messages(2, "residual"))
    head = weights.message(3, "policy")
    if Policy(policy) is Policy.CONVOLUTION:
        hidden = weights.message(11, "policy1").convolution(filters, 3)
        last, dense = head.convolution(len(hidden.bias), 3), None
        if len(last.bias) < 73:
            raise WeightsError(f"{where}: weights.policy has {len(last.bias)} planes; a move map needs 73 or more")
    else:
        hidden, last = None, head.convolution(filters, 1)
        dense = weights.dense(4, 5, "ip_pol", 64 * len(last.bias), 1858)
    value = weights.message(6, "value").convolution(filters, 1)
    inner = weights.dense(7, 8, "ip1_val", 64 * len(value.bias), None)
    outer = weights.dense(9, 10, "ip2_val", len(inner.bias), 3 if Outcome(outcome) is Outcome.WDL else 1)
    left_out = ("moves left",) if weights.has(12) else ()
    version = net.message(3, "min_version")
    facts = {
        "min_lc0": ".".join(str(version.number(part, 0)) for part in (1, 2, 3)),
        "training_steps": net.message(5, "training_params").number(1, 0),
        "licence": net.text(2),
    }
    return Network(
        stem,
        blocks,
        Policy(policy),
        hidden,
        last,
        dense,
        value,
        inner,
        outer,
        Outcome(outcome),
        Activation(activation),
        left_out,
        {key: fact for key, fact in facts.items() if fact},
    )


def _block(block: Message, filters: int) -> Block:
    first = block.message(1, "conv1").convolution(filters, 3)
    second = block.message(2, "conv2").convolution(len(first.bias), 3)
    if len(second.bias) != filters:
        raise WeightsError(f"{block.where}.conv2 has {len(second.bias)} filters, the block's input {filters}")
    if not block.has(3):
        return Block(first, second, None, None)
    unit = block.message(3, "se")
    squeeze = unit.dense(1, 2, "w1", filters, None)
    return Block(first, second, squeeze, unit.dense(3, 4, "w2", len(squeeze.bias), 2 * filters))


def _require(name: str, found: int, known: dict[int, str], where: str) -> None:
    if found not in known:
        words = ", ".join(f"{number} ({word})" for number, word in known.items())
        raise WeightsError(f"{where}: {name} is {found}; read are {words}. lc0 leela2onnx converts the others")

"""Whether this processor multiplies 8-bit integers without saturating.

AVX2's `vpmaddubsw` adds two products in 16 bits, which saturate where weights use all 8 bits, so onnxruntime advises 7
bits for processors without VNNI (https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html). Arm's
dot product adds in 32 bits, as VNNI does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
FULL, REDUCED = 8, 7  # bits of a weight
_WORDS = {FULL: "eight", REDUCED: "seven"}
_EXACT = {"avx512_vnni": "VNNI", "avx_vnni": "VNNI", "asimddp": "Arm's dot product"}


@dataclass(frozen=True, slots=True)
class Weights:
    """How weights are written: their bits, 7 or 8, whether they are unsigned, and why."""

    bits: int
    unsigned: bool
    reason: str


def weights_for(bits: int | None = None, cpuinfo: Path = CPUINFO) -> Weights:
    """The weights for this processor, or of so many bits."""
    exact, found = _exact(cpuinfo)
    if bits is None:
        bits = FULL if exact else REDUCED
        consequence = "" if exact else ", and signed products of eight bits saturate without it"
        return Weights(bits, False, f"{_WORDS[bits]} bits: {found}{consequence}")
    if bits == FULL and not exact:
        return Weights(
            FULL, True, f"eight bits, as asked: {found}, so the weights are unsigned: exact here, but slower"
        )
    return Weights(bits, False, f"{_WORDS[bits]} bits, as asked: {found}")


def _exact(cpuinfo: Path) -> tuple[bool, str]:
    """Whether products of eight bits are added without saturating, and what the kernel says of the processor."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False, f"{cpuinfo} cannot be read, so VNNI is not known of"
    flags = next(
        (line.split(":", 1)[1].split() for line in lines if line.lower().startswith(("flags", "features"))), []
    )
    for flag, name in _EXACT.items():
        if flag in flags:
            return True, f"this processor has {name} ({flag})"
    return False, "this processor has no VNNI"

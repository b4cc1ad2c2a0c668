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
_EXACT = {"avx512_vnni": "VNNI", "avx_vnni": "VNNI", "asimddp": "Arm's dot product"}


@dataclass(frozen=True, slots=True)
class Processor:
    """`bits` that weights may have, and why."""

    bits: int
    reason: str


def processor(cpuinfo: Path = CPUINFO) -> Processor:
    """What the kernel says of this processor; seven bits where it does not say."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return Processor(REDUCED, f"seven bits: {cpuinfo} cannot be read, so VNNI is not known of")
    flags = next(
        (line.split(":", 1)[1].split() for line in lines if line.lower().startswith(("flags", "features"))), []
    )
    for flag, name in _EXACT.items():
        if flag in flags:
            return Processor(FULL, f"eight bits: this processor has {name} ({flag})")
    return Processor(REDUCED, "seven bits: this processor has no VNNI, and its products of eight bits saturate")

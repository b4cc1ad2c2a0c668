"""What `benchmarks.serving` measured, as tables and plots in benchmarks/results/serving.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

RESULTS = Path(__file__).parent / "results"
_WIDE = (7.0, 3.6)

Figures = dict[str, Any]


def write(found: Figures, out: Path | None = None) -> Path:
    """Puts tables and plots of one model between its marks in serving.md; at its end if it has none.

    Where the figures themselves belong.
    """
    plots = RESULTS if out is None else out
    name = found["model"]
    plots.mkdir(parents=True, exist_ok=True)
    _plot_batch_size(found, plots / f"{name}-batch-size.svg")
    _plot_connections(found, plots / f"{name}-connections.svg")
    page = plots / "serving.md"
    begin, end = f"<!-- measured: {name} -->", f"<!-- end of {name} -->"
    old = page.read_text() if page.exists() else ""
    told = f"{begin}\n{_told(found)}\n{end}"
    before, mark, rest = old.partition(begin)
    page.write_text(before + told + rest.partition(end)[2] if mark else f"{old.rstrip()}\n\n{told}\n".lstrip())
    return plots / f"{name}.json"


def _told(found: Figures) -> str:
    parts = [
        _headline(found),
        _processors(found),
        _peers(found),
        _batch_size(found),
        _connections(found),
        _per_call(found),
        _flat(found),
    ]
    return "\n\n".join(parts)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _headline(found: Figures) -> str:
    h = found["headline"]
    bare = h["bare"]

    def of_bare(rate: float) -> str:
        return f"{rate / bare:.2f}"

    rows = [
        ["bare onnxruntime, inputs ready", f"{bare:,.0f} positions/s", "1"],
        ["`POST /v1/policy/batch`, 256 a call", f"{h['batches']:,.0f} positions/s", of_bare(h["batches"])],
        ["`POST /v1/policy`, 64 connections", f"{h['many']:,.0f} requests/s", of_bare(h["many"])],
        [
            "… p99 over p50",
            f"{h['many_p99_ms']:.1f} ms over {h['many_p50_ms']:.1f} ms",
            f"{h['many_p99_ms'] / h['many_p50_ms']:.1f}",
        ],
        [
            "… of a finished game: HTTP and the FEN alone",
            f"{h['finished']:,.0f} requests/s",
            of_bare(h["finished"]),
        ],
        ["`POST /v1/policy`, 16 connections", f"{h['some']:,.0f} requests/s", of_bare(h["some"])],
        [
            "`POST /v1/policy`, one connection, p50",
            f"{h['lone_p50_ms']:.2f} ms over {h['bare_lone_ms']:.2f} ms of a bare run after the other",
            f"{h['lone_p50_ms'] / h['bare_lone_ms']:.1f}",
        ],
        [
            "… p99 over p50, the audit writing",
            f"{h['lone_p99_ms']:.2f} ms over {h['lone_p50_ms']:.2f} ms",
            f"{h['lone_p99_ms'] / h['lone_p50_ms']:.1f}",
        ],
        [
            "… over a bare run after a pause as long as itself",
            f"{h['lone_p50_ms']:.2f} ms over {h['bare_paused_ms']:.2f} ms",
            f"{h['lone_p50_ms'] / h['bare_paused_ms']:.1f}",
        ],
        ["start to first answer", f"{found['ready_s']:.1f} s", ""],
        ["resident memory then", f"{found['resident_mb']:.0f} MB", ""],
    ]
    spread = ", ".join(f"{one['batches'] / one['bare']:.2f}" for one in found["rounds"])
    other = ", ".join(f"{one['many'] / one['bare']:.2f}" for one in found["rounds"])
    return (
        f"### {found['model']}, {found['cores']} cores\n\n"
        + _table(["what", "median of the rounds", "ratio"], rows)
        + f"\n\nRound by round: batches {spread} of bare; 64 connections {other}."
    )


def _processors(found: Figures) -> str:
    """Where the time of the processors goes, by difference: no step is measured twice, none left out."""
    h = found["headline"]
    network = 1e6 * found["cores"] / h["bare"]

    def row(name: str, *values: float | None) -> list[str]:
        return [name, *("" if value is None else f"{value:,.0f}" for value in values)]

    rows = [
        row("everything", h["batches_cpu_us"], h["many_cpu_us"], h["lone_cpu_us"]),
        row("the network, as bare onnxruntime runs it on all cores", network, network, None),
        row("HTTP, JSON and the FEN: a finished game", None, h["finished_cpu_us"], None),
        row(
            "the rest: planes, masks, policy, checks, leakage, audit, and what they cost each other",
            h["batches_cpu_us"] - network,
            h["many_cpu_us"] - network - h["finished_cpu_us"],
            None,
        ),
    ]
    head = ["µs of a processor", "a position of 256 a call", "a request, 64 connections", "a request, one connection"]
    return _table(head, rows)


def _peers(found: Figures) -> str:
    ours = found["headline"]["many"]
    rows = [["movemask (policy, value, leakage, audit)", f"{ours:,.0f}", _ms(found["headline"], "many_"), "1", "1"]]
    for name, told in found["peers"].items():
        if isinstance(told, str):
            rows.append([name, f"not measured: {told}", "", "", ""])
        else:
            lone = found["headline"]["lone"] / told["lone"]
            rows.append([name, f"{told['rate']:,.0f}", _ms(told), f"{ours / told['rate']:.1f}", f"{lone:.1f}"])
    return "One FEN a request, 64 connections, the same network ([examples](../../benchmarks/peers)):\n\n" + _table(
        ["server", "requests/s", "p50, p99", "ours over it", "with one connection"], rows
    )


def _ms(told: Figures, prefix: str = "") -> str:
    return f"{told[prefix + 'p50_ms']:.0f}, {told[prefix + 'p99_ms']:.0f} ms"


def _batch_size(found: Figures) -> str:
    rows = [
        [
            str(size),
            f"{beside:,.0f}",
            f"{together:,.0f}",
            f"{served['batches']:,.0f}",
            f"{served['rate']:,.0f}",
            _ms(served),
        ]
        for (size, (beside, together)), served in zip(found["bare"].items(), found["max_batch"].values(), strict=True)
    ]
    head = [
        "positions a run",
        "bare, side by side",
        "bare, one on all cores",
        "256 a call",
        "64 connections",
        "p50, p99",
    ]
    return (
        f"#### Batch size\n\nPositions a second by `MOVEMASK_MAX_BATCH`:\n\n{_table(head, rows)}\n\n"
        f"![Rate by batch size]({found['model']}-batch-size.svg)"
    )


def _connections(found: Figures) -> str:
    rows = [
        [str(n), f"{told['rate']:,.0f}", *(f"{told[f'p{q}_ms']:.1f}" for q in (50, 95, 99))]
        for n, told in found["connections"].items()
    ]
    return (
        "#### Connections\n\nOne FEN a request:\n\n"
        + _table(["connections", "requests/s", "p50 ms", "p95 ms", "p99 ms"], rows)
        + f"\n\n![Rate and latency by connections]({found['model']}-connections.svg)"
    )


def _per_call(found: Figures) -> str:
    rows = [[str(n), f"{rate:,.0f}"] for n, rate in found["per_call"].items()]
    return "#### Positions a call\n\nTwo callers:\n\n" + _table(["positions a call", "positions/s"], rows)


def _flat(found: Figures) -> str:
    rows = [[f"{one['positions']:,}", f"{one['rate']:,.0f}", f"{one['resident_mb']:.0f}"] for one in found["flat"]]
    return "#### With work behind it\n\n256 a call, two callers, all through one service:\n\n" + _table(
        ["positions so far", "positions/s since the line above", "resident MB"], rows
    )


def _plot_batch_size(found: Figures, file: Path) -> None:
    _, axes = plt.subplots(figsize=_WIDE, layout="constrained")
    sizes = [int(size) for size in found["bare"]]
    lines = {
        "bare, side by side": [rates[0] for rates in found["bare"].values()],
        "bare, one run on all cores": [rates[1] for rates in found["bare"].values()],
        "POST /v1/policy/batch, 256 a call": [one["batches"] for one in found["max_batch"].values()],
        "POST /v1/policy, 64 connections": [one["rate"] for one in found["max_batch"].values()],
    }
    for (name, rates), style in zip(lines.items(), ("k-", "k--", "C0-", "C1-"), strict=True):
        axes.plot(sizes, rates, style, marker="o", markersize=3, label=name)
    _axis(axes, sizes, "positions in a run of the network")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("positions a second")
    axes.legend(fontsize=8)
    _saved(file)


def _plot_connections(found: Figures, file: Path) -> None:
    _, (rate, latency) = plt.subplots(1, 2, figsize=_WIDE, layout="constrained")
    counts = [int(n) for n in found["connections"]]
    rate.plot(counts, [one["rate"] for one in found["connections"].values()], "C1-", marker="o", markersize=3)
    rate.set_ylim(bottom=0)
    rate.set_ylabel("requests a second")
    for q, style in ((50, "-"), (95, "--"), (99, ":")):
        values = [one[f"p{q}_ms"] for one in found["connections"].values()]
        latency.plot(counts, values, f"C0{style}", marker="o", markersize=3, label=f"p{q}")
    latency.set_yscale("log")
    latency.set_ylabel("milliseconds")
    latency.legend(fontsize=8)
    for axes in (rate, latency):
        _axis(axes, counts, "connections")
    _saved(file)


def _axis(axes: Axes, values: list[int], label: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(values, [str(value) for value in values])
    axes.set_xlabel(label)
    axes.grid(alpha=0.3)


def _saved(file: Path) -> None:
    with matplotlib.rc_context({"svg.hashsalt": file.name}):
        plt.savefig(file, metadata={"Date": None})
    plt.close()

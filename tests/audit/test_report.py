"""The HTML report of an audit, and its plots."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markupsafe import escape

from movemask.audit.report import by_group
from movemask.leakage.kinds import KINDS, MEANINGS
from movemask.leakage.known import IN_GAMES
from tests.audit.audits import GAMES, audited, fens, summarised, table_of
from tests.conftest import ROOT
from tests.networks import write_fake


class Page(HTMLParser):
    """Tags that are open, and what the page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and value and not value.startswith("#"):
                self.fetched.append(value)


def test_report_is_self_contained(tmp_path: Path, models: Path) -> None:
    (tmp_path / "<b>.pgn").write_text(GAMES)
    audited(
        tmp_path / "<b>.pgn", "--models-dir", models, "--model", "net", "--model", "masked", "--out", tmp_path / "out"
    )
    text = (tmp_path / "out" / "report.html").read_text()
    page = Page()
    page.feed(text)
    assert page.fetched == []
    assert "@import" not in text
    assert "url(http" not in text
    assert "<b>.pgn" not in text  # a file's name is not markup
    assert page.tags.count("figure") == 2 * (6 + 3)  # the worst positions of each network, by raw and multiplied
    assert text.count("trained with the mask: raw means nothing") == 1
    assert "raw leakage" in text
    assert text.count("<th>cross-entropy</th><th>top-1</th>") == 1
    first, second = text.split("<h1>Leakage</h1>")[1].split("</p>")[:2]
    assert re.search(
        r"net: READ WRONGLY, or untrained: raw leakage [\d.]+ %, \d+ times that of correctly read networks ", first
    )
    assert "Run <code>movemask models check net --diagnose</code>." in first
    assert "masked: it was trained with the mask, so leakage does not say how it is read." in second
    assert "Maia-1 (read correctly, lichess games)" in text
    for kind in KINDS:
        assert f"<dt><code>{kind}</code></dt><dd>{escape(MEANINGS[kind])}</dd>" in text
    zeros = re.findall(
        r"Exactly 0 at every position, with no best move changed and a mean divergence of at most (.*?)\.</p>", text
    )
    assert len(zeros) == 2
    assert all("<code>filled_1e9_float32</code>, " in one and "<code>served</code>" in one for one in zeros)
    assert "<td>filled_1e9_float32</td>" not in text
    assert text.count("<td>raw</td>") == 2
    assert "leaves_king_in_check" in text or "wrong_geometry" in text


def test_plots_contain_every_mean(tmp_path: Path) -> None:
    """Of two groups of one plot with means of 100 % and 0.4 %, beside a plot whose groups have means of 50 %."""
    file = tmp_path / "table.parquet"
    table_of(file, {"net": [1.0, 1.0, 0.004, 0.004] * 100}, legal_moves=[3, 3, 40, 40])
    (model,) = summarised(file)
    means = {name: model.of("raw", "legal_moves", name).mean or 0 for name in model.groups("legal_moves")}
    assert sorted(means.values()) == pytest.approx([0.004, 1])
    assert [model.of("raw", "in_check", name).mean for name in model.groups("in_check")] == pytest.approx([0.502] * 2)
    assert ">0.1 %</text>" in by_group([model], "raw")  # the axis begins there


def test_plots_escape_network_name(tmp_path: Path) -> None:
    for name in ("_hidden", "cost $a^$"):
        write_fake(tmp_path / "m", name)
    (tmp_path / "x.fen").write_text("\n".join(fens(20)))
    names = ("--model", "_hidden", "--model", "cost $a^$")
    audited(tmp_path / "x.fen", "--models-dir", tmp_path / "m", *names, "--out", tmp_path / "out")
    text = (tmp_path / "out" / "report.html").read_text()
    plots = "".join(text.split("<svg")[1:4])
    assert "_hidden" in plots
    assert "cost $a^$" in plots


def test_known_networks_match_readme() -> None:
    """README's figures are those of models/*.report.md, which another test compares."""
    readme = (ROOT / "README.md").read_text()
    for name, row in (("Maia-1", "Maia-1"), ("movemask-8", r"`movemask-8` \(shipped\)")):
        (mean,) = re.findall(rf"^[|] {row} [|](?:[^|]*[|]){{3}} ([\d.]+) [|]", readme, re.M)
        assert float(mean) == IN_GAMES[name]

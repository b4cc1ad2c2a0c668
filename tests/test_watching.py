"""The dashboard and the alerts, asked of a real Prometheus.

A real Prometheus scrapes the real service, and every query of the dashboard is asked of it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from movemask.server.edge.keys import KeyScope, new_key
from movemask.server.metrics import Metrics
from tests.conftest import ROOT
from tests.networks import write_fake
from tests.processes import call, free_port, served, started, until

MONITORING = ROOT / "monitoring"
DASHBOARD = json.loads((MONITORING / "grafana" / "movemask.json").read_text())

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="Prometheus is not installed (Debian: apt-get install prometheus)",
)


def queries() -> list[tuple[str, str]]:
    """Title of the panel and query, with the dashboard's variables filled in."""
    result = []
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            text = target["expr"].replace("$model", ".*").replace("$__rate_interval", "1m")
            assert "$" not in text
            result.append((panel["title"], text))
    return result


def asked(port: int, path: str, **parameters: str) -> Any:
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)["data"]


@contextmanager
def prometheus(folder: Path, target: int, key: str) -> Iterator[int]:
    """A Prometheus by the shipped configuration, but that it looks at another port and more often, with an API key."""
    port = free_port()
    text = (MONITORING / "prometheus.yml").read_text()
    text = text.replace("movemask:8000", f"127.0.0.1:{target}")
    text = re.sub(r"(scrape|evaluation)_interval: \d+s", r"\1_interval: 200ms", text)
    (folder / "prometheus.yml").write_text(text)
    shutil.copy(MONITORING / "alerts.yml", folder)
    (folder / "metrics-key").write_text(key)
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    command.append(f"--web.listen-address=127.0.0.1:{port}")
    with open(folder / "prometheus.log", "wb") as log, started(command, stdout=log, stderr=log):
        yield port


@needs_prometheus
def test_dashboard_queries_return_data(tmp_path: Path) -> None:
    write_fake(tmp_path / "m", "plain")
    write_fake(tmp_path / "m", "masked", trained_with_mask=True)
    port = free_port()
    keys = new_key("asks", [KeyScope.POLICY])[1], new_key("scrapes", [KeyScope.METRICS])[1]
    settings = ("--ledger-share", "1", "--api-keys", f"{keys[0]}:policy,{keys[1]}:metrics")
    with prometheus(tmp_path, port, keys[1]) as watching, served(tmp_path / "m", *settings, port=port):
        for answered in (8, 16):  # a rate needs two scrapes
            for model in ("plain", "masked"):
                positions = [{"moves": moves} for moves in ([], ["e2e4"], ["d2d4", "d7d5"])]
                batch, bearer = {"positions": positions, "model": model}, f"Bearer {keys[0]}"
                call(port, "/v1/policy/batch", batch, Authorization=bearer)
                call(port, "/v1/policy", {"moves": [], "model": model}, Authorization=bearer)

            def scraped(count: str = f"sum(movemask_leakage_count{{kind='raw'}}) == {answered}") -> Any:
                return asked(watching, "query", query=count)["result"]

            until(scraped, "all answers are counted and scraped")
        for title, query in queries():

            def data(query: str = query) -> list[Any]:
                series = asked(watching, "query", query=query)["result"]
                return [sample for sample in series if sample["value"][1] != "NaN"]

            until(data, f"{title}: {query}")
        masked = asked(watching, "query", query='movemask_leakage_count{trained_with_mask="true"}')["result"]
        assert {sample["metric"]["model"] for sample in masked} == {"masked"}
        series = asked(watching, "query", query=queries()[4][1])["result"]
        assert {sample["metric"]["model"] for sample in series} == {"plain"}
        expected = ["ok"] * (MONITORING / "alerts.yml").read_text().count("- alert:")
        until(
            lambda: [rule["health"] for rule in asked(watching, "rules")["groups"][0]["rules"]] == expected,
            "every rule is evaluated",
        )


@needs_prometheus
@pytest.mark.parametrize(
    "command",
    [("check", "config", "prometheus.yml"), ("check", "rules", "alerts.yml"), ("test", "rules", "alerts.test.yml")],
)
def test_promtool_accepts_rules(command: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *command], cwd=MONITORING, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_dashboard_uses_known_metrics_and_source() -> None:
    metrics = Metrics()
    known = {metric._name for metric in vars(metrics).values() if hasattr(metric, "_labelnames")}
    known |= {metric.name for metric in metrics.of_service.collect()}
    texts = [query for _, query in queries()] + re.findall(r"movemask_\w+", (MONITORING / "alerts.yml").read_text())
    for name in {name for text in texts for name in re.findall(r"movemask_\w+", text)}:
        assert re.sub(r"_(total|bucket|sum|count)$", "", name) in known, name
    assert "uid: movemask\n" in (MONITORING / "grafana" / "datasources.yml").read_text()
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            assert target["datasource"] == panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}

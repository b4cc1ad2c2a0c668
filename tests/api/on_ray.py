"""The service on Ray Serve, as its tests configure and ask it."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.processes import call, environment

without_ray = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: pip install 'movemask[ray]'")


def configured(models: Path, port: int, arguments: dict[str, Any], **deployment: Any) -> dict[str, Any]:
    """The shipped serve.yaml for a small machine, with these settings and options of its deployment."""
    yaml = pytest.importorskip("yaml")
    found: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "ray" / "serve.yaml").read_text())
    found["http_options"] |= {"host": "127.0.0.1", "port": port}
    found["proxy_location"] = "HeadOnly"
    (application,) = found["applications"]
    application["args"] |= {"models_dir": str(models), "models_poll_seconds": 0.2, "threads": 1, **arguments}
    replicas = application["deployments"][0]
    replicas |= {"health_check_period_s": 1, "ray_actor_options": {"num_cpus": 0.5}}
    replicas["autoscaling_config"] |= {"upscale_delay_s": 1, **deployment.pop("autoscaling", {})}
    replicas |= deployment
    return found


def command(*arguments: str) -> list[str]:
    """Of Ray's `serve`."""
    return [str(Path(sys.executable).with_name("serve")), *arguments]


def deploy(folder: Path, dashboard: int, config: dict[str, Any]) -> None:
    """`serve deploy`, onto a cluster that may serve another version."""
    (folder / "serve.json").write_text(json.dumps(config))
    found = subprocess.run(
        command("deploy", "-a", f"http://127.0.0.1:{dashboard}", "serve.json"),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout + found.stderr


def running(dashboard: int) -> bool:
    """Whether all that was deployed runs, as it was deployed last. Raises AssertionError if it cannot."""
    applications = call(dashboard, "/api/serve/applications/")["applications"]
    states = {name: one["status"] for name, one in applications.items()}
    assert "DEPLOY_FAILED" not in states.values(), applications
    healthy = all(
        one["status"] == "HEALTHY"
        for application in applications.values()
        for one in application["deployments"].values()
    )
    return bool(states) and set(states.values()) == {"RUNNING"} and healthy


def replicas(dashboard: int) -> int:
    """How many replicas of the service run."""
    found = call(dashboard, "/api/serve/applications/")["applications"]["movemask"]["deployments"]["movemask"]
    return [one["state"] for one in found["replicas"]].count("RUNNING")


def answers(port: int) -> bool:
    """Whether it answers at all, also that it wants a key."""
    try:
        return bool(call(port, "/readyz")["status"] == "ready")
    except (urllib.error.URLError, ConnectionError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        return False


def counts(port: int) -> dict[str, float]:
    """Answered positions by replica, of all models."""
    found: dict[str, float] = {}
    for line in call(port, "/metrics").splitlines():
        if line.startswith("movemask_positions_total"):
            replica = line.partition('replica="')[2].partition('"')[0]
            found[replica] = found.get(replica, 0) + float(line.rpartition(" ")[2])
    return found

"""Compose, Kubernetes, systemd and the image: schemas, settings, limits."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from movemask import __version__
from movemask.server.edge.sites import Sites
from movemask.server.problems import ProblemError
from movemask.server.settings import Settings
from movemask.settings import PREFIX
from tests.conftest import ROOT
from tests.parts import part_of
from tests.processes import certificate, environment, free_port, started, until

yaml = pytest.importorskip("yaml", reason="pyyaml is not installed: pip install pyyaml, or Ray, which brings it")

KUBERNETES = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
#: Releases of Kubernetes whose published schemas the manifests keep to.
RELEASES = ("1.32", "1.37")


def read(file: Path) -> Any:
    (document,) = yaml.safe_load_all(file.read_text())
    return document


def pod_specs() -> list[tuple[str, Any]]:
    """The pods of all manifests."""
    return [("deployment.yaml", read(ROOT / "deploy" / "kubernetes" / "deployment.yaml")["spec"]["template"]["spec"])]


@pytest.mark.peer
@pytest.mark.skipif(find_spec("kubernetes_validate") is None, reason="pip install kubernetes-validate")
@pytest.mark.parametrize("release", RELEASES)
def test_manifests_match_schemas(release: str) -> None:
    import kubernetes_validate

    for file in KUBERNETES:
        if file.name != "kustomization.yaml":
            kubernetes_validate.validate(read(file), release, strict=True)


def test_kustomization_has_all_manifests() -> None:
    listed = read(ROOT / "deploy" / "kubernetes" / "kustomization.yaml")["resources"]
    assert sorted(listed) == [file.name for file in KUBERNETES if file.name != "kustomization.yaml"]


def test_images_and_actions_are_pinned() -> None:
    (image,) = read(ROOT / "deploy" / "kubernetes" / "kustomization.yaml")["images"]
    assert image["newTag"] == __version__
    assert [container["image"] for _, spec in pod_specs() for container in spec["containers"]] == [image["name"]]
    for name, service in compose().items():
        if "build" not in service:
            assert re.search(r":v?\d+\.\d+\.\d+@sha256:[0-9a-f]{64}$", service["image"]), name


def test_base_image_and_actions_are_pinned() -> None:
    images = re.findall(r"^ARG PYTHON_IMAGE=(.+)$", (ROOT / "Dockerfile").read_text(), re.M)
    assert len(images) == 1
    assert re.search(r":\d+\.\d+\.\d+-[\w-]+@sha256:[0-9a-f]{64}$", images[0])
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        for action in re.findall(r"uses: (.+)", file.read_text()):
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), f"{file.name}: {action}"


def compose() -> dict[str, Any]:
    """The services of docker-compose.yml."""
    services: dict[str, Any] = read(ROOT / "docker-compose.yml")["services"]
    return services


def test_compose_containers_are_read_only_and_limited() -> None:
    for name, service in compose().items():
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"]), name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["mem_limit"], name
        assert service["pids_limit"] > 0, name


def test_podmonitor_has_key_and_finds_pods() -> None:
    template = read(ROOT / "deploy" / "kubernetes" / "deployment.yaml")["spec"]["template"]
    assert "annotations" not in template["metadata"]  # those that follow prometheus.io/scrape send no key
    monitor = read(ROOT / "deploy" / "kubernetes" / "monitor" / "podmonitor.yaml")["spec"]
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": "movemask-metrics", "key": "key"}
    assert monitor["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert endpoint["port"] in {port["name"] for port in template["spec"]["containers"][0]["ports"]}
    assert template["metadata"]["labels"][monitor["jobLabel"]] == "movemask"  # as the alerts have it


def test_compose_trusts_the_names_that_it_publishes() -> None:
    """A web page that points its name at 127.0.0.1 reads no positions, and Prometheus reads its metrics."""
    services = compose()
    assert all(port.startswith("${PUBLISH:-127.0.0.1}:") for one in services.values() for port in one.get("ports", ()))
    default = re.fullmatch(r"\$\{\w+:-(.*)\}", services["movemask"]["environment"]["MOVEMASK_TRUSTED_HOSTS"])
    assert default is not None
    sites = Sites(Settings.read(host="0.0.0.0", trusted_hosts=default[1]).hosts(keyed=False))
    scraped = read(ROOT / "monitoring" / "prometheus.yml")["scrape_configs"][0]["static_configs"][0]["targets"]
    for host in ("localhost:8000", "127.0.0.1:8000", "[::1]:8000", *scraped):
        sites.check_host({"headers": [(b"host", host.encode())]})
    with pytest.raises(ProblemError, match="MOVEMASK_TRUSTED_HOSTS"):
        sites.check_host({"headers": [(b"host", b"evil.example:8000")]})


def test_compose_passes_all_settings() -> None:
    """A setting in .env that is silently ignored, such as the file of the API keys."""
    listed = set(compose()["movemask"]["environment"])
    assert listed == {f"{PREFIX}{name.upper()}" for name in Settings.model_fields} - {f"{PREFIX}MODELS_DIR"}
    for name in ("movemask", "tools"):
        assert compose()[name]["env_file"] == [{"path": ".env", "required": False}], name


@pytest.mark.parametrize(
    ("host", "tls"),
    part_of(
        [
            ("0.0.0.0", False),
            ("127.0.0.1", False),
            ("127.0.0.2", False),
            ("127.0.0.1", True),
            ("unix:", True),
            ("unix:", False),
            ("::1", False),
            ("::", False),
            ("localhost", False),
        ],
        4,
    ),
)
def test_image_health_check_follows_service(host: str, tls: bool, models: Path, tmp_path: Path) -> None:
    if tls and shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    more = {"MOVEMASK_HOST": f"unix:{tmp_path}/socket" if host == "unix:" else host}
    if tls:
        more |= zip(("MOVEMASK_TLS_CERT", "MOVEMASK_TLS_KEY"), map(str, certificate(tmp_path)), strict=True)
    check = [sys.executable, str(ROOT / "deploy" / "healthcheck.py")]
    port = free_port()
    settings = environment(MOVEMASK_PORT=str(port), MOVEMASK_DATABASE_URL=f"sqlite:///{tmp_path}/audit.db", **more)
    assert subprocess.run(check, env=settings, capture_output=True).returncode == 1
    command = [sys.executable, "-m", "movemask", "serve", "--models-dir", str(models), "--workers", "1"]
    with started(command, env=settings):
        until(
            lambda: subprocess.run(check, env=settings, capture_output=True).returncode == 0, "the service is healthy"
        )


def test_old_volume_does_not_hide_new_networks() -> None:
    """/models may be an old volume: it is the user's own folder, and the shipped networks are elsewhere."""
    text = (ROOT / "Dockerfile").read_text()
    assert "MOVEMASK_MODELS_DIR" not in text
    assert "XDG_DATA_HOME=/opt/movemask/share" in text
    assert "ln -s /models /opt/movemask/share/movemask/models" in text
    assert f'image.version="{__version__}"' in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_unit_exposure_is_below_4() -> None:
    unit = ROOT / "deploy" / "systemd" / "movemask@.service"
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    level = re.search(r"Overall exposure level .*: ([\d.]+)", done.stdout)
    if level is None:  # older than systemd 250
        pytest.skip(f"systemd-analyze cannot judge a file: {done.stderr.strip()}")
    assert float(level[1]) < 4, done.stdout


def test_systemd_unit_has_known_settings_and_stop_time() -> None:
    text = (ROOT / "deploy" / "systemd" / "movemask@.service").read_text()
    assert set(re.findall(r"\bMOVEMASK_[A-Z_]+=", text)) == {"MOVEMASK_DATABASE_URL="}
    stop = re.search(r"^TimeoutStopSec=(\d+)$", text, re.M)
    assert stop is not None
    assert int(stop[1]) >= Settings.model_fields["drain_seconds"].default + 10
    assert "ExecReload=/opt/movemask/bin/movemask reload $MAINPID\n" in text
    start = re.search(r"^TimeoutStartSec=(\d+)$", text, re.M)
    assert start is not None
    assert int(start[1]) > 600, "systemd ends the command before its own --timeout"


def test_manifests_have_known_settings_and_mounts() -> None:
    known, own = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}, ROOT / "docker-compose.yml"
    for file in (own, *KUBERNETES):
        assert set(re.findall(r"\bMOVEMASK_[A-Z_]+", file.read_text())) <= known, file
    present = {str(file.relative_to(ROOT)) for file in (ROOT / "monitoring").rglob("*") if file.is_file()}
    listed = set(re.findall(r"file: .*?(monitoring/[\w./-]+)", own.read_text()))
    assert present - {"monitoring/alerts.test.yml"} == listed


def test_pods_run_unprivileged_and_limited() -> None:
    variables = {one["name"]: one.get("value") for one in pod_specs()[0][1]["containers"][0]["env"]}
    assert variables["MOVEMASK_PROXIES"] == "0"  # no ingress is shipped, so nobody may claim an address
    for name, spec in pod_specs():
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        for container in spec["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False, name
            assert container["securityContext"]["readOnlyRootFilesystem"] is True, name
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
            assert set(container["resources"]) == {"requests", "limits"}, name

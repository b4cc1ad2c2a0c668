"""What would be lost at a deployment: manifests that a cluster refuses, or that say what the code does not."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from movemask import __version__
from movemask.settings import PREFIX, Settings
from tests.conftest import ROOT

yaml = pytest.importorskip("yaml", reason="pyyaml is not installed: pip install pyyaml, or Ray, which brings it")

KUBERNETES = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
#: Releases of Kubernetes whose published schemas the manifests keep to.
RELEASES = ("1.32", "1.37")


def read(file: Path) -> Any:
    (document,) = yaml.safe_load_all(file.read_text())
    return document


def pod_specs() -> list[tuple[str, Any]]:
    """The pods of all manifests."""
    found = [("deployment.yaml", read(ROOT / "deploy" / "kubernetes" / "deployment.yaml")["spec"]["template"]["spec"])]
    cluster = read(ROOT / "deploy" / "ray" / "rayjob.yaml")["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        found.append(("rayjob.yaml", group["template"]["spec"]))
    return found


@pytest.mark.peer
@pytest.mark.skipif(find_spec("kubernetes_validate") is None, reason="pip install kubernetes-validate")
@pytest.mark.parametrize("release", RELEASES)
def test_manifests_keep_to_the_published_schemas(release: str) -> None:
    import kubernetes_validate

    for file in KUBERNETES:
        if file.name != "kustomization.yaml":
            kubernetes_validate.validate(read(file), release, strict=True)
    for name, spec in pod_specs():  # KubeRay's own fields are in no package; its pods are pods
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name.partition(".")[0]}, "spec": spec}
        kubernetes_validate.validate(pod, release, strict=True)


def test_a_kustomization_has_all_manifests() -> None:
    listed = read(ROOT / "deploy" / "kubernetes" / "kustomization.yaml")["resources"]
    assert sorted(listed) == [file.name for file in KUBERNETES if file.name != "kustomization.yaml"]


def test_nothing_is_pulled_by_a_tag_that_moves() -> None:
    (image,) = read(ROOT / "deploy" / "kubernetes" / "kustomization.yaml")["images"]
    assert image["newTag"] == __version__
    deployment = (ROOT / "deploy" / "kubernetes" / "deployment.yaml").read_text()
    assert f"image: {image['name']} " in deployment
    assert ":latest" not in deployment


def test_manifests_name_settings_that_there_are_and_compose_every_file_of_the_monitoring() -> None:
    known, compose = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}, ROOT / "docker-compose.yml"
    for file in (compose, *KUBERNETES, *(ROOT / "deploy" / "ray").glob("*.yaml")):
        assert set(re.findall(r"\bMOVEMASK_[A-Z_]+", file.read_text())) <= known, file
    present = {str(file.relative_to(ROOT)) for file in (ROOT / "monitoring").rglob("*") if file.is_file()}
    listed = set(re.findall(r"file: (monitoring/\S+)", compose.read_text()))
    assert present - {"monitoring/alerts.test.yml"} == listed


def test_pods_run_without_privileges_and_within_limits() -> None:
    for name, spec in pod_specs():
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        for container in spec["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False, name
            assert set(container["resources"]) == {"requests", "limits"}, name
    (service,) = [spec for name, spec in pod_specs() if name == "deployment.yaml"]
    assert service["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_kuberay_manifest_names_the_pinned_ray() -> None:
    cluster = read(ROOT / "deploy" / "ray" / "rayjob.yaml")["spec"]["rayClusterSpec"]
    (pinned,) = re.findall(r"^ray==(\S+)", (ROOT / "requirements" / "ray.txt").read_text(), re.M)
    assert cluster["rayVersion"] == pinned

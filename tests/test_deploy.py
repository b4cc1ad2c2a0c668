"""What would be lost at a deployment: manifests that a cluster refuses, or that say what the code does not."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from movemask import __version__
from movemask.settings import Settings
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


def test_a_pod_asks_for_keys_and_its_volumes_are_bounded() -> None:
    (spec,) = [spec for name, spec in pod_specs() if name == "deployment.yaml"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert all("sizeLimit" in volume["emptyDir"] for volume in volumes.values() if "emptyDir" in volume)
    (container,) = spec["containers"]
    keys = {one["name"]: one.get("value") for one in container["env"]}["MOVEMASK_API_KEYS_FILE"]
    (mounted,) = [one for one in container["volumeMounts"] if keys.startswith(one["mountPath"] + "/")]
    assert volumes[mounted["name"]]["secret"]["secretName"] == "movemask-keys"


def test_the_network_policy_lets_requests_in_and_the_database_out() -> None:
    policy = read(ROOT / "deploy" / "kubernetes" / "network.yaml")["spec"]
    deployment = read(ROOT / "deploy" / "kubernetes" / "deployment.yaml")["spec"]
    assert policy["podSelector"] == deployment["selector"]
    (container,) = deployment["template"]["spec"]["containers"]
    assert [one["port"] for rule in policy["ingress"] for one in rule["ports"]] == [container["ports"][0]["name"]]
    assert {one["port"] for rule in policy["egress"] for one in rule["ports"]} == {53, 5432}


def test_manifests_name_settings_that_there_are() -> None:
    known = {f"MOVEMASK_{name.upper()}" for name in Settings.model_fields}
    for file in (*KUBERNETES, *(ROOT / "deploy" / "ray").glob("*.yaml")):
        assert set(re.findall(r"MOVEMASK_[A-Z_]+", file.read_text())) <= known, file


def test_pods_run_without_privileges_and_within_limits() -> None:
    for name, spec in pod_specs():
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        for container in spec["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False, name
            assert set(container["resources"]) == {"requests", "limits"}, name
    (service,) = [spec for name, spec in pod_specs() if name == "deployment.yaml"]
    assert service["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


#: The fields that KubeRay's specs have, with ! those that must be there. From ray-project/kuberay on GitHub, folder
#: ray-operator/apis/ray/v1: rayjob_types.go (0057210e), raycluster_types.go (026f1433).
KUBERAY = {
    "RayJob": "entrypoint! rayClusterSpec activeDeadlineSeconds backoffLimit clusterSelector deletionStrategy "
    "entrypointNumCpus entrypointNumGpus entrypointResources jobId managedBy metadata runtimeEnvYAML schedule "
    "shutdownAfterJobFinishes submissionMode submitterConfig submitterPodTemplate suspend ttlSecondsAfterFinished",
    "RayCluster": "headGroupSpec! workerGroupSpecs rayVersion enableInTreeAutoscaling autoscalerOptions "
    "headServiceAnnotations suspend",
    "head": "rayStartParams! template! serviceType headService enableIngress",
    "worker": "groupName! rayStartParams! template! minReplicas! maxReplicas! replicas numOfHosts scaleStrategy",
}


def test_the_kuberay_manifest_has_only_fields_that_kuberay_knows_and_the_pinned_ray() -> None:
    manifest = read(ROOT / "deploy" / "ray" / "rayjob.yaml")
    assert manifest["apiVersion"] == "ray.io/v1"
    assert set(manifest) == {"apiVersion", "kind", "metadata", "spec"}
    cluster = manifest["spec"]["rayClusterSpec"]
    specs = [("RayJob", manifest["spec"]), ("RayCluster", cluster), ("head", cluster["headGroupSpec"])]
    for kind, spec in [*specs, *(("worker", group) for group in cluster["workerGroupSpecs"])]:
        known = KUBERAY[kind].split()
        assert set(spec) <= {one.rstrip("!") for one in known}, kind
        assert set(spec) >= {one.rstrip("!") for one in known if one.endswith("!")}, kind
        assert all(isinstance(value, str) for value in spec.get("rayStartParams", {}).values()), kind
    (pinned,) = re.findall(r"^ray==(\S+)", (ROOT / "requirements" / "ray.txt").read_text(), re.M)
    assert cluster["rayVersion"] == pinned

"""The worked examples of docs/examples/pod-templates: valid, accepted, and doing what their page says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from tests.builders import make_spec
from trainbench.pods.manifests import PodSettings, manifest, manifests

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "examples" / "pod-templates"
PAGE = FOLDER.parents[1] / "pod-template.md"
EXAMPLES = sorted(FOLDER.glob("*.yaml"))
GANG = make_spec(node="gpu-0", nodes=2, peers=("gpu-1",), strategy="ddp")


def pod_of(name: str) -> dict[str, Any]:
    return manifest(GANG, PodSettings(pod_template=FOLDER / f"{name}.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_makes_pods_that_kubernetes_accepts_strictly(path: Path) -> None:
    settings = PodSettings(pod_template=path)
    for pod in (*manifests(make_spec(), settings), *manifests(GANG, settings)):
        kubernetes_validate.validate(pod, "1.33", strict=True)


def test_the_page_names_every_example_and_no_other() -> None:
    page = PAGE.read_text()
    assert {path.name for path in EXAMPLES} == {
        name for name in (path.name for path in EXAMPLES) if f"examples/pod-templates/{name}" in page
    }
    assert page.count("examples/pod-templates/") == len(EXAMPLES)


def test_the_pods_of_a_tainted_pool_tolerate_its_taint_and_name_its_runtime() -> None:
    spec = pod_of("tainted-pool")["spec"]
    assert spec["runtimeClassName"] == "nvidia"
    assert [t["key"] for t in spec["tolerations"]] == ["dedicated", "nvidia.com/gpu", "trainbench.io/breach"]
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "16", "memory": "64Gi"}


def test_infiniband_has_both_interfaces_and_both_adapters() -> None:
    pod = pod_of("infiniband")
    base = pod["spec"]["containers"][0]
    assert pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"].count(",") == 1
    assert base["resources"]["limits"] == {"rdma/ib_rail_0": "1", "rdma/ib_rail_1": "1", "nvidia.com/gpu": "1"}
    assert base["securityContext"]["capabilities"] == {"add": ["IPC_LOCK"], "drop": ["ALL"]}


def test_openshift_s_pods_fix_no_user_and_keep_the_rest_of_their_security() -> None:
    pod = pod_of("openshift")
    contexts = [pod["spec"]["securityContext"], pod["spec"]["containers"][0]["securityContext"]]
    assert not any({"runAsUser", "runAsGroup", "fsGroup"} & set(context) for context in contexts)
    assert contexts[0]["runAsNonRoot"] is True
    assert contexts[1]["capabilities"] == {"drop": ["ALL"]}


def test_amd_s_pods_belong_to_the_devices_groups() -> None:
    spec = pod_of("amd")["spec"]
    assert spec["securityContext"]["supplementalGroups"] == [44, 109]
    assert spec["containers"][0]["volumeMounts"][0] == {
        "name": "tuned-kernels",
        "mountPath": "/miopen",
        "subPath": "gfx942",
        "readOnly": True,
    }

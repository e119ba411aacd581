"""Pods: the manifest of a run is the golden file, valid for Kubernetes, and gives the pod no more than it needs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import kubernetes_validate
import pytest
import yaml

from bench_image.contract.options import Strategy
from bench_image.contract.parse import parse_spec
from bench_image.contract.work import Device
from tests.builders import make_spec
from trainbench.pods.manifests import Owner, PodSettings, PodVolume, manifest, owner_of, pod_name, pod_title
from trainbench.pods.placement import refused_by

SETTINGS = PodSettings(image="registry.example/bench:1.2.3", priority_class="benchmark-low")


def test_golden_manifest(golden: Callable[[str, str], None]) -> None:
    golden("pod-single.yaml", yaml.safe_dump(manifest(make_spec(), SETTINGS), sort_keys=False, width=120))


CLAIM = {"persistentVolumeClaim": {"claimName": "kernels"}}


@pytest.mark.parametrize(
    "settings", [SETTINGS, PodSettings(), PodSettings(memory_gib=64), PodSettings(compile_cache=CLAIM)]
)
@pytest.mark.parametrize("version", ["1.31", "1.33"])
def test_kubernetes_accepts_it_strictly(settings: PodSettings, version: str) -> None:
    kubernetes_validate.validate(manifest(make_spec(), settings), version, strict=True)


def test_the_spec_and_its_dag_run_travel_whole() -> None:
    spec, owner = make_spec(node="gpu-7", timeout_s=600), Owner(dag_id="node_consistency", dag_run_id="manual__1")
    pod = manifest(spec, SETTINGS, owner)
    (container,) = pod["spec"]["containers"]
    env = {variable["name"]: variable.get("value") for variable in container["env"]}

    assert (parse_spec(env["TRAINBENCH_SPEC"]), owner_of(pod)) == (spec, owner)


def test_gpus_are_requested_as_limits_only_on_cuda() -> None:
    ddp = make_spec(strategy=Strategy.DDP, gpus_per_node=4)
    (container,) = manifest(ddp, SETTINGS)["spec"]["containers"]
    (cpu,) = manifest(make_spec(device=Device.CPU), SETTINGS)["spec"]["containers"]

    assert container["resources"] == {"limits": {"nvidia.com/gpu": "4"}}
    assert cpu["resources"] == {}


def test_every_mount_has_its_volume_and_the_deadline_lies_behind_the_program_s_own() -> None:
    spec = manifest(make_spec(timeout_s=600), SETTINGS)["spec"]
    mounted = {mount["name"] for container in spec["containers"] for mount in container["volumeMounts"]}

    assert mounted == {volume["name"] for volume in spec["volumes"]}
    assert spec["activeDeadlineSeconds"] == 720


def test_a_volume_may_not_hide_what_the_pod_mounts_itself() -> None:
    spec = manifest(make_spec(), PodSettings(compile_cache=CLAIM))["spec"]
    for path in [mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]]:
        with pytest.raises(ValueError, match=f"{path} would hide {path}"):
            PodSettings(volumes=(PodVolume(mount_path=path, source=CLAIM),))
    below = PodVolume(mount_path="/scratch/.cache/huggingface", source=CLAIM)
    assert PodSettings(volumes=(below,)).volumes == (below,)


def test_compiled_kernels_stay_on_the_volume_in_a_folder_of_the_image() -> None:
    """Without one they are compiled in each pod, as the image sets it."""

    def cache(image: str, claim: dict[str, Any] | None) -> tuple[list[str], list[str]]:
        spec = manifest(make_spec(), PodSettings(image=image, compile_cache=claim))["spec"]
        (container,) = spec["containers"]
        env = {variable["name"]: variable.get("value") for variable in container["env"]}
        folders = [env[name] for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR") if name in env]
        return folders, [volume["name"] for volume in spec["volumes"] if volume.get("persistentVolumeClaim")]

    (inductor, triton), volumes = cache("bench:1", CLAIM)
    assert volumes == ["kernels"]
    assert re.fullmatch("/kernels/[0-9a-f]{12}/inductor", inductor)
    assert triton == inductor.replace("inductor", "triton")
    assert cache("bench:2", CLAIM)[0] != cache("bench:1", CLAIM)[0] == [inductor, triton]
    assert cache("bench:1", None) == ([], [])


@pytest.mark.parametrize("effect", ["NoSchedule", "PreferNoSchedule", "NoExecute"])
def test_a_node_that_other_work_is_kept_away_from_is_measured_all_the_same(effect: str) -> None:
    """Else it could never be found well again."""
    kept_away = {"spec": {"taints": [{"key": "trainbench.io/breach", "value": "night-1", "effect": effect}]}}

    assert refused_by({"metadata": {}, **kept_away}, manifest(make_spec(), SETTINGS)) is None


def test_names_and_labels_fit_however_long_the_node_s_name_is() -> None:
    spec = make_spec(node="n" * 60 + "." + "x" * 60, campaign_id="node_consistency-manual__2026-11-21", run_id="r")
    metadata = manifest(spec, SETTINGS)["metadata"]

    assert len(metadata["name"]) <= 63
    assert "_" not in metadata["name"]
    assert all(len(value) <= 63 for value in metadata["labels"].values())
    assert pod_name(spec) != pod_name(spec.changed(identity={"round": 2}))


def test_the_title_names_node_and_strategy_and_counts_gpus_or_processes() -> None:
    assert pod_title(make_spec(node="node-3", round=2)) == "node-3 / single · round 2"
    gang = make_spec(node="node-3", strategy="ddp", gpus_per_node=2)
    assert pod_title(gang) == "node-3 / ddp on 2 GPUs · round 1"
    assert pod_title(gang, what="tiny full, ddp on 2 GPUs") == "node-3 / tiny full, ddp on 2 GPUs · round 1"
    assert pod_title(gang.changed(work={"device": Device.CPU})) == "node-3 / ddp on 2 processes · round 1"


@pytest.mark.parametrize(
    ("weights", "offline"),
    [
        ("random", True),
        ("/models/mine", True),
        ("./mine", True),
        ("mistralai/Mistral-7B-v0.1@7231864981174d9bee8c7687c24c8344414eae6b", False),
    ],
)
def test_only_weights_from_the_hub_need_the_network(weights: str, offline: bool) -> None:
    (container,) = manifest(make_spec(weights=weights), SETTINGS)["spec"]["containers"]

    environ = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert environ["HF_HUB_OFFLINE"] == ("1" if offline else "0")  # said always: the image's own default is 1

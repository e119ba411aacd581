"""The pod of a command of the user's own: its image, and our program around the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tests.builders import make_spec
from trainbench.params.campaign_kind import CampaignKind
from trainbench.planning.nodes import Fleet, GpuNode
from trainbench.planning.plan import make_plan
from trainbench.planning.planners import PLANNERS
from trainbench.pods.manifests import LogProfilesError, PodSettings, manifest

COMMAND = "torchrun --nproc-per-node {gpus} /app/train.py"
PROFILE = "[[profile]]\nname = 'mine'\nsource = 'x'\nmarks = ['S']\nstep = 'S(\\d+)'\n"


def test_the_plan_of_a_command_is_one_pod_on_all_gpus_of_each_node(
    golden: Callable[[str, str], None], tmp_path: Path
) -> None:
    """Whatever the strategies say. The installation's log profiles travel with it."""
    (tmp_path / "mine.toml").write_text(PROFILE)
    nodes = tuple(
        GpuNode(name=name, num_gpus=8, gpu_product="NVIDIA-H100", gpu_memory_bytes=80 * 10**9) for name in "ab"
    )
    values = {"command": COMMAND, "job_image": "registry.example/me/train:1", "job_environment": ["A=1"]}
    params = PLANNERS[CampaignKind.NODES].params(values, locally=False)
    plan = make_plan(params, Fleet(nodes=nodes), "night-1")
    assert [(spec.identity.node, spec.placement.gpus_per_node) for spec in plan.specs] == [("a", 8), ("b", 8)]
    assert plan.title == "train.py, auto samples a step, on 2 nodes, 8 GPUs of each"
    pod = manifest(plan.specs[0], PodSettings(image="ours:1", log_profiles=tmp_path / "mine.toml"))
    kubernetes_validate.validate(pod, "1.33", strict=True)
    golden("pod-own-job.yaml", yaml.safe_dump(pod, sort_keys=False, width=120))


def test_a_wrong_file_of_log_profiles_is_refused(tmp_path: Path) -> None:
    params = PLANNERS[CampaignKind.NODES].params({"command": COMMAND}, locally=False)
    (spec,) = make_plan(params, Fleet(nodes=(GpuNode(name="a"),)), "night-1").specs
    with pytest.raises(LogProfilesError, match=r"TRAINBENCH_LOG_PROFILES: .*gone.toml"):
        manifest(spec, PodSettings(log_profiles=tmp_path / "gone.toml"))
    assert manifest(make_spec(), PodSettings(log_profiles=tmp_path / "gone.toml")), "our own runs read no log"

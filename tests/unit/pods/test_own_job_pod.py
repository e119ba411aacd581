"""The pod of a command of the user's own: its image, and our program around the command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from bench_image.contract.parse import parse_result
from bench_image.contract.result import Status
from tests.builders import make_spec
from tests.builders.commands import ROOT
from trainbench.params.campaign_kind import CampaignKind
from trainbench.planning.nodes import Fleet, GpuNode
from trainbench.planning.plan import make_plan
from trainbench.planning.planners import PLANNERS
from trainbench.pods.gangs import combine_ranks
from trainbench.pods.local_pods import LocalImage, LocalPod
from trainbench.pods.manifests import LogProfilesError, PodSettings, manifest, manifests

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
    assert plan.title == "train.py, on 2 nodes, 8 GPUs of each"  # only its log will tell the samples of a step
    pod = manifest(plan.specs[0], PodSettings(image="ours:1", log_profiles=tmp_path / "mine.toml"))
    kubernetes_validate.validate(pod, "1.33", strict=True)
    golden("pod-own-job.yaml", yaml.safe_dump(pod, sort_keys=False, width=120))


@pytest.mark.parametrize("speaker", ["b", None])
def test_the_pods_of_a_gang_run_the_command_and_one_log_has_the_speed(speaker: str | None, tmp_path: Path) -> None:
    """8 samples in 0.01 s; of the other pod only how it ended counts. Where all logs are silent, the run failed."""
    (tmp_path / "train.py").write_text(
        "import sys; node = sys.argv[1]; open(f'{node}.txt', 'w').write(' '.join(sys.argv[1:]))\n"
        f"for n in range(30 if node == {speaker!r} else 0): print(f'trainbench: step={{n}} seconds=0.01 samples=8')"
    )
    command = f"{sys.executable} train.py {{node}} {{node_rank}} {{nodes}} {{gpus}} {{master_addr}} {{master_port}}"
    values = {"device": "cpu", "command": command, "job_folder": str(tmp_path), "world_sizes": [2], "gpus_per_node": 1}
    planner = PLANNERS[CampaignKind.STRATEGIES]
    nodes = (GpuNode(name="a"), GpuNode(name="b"))
    (spec,) = planner.make(planner.params(values, locally=True), Fleet(nodes=nodes), "study-1").specs
    image = LocalImage(python=sys.executable, pythonpath=str(ROOT))
    texts = [LocalPod(pod, image).run(lambda _: None).result_text for pod in manifests(spec, PodSettings())]
    whole = combine_ranks(spec, [parse_result(text or "") for text in texts])

    assert parse_result(whole.model_dump_json()) == whole
    assert [(tmp_path / f"{n}.txt").read_text() for n in "ab"] == ["a 0 2 1 127.0.0.1 29500", "b 1 2 1 127.0.0.1 29500"]
    if speaker:
        assert whole.status is Status.OK, whole.error
        assert whole.performance.samples_per_second == pytest.approx(800)
        assert whole.missing["performance.mfu_pct"] == "a command of the user's own has none of our loop"
        assert "performance.samples_per_second" not in whole.missing
    else:
        assert whole.error is not None
        assert (whole.status, whole.error.kind) == (Status.ERROR, "no_step")
        assert "no line of a step" in whole.error.message


def test_a_wrong_file_of_log_profiles_is_refused(tmp_path: Path) -> None:
    params = PLANNERS[CampaignKind.NODES].params({"command": COMMAND}, locally=False)
    (spec,) = make_plan(params, Fleet(nodes=(GpuNode(name="a"),)), "night-1").specs
    with pytest.raises(LogProfilesError, match=r"TRAINBENCH_LOG_PROFILES: .*gone.toml"):
        manifest(spec, PodSettings(log_profiles=tmp_path / "gone.toml"))
    assert manifest(make_spec(), PodSettings(log_profiles=tmp_path / "gone.toml")), "our own runs read no log"

"""The search for bad links by the real scheduler, triggerer and operator, gangs side by side, against the stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kube.clusters import ROOT
from tests.kube.dag_runs import Runs, occupy, started
from tests.kube.e2e import IS_REAL
from tests.kube.own_pods import wait_until_ours_are_gone
from tests.standin import scripted_image
from trainbench.core.verdicts import BAD_LINK, Level
from trainbench.results.campaign import Campaign

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(IS_REAL, reason="the links of these nodes are made up; a real cluster's have no known fault"),
]


@pytest.fixture(scope="module")
def runs(standin: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with started(standin, tmp_path_factory.mktemp("airflow"), {"TRAINBENCH_SCHEDULE_INTERCONNECT": "none"}) as runs:
        yield runs


def searched(cluster: Any, runs: Runs, folder: Path) -> tuple[str, Campaign, list[str]]:
    """State, campaign and the skipped tasks of a search over all nodes."""
    folder.chmod(0o755)
    program = ROOT / "tests" / "dag" / "standin_image.py"
    made = scripted_image(folder, program, ROOT, PYTHONPATH=f"{ROOT}:{ROOT / 'plugins'}", STANDIN_S="2")
    cluster.set_images({"trainbench/bench:0.1.0": made})
    run_id = runs.start("interconnect", timeout_s=60)
    state = runs.wait("interconnect", run_id)
    skipped = [task for (task, _), told in runs.tasks("interconnect", run_id).items() if told == "skipped"]
    wait_until_ours_are_gone(cluster)
    return state, runs.campaign("interconnect", run_id), skipped


def blamed(campaign: Campaign) -> dict[tuple[str, ...], Level]:
    return {finding.nodes: finding.level for finding in campaign.findings if finding.category == BAD_LINK}


def test_a_slow_node_is_named_although_a_node_turns_busy_and_a_pod_dies(
    cluster: Any, runs: Runs, tmp_path: Path
) -> None:
    """Nine nodes in three groups. The group with the busy node runs again without it, in the second round, where one of
    its pods dies; in parts it passes, and nobody is blamed for it.
    """
    names = (*(f"gpu-{letter}" for letter in "abcdefgh"), "gpu-lame")
    for name in names:
        cluster.add_node(name, gpus=2, product="NVIDIA-H200", memory_mib=143771)
    occupy(cluster, "gpu-b")
    cluster.fault(action="oom", moment="running", pod="-r2-", delay_s=1, n=1)
    state, campaign, skipped = searched(cluster, runs, tmp_path)

    assert state == "failed"
    assert blamed(campaign) == {("gpu-lame",): Level.ERROR, ("gpu-a", "gpu-c"): Level.WARNING}
    assert [f.nodes for f in campaign.findings if f.category == "left_out_of_gangs"] == [("gpu-b",)]
    assert "round_14.rank" in skipped


def test_where_all_groups_fail_it_is_a_setting_and_nothing_is_halved(cluster: Any, runs: Runs, tmp_path: Path) -> None:
    names = tuple(f"{letter}-gpu-killed" for letter in "abcd")
    for name in names:
        cluster.add_node(name, gpus=2, product="NVIDIA-H200", memory_mib=143771)
    state, campaign, skipped = searched(cluster, runs, tmp_path)

    assert state == "failed"
    assert len(campaign.results) == 2
    (finding,) = (finding for finding in campaign.findings if finding.category == BAD_LINK)
    assert "that is a setting or the network as a whole" in finding.summary
    assert "round_2.rank" in skipped

"""A run without a single figure is red on every surface, and names its cause; one figure is enough to be judged by."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bench_image.contract.result import RunResult, Status
from tests.builders import STARTED_AT, make_failed, make_result
from tests.builders.pipelines import assessed
from tests.kube.after_fault import after_night, is_green
from trainbench.alerting import run_summary
from trainbench.alerting.run_summary import alerts
from trainbench.cli.app import ExitCode, exit_code
from trainbench.core.tables import Tone
from trainbench.core.verdicts import Level
from trainbench.judging.checks.no_figures import no_figure_findings
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import parse_params
from trainbench.pipeline import report
from trainbench.planning.nodes import Fleet, GpuNode
from trainbench.planning.plan import Plan, make_plan
from trainbench.planning.planners import PLANNERS
from trainbench.reporting import verdict_text
from trainbench.results.artefacts import open_store
from trainbench.results.campaign import Campaign

NODES = ("node-1", "node-2", "node-3", "node-4")
NO_ROOM = "no room on the node within the waiting time: 0/4 nodes are available: 1 Insufficient nvidia.com/gpu"
PLAN = make_plan(parse_params({"nodes": NODES, "rounds": 1}), Fleet(), "night-7")
BUSY = {"kind": "busy", "status": Status.INCOMPLETE, "message": NO_ROOM}
NO_IMAGE = {"kind": "no_image", "status": Status.INCOMPLETE, "message": "the image 'bench:9' cannot be pulled"}


def failed_runs(planned: Plan, *ends: dict[str, Any]) -> list[RunResult]:
    """One failed result for each planned run, in the plan's order."""
    return [
        make_failed(spec.identity.node, **end).model_copy(update={"spec": spec})
        for spec, end in zip(planned.specs, ends, strict=True)
    ]


def campaign_of(planned: Plan, results: Sequence[RunResult]) -> Campaign:
    return assessed(planned, results, finished_at=STARTED_AT + timedelta(minutes=70))


def red_texts(campaign: Campaign) -> list[str]:
    return [alert.text for alert in alerts(campaign) if alert.level is Level.ERROR]


def test_a_night_in_which_all_nodes_were_busy_is_red_and_says_that_they_were_busy() -> None:
    """It was green: whoever looked at the grid took the fleet for checked, for as long as production kept it busy."""
    night = campaign_of(PLAN, failed_runs(PLAN, BUSY, BUSY, BUSY, BUSY))

    assert red_texts(night) == [
        f"night-7: no run gave a figure. 4 runs found no free node ({NO_ROOM})",
    ]
    assert verdict_text.verdict(night).startswith(
        "No run gave a figure. All 4 nodes were busy: node-1, node-2, node-3 and"
    )
    assert verdict_text.tone(night) is Tone.BAD
    assert exit_code(night) == ExitCode.RED
    note = run_summary.note(night, alerts(night), "nightly", "r1", None)
    assert "No run gave a figure." in note
    (alarm,) = night.alarms
    assert "TRAINBENCH_QUEUE_TIMEOUT_S" in alarm.resolution
    after_night("all-busy", planned=NODES, campaign=night, is_green=is_green(night))


def test_one_figure_is_enough_and_busy_nodes_beside_it_stay_quiet() -> None:
    results = failed_runs(PLAN, BUSY, BUSY, BUSY, BUSY)
    results[2] = make_result("node-3", 9.5).model_copy(update={"spec": PLAN.specs[2]})
    night = campaign_of(PLAN, results)

    assert night.alarms == ()
    assert red_texts(night) == []
    assert not verdict_text.verdict(night).startswith("No run")
    assert exit_code(night) == ExitCode.NOT_JUDGED


def test_no_measurement_at_all_heads_the_verdict_with_each_cause_and_its_number_of_runs() -> None:
    night = campaign_of(PLAN, failed_runs(PLAN, NO_IMAGE, BUSY, NO_IMAGE, NO_IMAGE))
    first, *of_nodes = red_texts(night)

    assert first == (
        "night-7: no run gave a figure. 3 runs failed (no_image: the image 'bench:9' cannot be pulled) and "
        f"1 run found no free node ({NO_ROOM})"
    )
    assert len(of_nodes) == 3


OOM = {"kind": "OutOfMemoryError", "status": Status.OOM, "message": "79 of 80 GB"}


@pytest.mark.parametrize(
    ("ends", "step"),
    [
        ((BUSY, BUSY, BUSY, BUSY), "no node was checked: run it again when nodes are free"),
        ((BUSY, BUSY, BUSY, NO_IMAGE), "no node was checked: fix the causes above"),
        ((OOM, OOM, OOM, OOM), "choose less work"),
        ((OOM, OOM, OOM, BUSY), "no node was checked: fix the causes above"),
        ((NO_IMAGE, NO_IMAGE, NO_IMAGE, NO_IMAGE), "no node was checked: fix the causes above"),
    ],
)
def test_the_next_step_is_that_of_all_runs_or_of_none(ends: tuple[dict[str, Any], ...], step: str) -> None:
    """To wait for free nodes helps nobody whose image is missing."""
    (alarm,) = campaign_of(PLAN, failed_runs(PLAN, *ends)).alarms

    assert alarm.resolution.startswith(step)


def test_a_plan_of_nothing_says_where_to_look() -> None:
    (alarm,) = no_figure_findings("night-7", ())

    assert (alarm.cause, alarm.expected) == ("there was no run", "at least one run")
    assert alarm.resolution == "read why each node was skipped, and change the form"


@pytest.mark.parametrize("campaign_kind", [CampaignKind.STRATEGIES, CampaignKind.CONFIGURATIONS, CampaignKind.HARDWARE])
def test_a_study_that_measured_nothing_is_red_though_no_node_is_at_fault(campaign_kind: CampaignKind) -> None:
    """Busy nodes and work that does not fit the memory turn no comparison red by themselves."""
    planner = PLANNERS[campaign_kind]
    fleet = Fleet(nodes=tuple(GpuNode(name=node, num_gpus=1, gpu_product="H200") for node in NODES))
    params = {"world_sizes": [1]} if campaign_kind is CampaignKind.STRATEGIES else {}
    planned = planner.make(planner.params(params, locally=False), fleet, "study-1")
    for end in (BUSY, OOM):
        study = campaign_of(planned, failed_runs(planned, *[end] * len(planned.specs)))
        assert exit_code(study) == ExitCode.RED
        assert any("no run gave a figure" in text for text in red_texts(study))
        assert verdict_text.verdict(study).startswith(f"0 of {len(planned.specs)} run")


def test_a_night_without_a_figure_is_published(tmp_path: Path) -> None:
    night = campaign_of(PLAN, failed_runs(PLAN, BUSY, BUSY, BUSY, BUSY))
    addresses = report(night, open_store(str(tmp_path)))

    assert "No run gave a figure." in Path(addresses["BENCHMARK_REPORT.md"]).read_text()

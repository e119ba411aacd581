"""Nights of a fleet that does not exist: the figures are made up, and judged and kept by the real code.

Ten nodes with one H200 each. 18 nights ago the driver was updated, which cost 3 %; two nights later somebody
accepted that. gpu-07 ran hot for four
nights and was repaired; gpu-04 failed once; something has held gpu-09's power down for two nights.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from bench_image.contract.result import RunResult
from bench_image.contract.spec import RunSpec
from tests.builders import make_failed, make_result
from tests.builders.campaigns import strategies
from trainbench.history.history import History
from trainbench.params.campaign_kind import CampaignKind
from trainbench.pipeline import Measured, assess, judge
from trainbench.planning.nodes import Fleet
from trainbench.planning.plan import Plan, campaign_id, make_plan
from trainbench.planning.planners import PLANNERS
from trainbench.results.campaign import Campaign

DAG_ID, SCALING = "node_consistency", "strategy_scaling"
NODES = tuple(f"gpu-{number:02}" for number in range(1, 11))
JOB = {"device": "cuda", "model": "mistral-7b", "micro_batch_size": 8, "seq_length": 512, "rounds": 1}
RATES = (10.3, 10.0)  # before and after the driver: the stand-in image goes on with the second
SPREAD, NOISE = 0.004, 0.002  # between the nodes; between the runs of one
DRIVERS = ("575.57.08", "580.65.06")
BEGIN, LASTS = timedelta(hours=2), timedelta(minutes=9)  # of a night that is over
UPDATED, ACCEPTED, HOT, FAILED, BRAKED = 18, 16, range(9, 13), 30, range(1, 3)  # nights ago


def record_nights(
    history: History, params: Mapping[str, Any] = JOB, num_nights: int = 45, nodes: Sequence[str] = NODES
) -> None:
    """`params`: of the trigger form, so that later runs of the DAG continue these nights."""
    chosen = PLANNERS[CampaignKind.NODES].params({**params, "nodes": list(nodes)}, locally=True)
    draw = random.Random(1)  # noqa: S311 - the same picture every time
    own = {node: draw.gauss(0, SPREAD) for node in nodes}
    last = (datetime.now(UTC) - BEGIN - LASTS).replace(hour=0, minute=0, second=0, microsecond=0) + BEGIN
    for ago in range(num_nights, 0, -1):
        at = last - timedelta(days=ago - 1)
        if ago % 7 == 0:
            history.record(_weekly(at))
        dag_run_id = f"scheduled__{at.isoformat()}"
        plan = make_plan(chosen, Fleet(), campaign_id(DAG_ID, dag_run_id))
        history.record(_night(plan, ago, at, own, draw, history).model_copy(update={"dag_run_id": dag_run_id}))
        if ago == ACCEPTED:
            history.accept_baseline(None, "ada", "the driver update closes a security hole", at + timedelta(hours=7))


def _night(
    plan: Plan, ago: int, at: datetime, own: Mapping[str, float], draw: random.Random, history: History
) -> Campaign:
    def run(spec: RunSpec) -> RunResult:
        rate = RATES[ago <= UPDATED] * (1 + own[spec.identity.node] + draw.gauss(0, NOISE))
        return _run(spec, ago, rate, at, draw)

    ended_at = at + LASTS
    results = tuple(run(spec) for spec in plan.specs)
    judged = judge(
        Measured(plan=plan, results=results, suite=DAG_ID, started_at=at, finished_at=ended_at, history=history)
    )
    return assess(judged.with_reruns([run(spec) for spec in judged.rerun_specs], ended_at))


def _run(spec: RunSpec, ago: int, rate: float, at: datetime, draw: random.Random) -> RunResult:
    """A node's run `ago` nights before the last: healthy, failed, hot or slowed, as the story needs."""
    dated = {
        "spec": spec,
        "started_at": at + timedelta(minutes=spec.identity.round),
        "finished_at": at + timedelta(minutes=5),
    }
    node = spec.identity.node
    if node.endswith("gpu-04") and ago == FAILED:
        return make_failed(node).model_copy(update=dated)
    figures: dict[str, Any] = {"temperature_c": 60 + draw.gauss(0, 0.8), "driver": DRIVERS[ago <= UPDATED]}
    if node.endswith("gpu-07") and ago in HOT:
        rate *= 0.91
        figures |= {"temperature_c": 84.0, "sm_clock_mhz": 1620.0, "throttle_share_pct": {"thermal": 41.0}}
    if node.endswith("gpu-09") and ago in BRAKED:
        rate *= 0.93
        figures |= {"sm_clock_mhz": 1785.0, "power_w": 560.0, "throttle_share_pct": {"power_brake": 52.0}}
    return make_result(node, rate, **figures).model_copy(update=dated)


def _weekly(at: datetime) -> Campaign:
    """A comparison of the strategies."""
    dag_run_id = f"scheduled__{at.isoformat()}"
    update = {
        "campaign_id": campaign_id(SCALING, dag_run_id),
        "suite": SCALING,
        "dag_run_id": dag_run_id,
        "started_at": at - timedelta(hours=1),
        "finished_at": at,
    }
    made = strategies()
    results = tuple(
        result.model_copy(
            update={
                "spec": result.spec.changed(identity={"campaign_id": update["campaign_id"]}),
                "started_at": at - timedelta(minutes=30),
                "finished_at": at - timedelta(minutes=20),
            }
        )
        for result in made.results
    )
    return made.model_copy(update={**update, "results": results})

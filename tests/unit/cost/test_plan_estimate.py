"""Duration, GPU-hours and cost of a plan: sums by hand, and the formula against measured runs."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.result import RunResult, Status
from committed import committed
from trainbench.cost.plan_estimate import START_S, cheapest_spot, estimate_plan, run_s
from trainbench.history.history import PastRun
from trainbench.params.campaign_kind import CampaignKind
from trainbench.planning.nodes import Fleet, GpuNode
from trainbench.planning.plan import Plan
from trainbench.planning.planners import PLANNERS
from trainbench.prices.price_tables import load_prices

H100: dict[str, Any] = {"gpu_product": "NVIDIA H100 80GB HBM3", "gpu_memory_bytes": 80 * 2**30}


def plan_of(kind: CampaignKind = CampaignKind.NODES, num_gpus: int = 2, **values: Any) -> Plan:
    planner = PLANNERS[kind]
    fleet = Fleet(nodes=(GpuNode(name="node-1", num_gpus=num_gpus, **H100),))
    return planner.make(planner.params(values, locally=False), fleet, "planned")


def measured_runs() -> list[tuple[RunResult, float]]:
    """Each committed result of a GPU, with its seconds from process start to result."""
    results = [RunResult.model_validate_json(text) for text in committed("*/result.json").values()]
    on_gpu = [run for run in results if run.status is Status.OK and run.context and run.context.gpus]
    return [(run, run.startup.total_s) for run in on_gpu if run.startup.total_s is not None]


def test_nine_of_ten_measured_runs_took_between_half_and_twice_the_estimate() -> None:
    runs = measured_runs()
    shares = []
    for run, seconds in runs:
        assert run.context is not None
        estimated = run_s(run.spec, run.context.gpus[0].name)
        assert estimated is not None
        shares.append(seconds / estimated)

    assert len(shares) >= 100
    assert sum(0.5 < share < 2 for share in shares) >= 0.9 * len(shares)


def test_the_duration_of_a_run_by_hand() -> None:
    """gpt2 in full on one H100: an assumed MFU of 40 % of 989 TFLOP/s; a window of 10 to 20 steps, bounded at 0.1 s."""
    values: dict[str, Any] = {
        "model": "gpt2",
        "recipe": "full",
        "preset": "tuned",
        "micro_batch_size": 8,
        "seq_length": 512,
    }
    rules: dict[str, Any] = {"warmup_steps": 10, "measured_steps": 10, "max_measured_steps": 20, "repeats": 3}
    spec = plan_of(**values, **rules, max_window_s=1000.0, strategies=["single"]).specs[0]
    short, long = (
        run_s(spec.changed(measurement={"max_measured_steps": steps}), H100["gpu_product"]) for steps in (10, 20)
    )
    assert short is not None
    assert long is not None
    # 10 steps of warm-up and 3 windows: of 10 steps 40 steps in all, of 20 steps 70.
    assert (long - START_S) / (short - START_S) == pytest.approx(70 / 40)

    bounded = run_s(spec.changed(measurement={"max_window_s": 0.1}), H100["gpu_product"])
    step_s = (short - START_S) / 40
    assert bounded == pytest.approx(START_S + 10 * step_s + 3 * min(0.1, 20 * step_s))


def test_gpu_hours_and_cost_by_hand() -> None:
    plan = plan_of(num_gpus=4, strategies=["ddp"], rounds=3, usd_per_gpu_hour=2.0)
    (kind,) = (estimate := estimate_plan(plan, load_prices())).kinds
    assert (kind.num_gpus, kind.num_runs) == (4, 3)
    assert kind.run_s is not None
    hours = 3 * kind.run_s * 4 / 3600
    spot = cheapest_spot(kind.gpu, load_prices())
    assert spot is not None
    assert (estimate.total_s, estimate.gpu_hours) == (pytest.approx(3 * kind.run_s), pytest.approx(hours))
    assert estimate.on_demand_usd == pytest.approx(2.0 * hours)
    assert estimate.spot_usd == pytest.approx((spot.spot_usd_per_gpu_hour or 0) * hours)
    assert estimate.limit_s == 3 * plan.params.timeout_s


def test_nodes_side_by_side_take_as_long_as_one() -> None:
    fleet = Fleet(nodes=tuple(GpuNode(name=name, num_gpus=1, **H100) for name in "abc"))
    planner = PLANNERS[CampaignKind.NODES]
    plan = planner.make(planner.params({"strategies": ["single"], "rounds": 2}, locally=False), fleet, "planned")
    estimate = estimate_plan(plan, load_prices())
    assert estimate.total_s is not None
    assert estimate.longest_s == pytest.approx(estimate.total_s / 3)


def test_what_ran_here_before_decides_the_duration() -> None:
    """60, 70 and 200 s on the planned H100: median 70 s. Two runs of one GPU: 140 s, 140 / 3600 GPU-hours at $2.
    One run on an H200 counts for nothing here, and ddp, which never ran, is computed by the formula.
    """
    plan = plan_of(num_gpus=2, strategies=["single", "ddp"], rounds=2, usd_per_gpu_hour=2.0)
    (single, *_) = [spec.identity.group_id for spec in plan.specs if spec.placement.world_size == 1]
    there = [PastRun(H100["gpu_product"], seconds) for seconds in (70.0, 200.0, 60.0)]
    past = {single: (*there, PastRun("NVIDIA H200", 5.0), PastRun(None, 5.0))}
    estimate = estimate_plan(plan, load_prices(), past)
    by_past, by_formula = estimate.kinds

    assert (by_past.num_past_runs, by_formula.num_past_runs) == (3, 0)
    assert (by_past.run_s, by_past.total_s) == (70.0, 140.0)
    assert by_past.on_demand_usd == pytest.approx(2.0 * 140 / 3600)
    assert by_formula.run_s == estimate_plan(plan, load_prices()).kinds[1].run_s
    notes = " ".join(estimate.notes)
    assert "By past runs: the median" in notes
    assert "By formula: 25 s to start" in notes
    assert notes.count("Re-runs of suspects come on top.") == 1


def test_a_trial_on_a_cpu_has_a_duration_where_it_ran_before() -> None:
    plan = plan_of(device="cpu", model="tiny", recipe="full", preset="as_users_run", strategies=["single"])
    past = {plan.specs[0].identity.group_id: (PastRun(None, 4.0), PastRun("NVIDIA H200", 1.0))}
    estimate = estimate_plan(plan, load_prices(), past)
    assert estimate.total_s == 4.0
    assert (estimate.gpu_hours, estimate.on_demand_usd) == (None, None)
    assert estimate.notes[-2:] == (
        "A trial on a CPU: its cost is not estimated.", "Re-runs of suspects come on top.",
    )  # fmt: skip
    without = estimate_plan(plan, load_prices())
    assert (without.total_s, without.notes) == (
        None, ("A trial on a CPU: neither its duration nor its cost is estimated.",),
    )  # fmt: skip


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    plan = plan_of(strategies=["single"])
    known = plan.known[0].model_copy(update={"gpu_product": "NVIDIA Unheard-of 3000"})
    estimate = estimate_plan(plan.model_copy(update={"known": (known,)}), load_prices())
    assert (estimate.total_s, estimate.gpu_hours, estimate.on_demand_usd, estimate.spot_usd) == (None,) * 4
    assert any("The peak FLOP/s of NVIDIA Unheard-of 3000 is not known" in note for note in estimate.notes)
    assert any("No price of NVIDIA Unheard-of 3000" in note for note in estimate.notes)


def test_work_that_fills_more_than_the_usable_memory_is_named() -> None:
    plan = plan_of(model="llama2-13b", recipe="full", strategies=["single"], micro_batch_size=8, force=True)
    estimate = estimate_plan(plan, load_prices())
    memory = estimate.kinds[0].memory
    assert memory
    assert memory.fits is False
    assert any("more memory than a GPU has to spare" in note for note in estimate.notes)

"""Diagnoses: the likely cause and the next step for each reason of a verdict. The verdicts are made by hand."""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from bench_image.contract.result import RunError, RunResult, Status
from bench_image.contract.spec import Drill
from tests.builders import campaigns, make_cpu_result, make_failed, make_independent, make_result
from tests.builders.verdicts import make_comparison, make_finding, make_gpu, make_group, make_node
from trainbench.core.states import TRAITS
from trainbench.core.verdicts import (
    OTHER_WORK,
    Against,
    Comparison,
    Finding,
    Level,
    Metric,
    NodeVerdict,
    State,
    Why,
)
from trainbench.judging.diagnose import diagnose, difference_findings
from trainbench.judging.node_runs import run_figure
from trainbench.planning.nodes import GpuNode

GOOD = [make_result(f"node-{i}") for i in (1, 2, 3)]
REASONS = {Metric.SAMPLES_PER_SECOND: Why.SLOW, Metric.MEMORY_GB: Why.HEAVY, Metric.TEMPERATURE_C: Why.HOT}


def diagnosed(*results: RunResult, known: tuple[GpuNode, ...] = (), **verdict: Any) -> tuple[Finding, ...]:
    """Of nodes that are slow, heavy or hot by their peers' medians; `verdict`: of the last node."""
    nodes = [judged(run, [other for other in results if other is not run]) for run in results]
    nodes[-1] = nodes[-1].model_copy(update=verdict)
    first = results[0].spec.identity
    gpu = results[0].context.gpus[0].name if results[0].context and results[0].context.gpus else None
    return diagnose([make_group(nodes, first.group_id, gpu_name=gpu)], results, known)


def judged(run: RunResult, others: list[RunResult]) -> NodeVerdict:
    comparisons: list[Comparison] = []
    for metric in Metric:
        own = run_figure(run, metric)
        peers = [value for other in others if (value := run_figure(other, metric)) is not None]
        if own is not None and peers:
            comparisons.append(make_comparison(own, statistics.median(peers), metric=metric))
    why = next((REASONS[c.metric] for c in comparisons if c.is_off), Why.WELL)
    is_drill = run.spec.drill is not None
    return make_node(run.spec.identity.node, why=why, is_drill=is_drill, comparisons=tuple(comparisons))


def changed(result: RunResult, changes: dict[str, Any]) -> RunResult:
    """`result` with other values at dotted paths."""
    document = result.model_dump(mode="json")
    for path, value in changes.items():
        *parents, name = path.split(".")
        place: Any = document
        for part in parents:
            place = place[int(part)] if part.isdigit() else place[part]
        place[name] = value
    return RunResult.model_validate(document)


def slow(**evidence: Any) -> Finding:
    (finding,) = diagnosed(*GOOD, make_result("node-4", 8.0, **evidence))
    return finding


def test_a_link_should_be_what_the_poorest_gpu_supports() -> None:
    """One GPU of two is of an older generation."""
    good = [make_result(f"node-{i}", strategy="ddp", gpus_per_node=2) for i in (1, 2, 3)]
    bad = make_result("node-4", 8.0, strategy="ddp", gpus_per_node=2, pcie=(4, 8))
    (finding,) = diagnosed(*good, changed(bad, {"context.gpus.1.pcie_generation_max": 4}))

    assert "(generation 4 x8 instead of 4 x16)" in finding.explanation


@pytest.mark.parametrize(
    ("evidence", "category", "cause"),
    [
        ({"throttle_share_pct": {"thermal": 40.0}}, "thermal_throttling", "slowed itself down for 40 % of the time"),
        ({"throttle_share_pct": {"hw_slowdown": 7.0}}, "thermal_throttling", "7 % of the time"),
        ({"throttle_share_pct": {"thermal": 5.5}}, "thermal_throttling", "6 % of the time"),
        ({"throttle_share_pct": {"power_cap": 90.0}}, "power_capping", "ran into its power limit for 90 %"),
        ({"sm_clock_mhz": 1632.0}, "low_clock", "the SM clock is 15.0 % below its peers'"),
        ({"pcie": (5, 8)}, "pcie_degraded", "narrower or slower"),
        ({"pcie": (4, 16)}, "pcie_degraded", "narrower or slower"),
        ({"pcie": (4, 16), "h2d_gb_per_s": 54.5}, "pcie_degraded", "copies from the host are 2 % slower"),
        ({"h2d_gb_per_s": 27.7}, "slow_host_to_device", "50 % slower"),
        ({"events": {"rows_remapped_in_run": 2}}, "rows_remapped", "2 rows replaced: the GPU's memory wears"),
        ({"events": {"xids": {"13": 1}}}, "xid", "Xid 13, 1 time: an exception in the GPU's units"),
        ({"num_other_processes": 1}, "shared_gpu", "1 other process on GPU 0"),
        ({"driver": "570.10"}, "versions_differ", "driver differs from its peers"),
        ({"vbios": "old"}, "versions_differ", "VBIOS differs"),
        ({"libraries": {"torch": "2.11.0"}}, "versions_differ", "torch differs"),
        ({"cpu_steal_pct": 20.0}, "cpu_steal", "gave 20 % of this machine's CPU time to others"),
        ({"drill": Drill(slowdown_pct=20)}, "drill", "a drill: the node was slowed on purpose by 20 %"),
        ({}, "cause_unknown", "no measured figure distinguishes the node"),
    ],
)
def test_the_likely_cause_is_named(evidence: dict[str, Any], category: str, cause: str) -> None:
    finding = slow(**evidence)
    assert (finding.category, finding.subject, finding.level) == (category, "node-4", Level.ERROR)
    assert cause.lower() in finding.explanation.lower()
    assert finding.measured.startswith("samples/s −15.8 %")
    assert (finding.why, finding.summary) == (Why.SLOW, "is slow: samples/s −15.8 % against the median of 3 peers")
    assert [c.metric for c in finding.evidence] == [Metric.SAMPLES_PER_SECOND]
    assert finding.resolution


def test_copies_that_are_as_fast_as_the_peers_are_not_told_beside_a_poorer_link() -> None:
    """54.9 GB/s of 55.4 is 0.9 % less."""
    assert "copies" not in slow(pcie=(4, 16), h2d_gb_per_s=54.9).explanation


def test_a_node_that_is_behind_its_past_only_has_no_share_of_a_deviation_from_its_peers() -> None:
    past = make_comparison(9.5, 9.6, Against.PAST)
    ahead = make_comparison(9.5, 9.4)
    run = make_result("node-4", 9.5, sm_clock_mhz=1632.0)
    compared = {"comparisons": (ahead, past), "decided_by": (Metric.SAMPLES_PER_SECOND, Against.PAST)}
    (finding,) = diagnosed(*GOOD, run, why=Why.BEHIND, state=State.LOOK, **compared)
    assert finding.cause == "The SM clock is 15.0 % below its peers' (1632 MHz, theirs 1920)"


def test_what_all_nodes_share_explains_nothing() -> None:
    """Power capping at full load is normal; it explains one slow node only when the others are capped less."""
    capped: dict[str, Any] = {"throttle_share_pct": {"power_cap": 80.0}, "pcie": (4, 16)}
    results = [make_result(f"node-{i}", **capped) for i in (1, 2, 3)] + [make_result("node-4", 8.0, **capped)]
    assert diagnosed(*results)[0].category == "cause_unknown"


@pytest.mark.parametrize(("share", "category"), [("power_cap", "cause_unknown"), ("thermal", "thermal_throttling")])
def test_power_capping_is_no_cause_where_nobody_is_beside_it(share: str, category: str) -> None:
    """One box with an H200 runs into its power limit in 100 % of a healthy night; no GPU should be too hot."""
    level = make_comparison(8.0, 9.5, Against.LEVEL)
    verdict = {"comparisons": (level,), "decided_by": (Metric.SAMPLES_PER_SECOND, Against.LEVEL)}
    run = make_result("box", 8.0, throttle_share_pct={share: 70.0})
    (finding,) = diagnosed(run, why=Why.SLOW, state=State.RED, **verdict)
    assert finding.category == category


# --- how much a cause explains ----------------------------------------------------------------------------------------


def test_heat_and_the_clock_it_lowers_are_one_cause_with_its_consequence() -> None:
    """8.0 against 9.5 is -15.8 %; 1500 against 1920 MHz is -21.9 %: enough for all of it."""
    finding = slow(throttle_share_pct={"thermal": 40.0}, sm_clock_mhz=1500.0, driver="570.10", temperature_c=69.0)
    assert finding.category == "thermal_throttling"
    assert finding.explanation.endswith(
        "The GPU was too hot (69 °C, its peers 60 °C) and slowed itself down for 40 % of the time, usual 0 %; the SM "
        "clock is 21.9 % below its peers' (1500 MHz, theirs 1920), which explains up to 15.8 of the 15.8 % (also: "
        "driver differs from its peers (570.10, theirs 580.65.06))"
    )
    assert (finding.measured, finding.expected) == ("samples/s −15.8 %", "at most 5 % below the median of 3 peers")


def test_throttling_that_did_not_lower_the_clock_is_reported_as_a_contradiction() -> None:
    finding = slow(throttle_share_pct={"thermal": 40.0})
    assert "its mean clock is nevertheless as high as its peers'" in finding.explanation
    assert "explains" not in finding.explanation


def test_a_lower_power_limit_is_the_cause_and_the_capping_its_consequence() -> None:
    limited = changed(
        make_result("node-4", 8.0, throttle_share_pct={"power_cap": 98.0}, sm_clock_mhz=1600.0),
        {"context.gpus.0.power_limit_w": 500.0},
    )
    (finding,) = diagnosed(*GOOD, limited)
    assert finding.category == "power_limit_low"
    assert "Its power limit is 500 W, its peers' 700 W; the SM clock is 16.7 % below" in finding.explanation
    assert "ran into" not in finding.explanation
    assert finding.resolution == "set the power limit to 700 W (nvidia-smi -pl)"


def test_a_clock_that_explains_the_deviation_beats_a_link_that_may() -> None:
    finding = slow(sm_clock_mhz=1632.0, h2d_gb_per_s=27.7)
    assert finding.category == "low_clock"
    assert (
        "which explains up to 15.0 of the 15.8 % (also: copies from host to GPU are 50 % slower" in finding.explanation
    )


def test_what_may_be_the_cause_comes_before_what_explains_a_part_only() -> None:
    """The clock's 4.2 % (1840 of 1920 MHz) is less than half of 15.8 %."""
    finding = slow(sm_clock_mhz=1840.0, num_other_processes=2)
    assert finding.category == "shared_gpu"
    assert "(also: the SM clock is 4.2 % below its peers' (1840 MHz, theirs 1920))" in finding.explanation
    (alone,) = [slow(sm_clock_mhz=1840.0)]
    assert alone.category == "low_clock"
    assert alone.explanation.endswith("which explains up to 4.2 of the 15.8 %; the rest is not explained")


def test_a_link_that_hardly_anything_goes_over_explains_nothing() -> None:
    """LoRA with an optimizer that does not page, 512 int64 tokens a sample: 8 samples/s are 0.03 MB/s of 27.7 GB/s."""
    work: dict[str, Any] = {"recipe": "lora", "optimizer": "adamw_torch"}
    good = [make_result(f"node-{i}", **work) for i in (1, 2, 3)]
    (finding,) = diagnosed(*good, make_result("node-4", 8.0, h2d_gb_per_s=27.7, pcie=(5, 8), **work))
    assert finding.category == "cause_unknown"
    sentence = (
        "(also: the GPU's PCIe link is narrower or slower than it should be (generation 5 x8 instead of 5 x16); copies "
        "from the host are 50 % slower, "
    )
    assert f"{sentence}too little to explain it)" in finding.explanation
    (clock,) = diagnosed(*good, make_result("node-4", 8.0, h2d_gb_per_s=27.7, sm_clock_mhz=1840.0, **work))
    assert clock.category == "low_clock"  # which explains 4.2 %
    assert "(also: copies from host to GPU are 50 % slower" in clock.explanation


@pytest.mark.parametrize(
    ("changes", "category", "sentence"),
    [
        # waits 15 % instead of 0.1 %: 1 - 0.85 / 0.999 = 14.9 %
        ({"performance.loader_wait_pct": 15.0}, "slow_data", "which explains up to 14.9 of the 15.8 %"),
        ({"probes.matmul_tflops": 660.0}, "slow_gpu", "15.4 % slower than on its peers: it is the GPU itself"),
        ({"telemetry.gpus.0.utilisation_mean_pct": 80.0}, "gpu_waits", "busy 80 % of the time, its peers' 98 %"),
        ({"telemetry.host.cpu_utilisation_mean_pct": 90.0}, "busy_host", "were 90 % busy, those of its peers 12 %"),
        ({"telemetry.host.memory_used_pct": 98.0}, "host_memory_full", "the host's memory is full"),
        ({"memory.alloc_retries": 3}, "allocator_retries", "torch ran out of free GPU memory"),
        ({"chosen.execution.attention": "eager"}, "other_execution", "attention differs from its peers"),
        ({"context.num_cpus": 4}, "other_host", "number of CPUs differs from its peers"),
        ({"context.kernel": "6.8"}, "versions_differ", "kernel differs from its peers"),
        ({"telemetry.gpus.0.throttle_share_pct.user_clocks": 99.0}, "clocks_locked", "limited by hand for 99 %"),
        ({"telemetry.gpus.0.throttle_share_pct.power_brake": 30.0}, "power_brake", "the machine's power supply"),
    ],
)  # fmt: skip
def test_causes_in_data_host_and_program(changes: dict[str, Any], category: str, sentence: str) -> None:
    (finding,) = diagnosed(*GOOD, changed(make_result("node-4", 8.0), changes))
    assert finding.category == category
    assert sentence.lower() in finding.explanation.lower()


def test_slow_communication_inside_a_node_explains_its_share() -> None:
    """16 % exposed instead of 6 %: 1 - 0.84 / 0.94 = 10.6 %; 17 against 19 samples/s is -10.5 %."""
    work: dict[str, Any] = {"strategy": "ddp", "gpus_per_node": 2}
    good = [make_result(f"node-{i}", 19.0, **work) for i in (1, 2, 3)]
    (finding,) = diagnosed(*good, make_result("node-4", 17.0, exposed_communication_pct=16.0, **work))
    assert finding.category == "slow_communication"
    assert (
        "waited for each other 16.0 % of the time, its peers' 6.0 %, which explains up to 10.5 of the 10.5 %"
        in finding.explanation
    )


def test_of_two_causes_that_explain_it_the_larger_comes_first() -> None:
    """The clock explains 15 %, waiting for data 1 - 0.9 / 0.999 = 9.9 %: both more than half of 15.8 %."""
    waits = changed(make_result("node-4", 8.0, sm_clock_mhz=1632.0), {"performance.loader_wait_pct": 10.0})
    (finding,) = diagnosed(*GOOD, waits)
    assert finding.category == "low_clock"
    assert "(also: training waited for its data 10.0 % of the time" in finding.explanation


def test_a_gpu_of_a_lone_node_has_its_neighbours_as_peers() -> None:
    run = make_independent("node-1", (10.0, 10.0, 9.0), throttled={2: {"thermal": 40.0}}, temperatures={2: 71.0})
    bad = make_gpu(2, 9.0, peers=10.0, why=Why.SLOW, uuid="GPU-node-1-2")
    node = make_node("node-1", 9.0, peers=10.0, why=Why.SLOW, gpus=(make_gpu(0), make_gpu(1), bad))
    group = make_group([node], run.spec.identity.group_id, gpu_name="NVIDIA H200")
    (finding,) = diagnose([group], [run])
    assert finding.category == "thermal_throttling"
    assert "(71 °C, its peers 60 °C)" in finding.explanation


def test_of_a_node_that_is_behind_its_own_past_all_gpus_are_looked_at() -> None:
    """GPU 1 has the low clock; beside the GPUs of other nodes it is well."""
    runs = [make_independent(f"node-{i}", (9.5, 9.5)) for i in (1, 2, 3)]
    clock = {f"telemetry.gpus.1.sm_clock_{of}_mhz": 1632.0 for of in ("mean", "min")}
    runs.append(changed(make_independent("node-4", (9.5, 9.3)), clock))
    behind = make_node("node-4", 9.3, past=9.5, why=Why.BEHIND, gpus=(make_gpu(0), make_gpu(1)))
    nodes = [*(make_node(f"node-{i}", gpus=(make_gpu(0), make_gpu(1))) for i in (1, 2, 3)), behind]
    (finding,) = diagnose([make_group(nodes, runs[0].spec.identity.group_id, gpu_name="NVIDIA H200")], runs)
    assert finding.category == "low_clock"


def test_runs_on_another_kind_of_gpu_are_no_peers() -> None:
    """Three A10s of the same clock as the slow H200 would hide it."""
    others = [make_result(f"other-{i}", sm_clock_mhz=1632.0, gpu_name="NVIDIA A10") for i in range(4)]
    slow_run = make_result("node-4", 8.0, sm_clock_mhz=1632.0)
    nodes = [*(make_node(f"node-{i}") for i in (1, 2, 3)), make_node("node-4", 8.0, peers=9.5, why=Why.SLOW)]
    group = make_group(nodes, slow_run.spec.identity.group_id, gpu_name="NVIDIA H200")
    (finding,) = diagnose([group], [*GOOD, slow_run, *others])
    assert finding.category == "low_clock"


def test_a_consequence_is_not_named_as_a_second_cause() -> None:
    waits = {"performance.loader_wait_pct": 15.0, "telemetry.gpus.0.utilisation_mean_pct": 80.0}
    (finding,) = diagnosed(*GOOD, changed(make_result("node-4", 8.0), waits))
    assert "busy" not in finding.explanation
    (finding,) = diagnosed(
        *GOOD, changed(make_result("node-4", 8.0, sm_clock_mhz=1632.0), {"probes.matmul_tflops": 660.0})
    )
    assert "matrix" not in finding.explanation


def test_stolen_cpu_time_explains_its_share_where_the_cpu_computes() -> None:
    """20 % of the time stolen: 1 - 0.8 = 20 % of the samples/s; 30 against 40 is -25 %."""
    good = [make_cpu_result(f"node-{i}") for i in (1, 2, 3)]
    (finding,) = diagnosed(*good, make_cpu_result("node-4", 30.0, cpu_steal_pct=20.0))
    assert finding.category == "cpu_steal"
    assert finding.explanation.endswith("which explains up to 20.0 of the 25.0 %")


def test_what_the_cluster_says_of_the_node_is_evidence() -> None:
    known = (GpuNode(name="node-4", troubles=("XidError (Xid 63)",)),)
    (finding,) = diagnosed(*GOOD, make_result("node-4", 8.0), known=known)
    assert finding.category == "node_trouble"
    assert "the cluster says of the node: XidError (Xid 63)" in finding.explanation.replace(
        "The cluster", "the cluster"
    )


def test_evidence_is_taken_from_healthy_peers() -> None:
    """Two of six are slow for the same reason: set beside each other, neither would stand out."""
    throttled: dict[str, Any] = {"sm_clock_mhz": 1632.0}
    bad = [make_result(f"node-{i}", 8.0, **throttled) for i in (5, 6)]
    actual = diagnosed(*GOOD, make_result("node-4"), *bad)
    assert [finding.category for finding in actual] == ["low_clock", "low_clock"]
    assert all("15.0 % below" in finding.explanation for finding in actual)


# --- more memory, hotter --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "category"),
    [
        ({"context.libraries.bitsandbytes": "0.49"}, "versions_differ"),
        ({"memory.alloc_retries": 3}, "allocator_retries"),
        ({"chosen.execution.attention": "eager"}, "other_execution"),
        ({"context.gpus.0.memory_total_bytes": 80_000_000_000}, "other_gpu_memory"),
        ({}, "cause_unknown"),
        # what slows a node down says nothing of its memory
        ({"telemetry.gpus.0.num_other_processes": 2, "context.gpus.0.power_limit_w": 500.0}, "cause_unknown"),
    ],
)
def test_why_a_node_takes_more_memory(changes: dict[str, Any], category: str) -> None:
    (finding,) = diagnosed(*GOOD, changed(make_result("node-4", memory_gb=7.6), changes))
    assert finding.category == category
    assert (finding.why, finding.level) == (Why.HEAVY, Level.WARNING)
    assert finding.measured.startswith("memory +7.0 %")


def test_what_peers_say_of_0_bytes_of_memory_is_no_difference() -> None:
    silent = [changed(run, {"context.gpus.0.memory_total_bytes": 0}) for run in GOOD]
    (finding,) = diagnosed(*silent, make_result("node-4", memory_gb=7.6))
    assert finding.category == "cause_unknown"


@pytest.mark.parametrize(
    ("temperature_c", "power_w", "category", "sentence"),
    [
        (
            75.0,
            640.0,
            "cooling",
            "hotter (75 °C, its peers 60 °C) though it draws no more power than its peers (640 W, they 640 W)",
        ),
        (75.0, 700.0, "high_power", "it draws 9 % more power than its peers"),
        (75.0, None, "hot", "what power it draws is not known"),
    ],
)
def test_why_a_node_is_hot(temperature_c: float, power_w: float | None, category: str, sentence: str) -> None:
    result = make_result("node-4", temperature_c=temperature_c)
    missing = result.missing | {"telemetry.gpus.*.power_mean_w": "not supported"}
    result = changed(result.model_copy(update={"missing": missing}), {"telemetry.gpus.0.power_mean_w": power_w})
    (finding,) = diagnosed(*GOOD, result)
    assert (finding.category, finding.why, finding.level) == (category, Why.HOT, Level.WARNING)
    assert sentence in finding.explanation.replace("It ", "it ")
    (by_setting,) = diagnosed(*GOOD, result, state=State.RED)
    assert by_setting.level is Level.ERROR


def test_a_hot_slow_node_has_one_cause_which_states_its_temperature() -> None:
    finding = slow(throttle_share_pct={"thermal": 40.0}, sm_clock_mhz=1500.0, temperature_c=84.0)
    assert finding.category == "thermal_throttling"
    assert "(84 °C, its peers 60 °C)" in finding.explanation
    assert "also:" not in finding.explanation
    assert finding.measured == "samples/s −15.8 %; temperature +24.0 °C"


def test_of_a_hot_slow_node_whose_power_is_not_known_the_heat_is_told_once_too() -> None:
    result = make_result("node-4", 8.0, throttle_share_pct={"thermal": 40.0}, temperature_c=84.0)
    missing = result.missing | {"telemetry.gpus.*.power_mean_w": "not supported"}
    result = changed(result.model_copy(update={"missing": missing}), {"telemetry.gpus.0.power_mean_w": None})
    assert "also:" not in diagnosed(*GOOD, result)[0].explanation


def test_with_a_reason_for_it_a_clock_that_is_a_little_lower_counts_and_without_peers_the_reason_alone() -> None:
    """1882 of 1920 MHz is 2 % less; by itself 3 % is the least."""
    throttled: dict[str, Any] = {"throttle_share_pct": {"power_cap": 40.0}, "sm_clock_mhz": 1882.0}
    assert "40 % of the time, usual 0 %; the SM clock is 2.0 % below" in slow(**throttled).explanation
    assert slow(sm_clock_mhz=1882.0).category == "cause_unknown"
    past = make_comparison(8.0, 9.5, Against.PAST)
    compared = {"comparisons": (past,), "decided_by": (Metric.SAMPLES_PER_SECOND, Against.PAST)}
    locked = make_result("node-4", 8.0, sm_clock_mhz=1882.0, throttle_share_pct={"user_clocks": 40.0})
    (alone,) = diagnosed(locked, why=Why.SLOW, state=State.RED, **compared)
    assert alone.cause == "The GPU's clocks were limited by hand for 40 % of the time, usual 0 %"


def test_what_the_peers_do_not_differ_in_is_no_cause_of_the_heat() -> None:
    """Hot beside its own past, as its peers are: their figures say nothing."""
    past = make_comparison(75.0, 60.0, Against.PAST, Metric.TEMPERATURE_C)
    hot = [make_result(f"node-{i}", temperature_c=75.0) for i in (1, 2, 3)]
    (finding,) = diagnosed(*hot, why=Why.HOT, state=State.LOOK, comparisons=(past,))

    assert finding.category == "cause_unknown"
    assert finding.expected == "at most 10 °C above its own past of 9 nights"
    assert finding.resolution == "check fans, filters and the air flow of the node"


def test_two_faults_of_different_kinds_are_both_named() -> None:
    finding = slow(sm_clock_mhz=1632.0, memory_gb=7.6, libraries={"torch": "2.11.0"})
    assert finding.category == "low_clock"
    assert "also: torch differs from its peers" in finding.explanation


# --- other reasons ---------------------------------------------------------------------------------------------------


def test_a_healthy_fleet_a_better_node_and_an_undetected_drill_have_no_finding() -> None:
    assert diagnosed(*GOOD) == ()
    assert diagnosed(*GOOD, make_result("node-4", 12.0, temperature_c=40.0, memory_gb=5.0)) == ()
    drilled = make_result("node-4", 9.4, drill=Drill(slowdown_pct=5))
    assert diagnosed(*GOOD, drilled, why=Why.DRILL, state=State.DRILL) == ()


def test_a_drilled_peer_is_no_example_of_a_healthy_node_nor_is_a_shared_one() -> None:
    drilled = make_result("node-6", 4.0, h2d_gb_per_s=10.0, drill=Drill(slowdown_pct=60))
    shared = make_result("node-7", 9.0, h2d_gb_per_s=10.0, num_other_processes=1)
    slow_node = make_result("node-5", 8.0, h2d_gb_per_s=20.0)
    results = [*GOOD[:2], drilled, shared, slow_node]
    nodes = [make_node("node-1"), make_node("node-2")]
    nodes += [make_node("node-6", 4.0, peers=9.5, why=Why.SLOW, is_drill=True), make_node("node-7", why=Why.SHARED)]
    nodes += [make_node("node-5", 8.0, peers=9.5, why=Why.SLOW)]
    group = make_group(nodes, GOOD[0].spec.identity.group_id, gpu_name="NVIDIA H200")
    drill, other, slow = diagnose([group], results)

    assert (drill.category, drill.level, drill.is_drill) == ("drill", Level.ERROR, True)
    assert drill.resolution == TRAITS[Why.DRILL].next_step
    assert (other.category, other.level) == ("shared", Level.INFO)
    assert other.summary == f"had to share its GPUs: {nodes[3].reason}"
    assert (slow.category, slow.is_drill) == ("slow_host_to_device", False)
    assert "Copies from host to GPU are 64 % slower" in slow.explanation  # 20 GB/s of 55.4


def test_a_node_that_is_behind_is_a_warning_with_its_likely_cause() -> None:
    """3 % is below the limit; the clock explains it."""
    (finding,) = diagnosed(*GOOD, make_result("node-4", 9.215, sm_clock_mhz=1860.0), why=Why.BEHIND, state=State.LOOK)

    assert (finding.level, finding.category, finding.why) == (Level.WARNING, "low_clock", Why.BEHIND)
    assert "explains up to 3.0 of the 3.0 %" in finding.explanation
    assert finding.evidence == ()


def test_two_nodes_that_differ_are_one_finding_on_both() -> None:
    pair = [make_result("node-1", 9.5), make_result("node-2", 8.8, sm_clock_mhz=1780.0)]
    nodes = [make_node("node-1", 9.5, peers=8.8, why=Why.PAIR), make_node("node-2", 8.8, peers=9.5, why=Why.PAIR)]
    group = make_group(nodes, GOOD[0].spec.identity.group_id, gpu_name="NVIDIA H200")
    (finding,) = diagnose([group], pair)

    assert (finding.nodes, finding.why, finding.level) == (("node-1", "node-2"), Why.PAIR, Level.WARNING)
    assert finding.headline.startswith("node-1 and node-2 differ from each other: node-2 has samples/s")
    assert finding.cause == (
        "It is not known which one is off. The SM clock is 7.3 % below its peers' (1780 MHz, theirs 1920)"
    )
    assert "third node" in finding.resolution


def test_two_gpus_of_one_box_that_differ_are_one_finding_on_the_box() -> None:
    gpus = (make_gpu(0, 10.0, peers=9.0, why=Why.PAIR), make_gpu(1, 9.0, peers=10.0, why=Why.PAIR))
    box = make_node("box", 9.0, peers=10.0, why=Why.PAIR, gpus=gpus)
    (finding,) = diagnose([make_group([box])], [])

    assert finding.nodes == ("box",)
    assert finding.headline.startswith("box differs from its only peer: GPU 1 (GPU-0001): samples/s \u221210.0 %")


@pytest.mark.parametrize(
    ("why", "level", "step"),
    [
        (Why.ONCE, Level.WARNING, "find what disturbs the node"),
        (Why.NOISY, Level.INFO, "run more rounds"),
        (Why.NOTHING_TO_COMPARE, Level.INFO, "second night"),
        (Why.UNSTEADY, Level.WARNING, "what runs there at times"),
    ],
)
def test_a_reason_without_a_cause_says_the_next_step(why: Why, level: Level, step: str) -> None:
    (finding,) = diagnosed(*GOOD, why=why, state=make_node("x", why=why).state)

    assert (finding.why, finding.category, finding.level, finding.nodes) == (why, why.value, level, ("node-3",))
    assert finding.summary.startswith(f"{TRAITS[why].one}: ")
    assert step in finding.resolution


def test_the_clock_that_fell_is_named_for_an_unsteady_node() -> None:
    fallen = changed(GOOD[2], {"telemetry.gpus.0.sm_clock_min_mhz": 900.0})
    (finding,) = diagnosed(*GOOD[:2], fallen, why=Why.UNSTEADY, state=State.LOOK, noise_pct=9.0)

    assert finding.cause is not None
    assert "; its SM clock fell to 900 MHz at the lowest, its peers' to" in finding.cause
    assert (finding.measured, finding.expected) == ("a scatter of 9.0 %", "0.3 %, as its peers")


def test_of_a_node_with_several_gpus_the_worst_three_are_diagnosed() -> None:
    gpus = [make_gpu(i, 9.0 - i / 10, peers=9.5, why=Why.SLOW) for i in range(4)] + [make_gpu(4)]
    node = make_node("node-1", 8.7, why=Why.SLOW, gpus=tuple(gpus))
    findings = diagnose([make_group([node, make_node("node-2")])], [])

    names = [f"GPU {i} (GPU-000{i})" for i in (3, 2, 1)]
    assert [finding.summary.split(": ")[1] for finding in findings] == names
    assert {finding.nodes for finding in findings} == {("node-1",)}


def test_a_node_that_computes_other_numbers_must_not_train() -> None:
    error = RunError(kind=OTHER_WORK, message="first loss 99", phase="measure", rank=None)
    odd = GOOD[2].model_copy(update={"status": Status.ERROR, "error": error})
    (finding,) = diagnosed(*GOOD[:2], odd, why=Why.OTHER_NUMBERS, state=State.RED)

    assert (finding.category, finding.level) == ("other_numbers", Level.ERROR)
    assert finding.resolution.startswith("do not train on it")


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
def test_a_failed_run_says_its_status_and_the_next_step(status: Status) -> None:
    failed = make_failed("node-4", status=status, message="what happened")
    known = (GpuNode(name="node-4", troubles=("DiskPressure",)),)
    (finding,) = diagnosed(*GOOD, failed, known=known, why=Why.FAILED, state=State.RED, reason="what happened")
    assert (finding.category, finding.measured) == (f"run_{status.value}", "1 of 1 runs failed")
    assert finding.explanation == "failed: what happened. The cluster says of the node: DiskPressure"
    assert finding.resolution


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        ("no_image", "registry"),
        ("unschedulable", "taints"),
        ("host_out_of_memory", "TRAINBENCH_MEMORY_GIB"),
        ("evicted", "pressure"),
    ],
)
def test_how_the_pod_ended_decides_the_next_step(kind: str, step: str) -> None:
    failed = make_failed("node-4", status=Status.INCOMPLETE, kind=kind, message="the pod's end")
    (finding,) = diagnosed(*GOOD, failed, why=Why.FAILED, state=State.RED)
    assert step in finding.resolution


def test_a_run_that_found_its_node_busy_is_no_failure() -> None:
    """The first round found it busy, in the second its image was missing."""
    ends = [(1, "busy"), (2, "no_image")]
    runs = [make_failed("node-4", status=Status.INCOMPLETE, kind=kind, message="x", round=r) for r, kind in ends]
    group = make_group([make_node("node-4", None, why=Why.FAILED)], runs[0].spec.identity.group_id)
    (finding,) = diagnose([group], runs)
    assert (finding.measured, "registry" in finding.resolution) == ("1 of 2 runs failed", True)


def test_a_missing_node_and_a_failed_one_without_its_runs() -> None:
    nodes = [make_node("node-8", None, why=Why.FAILED), make_node("node-9", None, why=Why.MISSING)]
    failed, missing = diagnose([make_group(nodes)], [])
    assert (failed.category, failed.measured) == ("run_error", "0 of 0 runs failed")
    assert (missing.category, missing.headline) == ("node_missing", "node-9 was expected, but gave no result")


@pytest.mark.parametrize(
    ("odd", "category", "level", "measured", "usual"),
    [
        ({"pod_template": "a" * 12}, "other_execution", Level.WARNING, f"pod template {'a' * 12}", "pod template none"),
        ({"driver": "570.10"}, "versions_differ", Level.INFO, "driver 570.10", "driver 580.65.06"),
    ],
)
def test_what_differs_is_told_of_nodes_that_are_well_too(
    odd: dict[str, Any], category: str, level: Level, measured: str, usual: str
) -> None:
    """Also of one run of three: somebody edited the template during the night."""
    runs = [make_result(f"node-{i}", round=r, **(odd if (i, r) == (4, 3) else {})) for r in (1, 2, 3) for i in range(5)]
    (finding,) = difference_findings(runs)
    assert (finding.category, finding.level, finding.nodes) == (category, level, ("node-4",))
    assert (finding.measured, finding.expected) == (measured, f"{usual}, as on most of its peers")
    assert difference_findings(GOOD) == ()


def test_an_execution_that_a_run_lacks_is_a_difference_and_a_version_that_was_not_recorded_is_none() -> None:
    lean, *others = (make_result(f"node-{i}") for i in (1, 2, 3))
    assert lean.chosen
    assert lean.context
    chosen = lean.chosen.model_copy(update={"execution": {"compiled": "no"}})
    lean = lean.model_copy(update={"chosen": chosen, "context": lean.context.model_copy(update={"driver": None})})
    (finding,) = difference_findings([lean, *others])
    assert (finding.category, "attention none" in finding.measured) == ("other_execution", True)


def test_of_several_works_on_one_node_each_none_has_to_be_compared() -> None:
    alone = [make_group([make_node("node-1", why=Why.NOTHING_TO_COMPARE)], group_id) for group_id in ("ddp", "fsdp")]

    assert diagnose(alone, []) == ()
    assert [finding.why for finding in diagnose(alone[:1], [])] == [Why.NOTHING_TO_COMPARE]


def test_of_two_works_the_finding_on_the_one_that_is_asked_for_comes_first() -> None:
    node = make_node("node-1", 9.0, peers=10.0, why=Why.SLOW)
    findings = tuple(make_finding("node-1", group_id=work) for work in ("ddp", "single"))
    campaign = campaigns.judged(node, findings=findings)
    (state,) = campaign.node_states
    assert [campaign.finding_of(state, work).group_id for work in ("ddp", "single", "zero3")] == [
        "ddp",
        "single",
        "ddp",
    ]

from __future__ import annotations

from typing import Any

import pytest

from bench_control.confirmation import confirm
from bench_control.diagnosis import diagnose, strays
from bench_control.variance import judge
from bench_control.verdicts import Finding, Level, Tolerances
from bench_image.contract import Chosen, Drill, RunResult, Status
from tests.builders import make_cpu_result, make_failed, make_result

LIMITS = Tolerances()
GOOD = [make_result(f"node-{i}") for i in (1, 2, 3)]


def diagnosed(*results: RunResult, expected: tuple[str, ...] = ()) -> tuple[Finding, ...]:
    return diagnose(judge(results, expected, LIMITS), results)


def slow(**evidence: Any) -> Finding:
    (finding,) = diagnosed(*GOOD, make_result("node-4", 8.0, **evidence))
    return finding


def test_a_healthy_fleet_has_no_findings() -> None:
    assert diagnosed(*GOOD) == ()


@pytest.mark.parametrize(
    ("evidence", "category", "cause"),
    [
        ({"throttle_share_pct": {"thermal": 40.0}}, "thermal_throttling", "slowed itself down for 40 % of the time"),
        ({"throttle_share_pct": {"hw_slowdown": 7.0}}, "thermal_throttling", "7 % of the time"),
        ({"throttle_share_pct": {"power_cap": 90.0}}, "power_capping", "ran into its power limit for 90 %"),
        ({"sm_clock_mhz": 1632.0}, "low_clock", "the SM clock is 15.0 % below its peers'"),
        ({"pcie": (5, 8)}, "pcie_degraded", "narrower or slower"),
        ({"pcie": (4, 16)}, "pcie_degraded", "narrower or slower"),
        ({"h2d_gb_per_s": 27.7}, "slow_host_to_device", "50 % slower"),
        ({"ecc_uncorrected": 3}, "ecc_errors", "memory has faults"),
        ({"remapped_rows": 2}, "ecc_errors", "memory has faults"),
        ({"num_other_processes": 1}, "other_processes", "other work ran on the same GPU"),
        ({"driver": "570.10"}, "versions_differ", "driver differs from its peers"),
        ({"vbios": "old"}, "versions_differ", "VBIOS differs"),
        ({"libraries": {"torch": "2.11.0"}}, "versions_differ", "torch differs"),
        ({"cpu_steal_pct": 20.0}, "cpu_steal", "gave 20 % of this machine's CPU time to others"),
        ({"drill": Drill(slowdown_pct=20)}, "drill", "a drill: the node was slowed on purpose by 20 %"),
        ({}, "cause_unknown", "nothing measured sets the node apart"),
    ],
)
def test_the_likely_cause_is_named(evidence: dict[str, Any], category: str, cause: str) -> None:
    finding = slow(**evidence)
    assert (finding.category, finding.subject, finding.level) == (category, "node-4", Level.ERROR)
    assert cause.lower() in finding.summary.lower()
    assert finding.measured.startswith("samples_per_second -15.8 %")
    assert finding.resolution


def test_what_all_nodes_share_explains_nothing() -> None:
    """Power capping at full load is normal; it explains one slow node only when the others are capped less."""
    capped: dict[str, Any] = {"throttle_share_pct": {"power_cap": 80.0}, "pcie": (4, 16)}
    results = [make_result(f"node-{i}", **capped) for i in (1, 2, 3)] + [make_result("node-4", 8.0, **capped)]
    assert diagnosed(*results)[0].category == "cause_unknown"


def test_the_strongest_clue_comes_first_and_the_others_are_told() -> None:
    finding = slow(throttle_share_pct={"thermal": 40.0}, sm_clock_mhz=1500.0, driver="570.10")
    assert finding.category == "thermal_throttling"
    assert "also: the SM clock is 21.9 % below its peers'; driver differs from its peers" in finding.summary


def test_a_drilled_peer_is_no_example_of_a_healthy_node() -> None:
    drilled = make_result("node-6", 4.0, h2d_gb_per_s=10.0, drill=Drill(slowdown_pct=60))
    slow_node = make_result("node-5", 8.0, h2d_gb_per_s=20.0)
    found = diagnosed(*GOOD, make_result("node-4"), slow_node, drilled)
    assert [finding.category for finding in found] == ["slow_host_to_device", "drill"]


def test_a_metric_that_could_not_be_read() -> None:
    (finding,) = diagnosed(*GOOD, make_result("node-4", temperature_c=None))
    assert (finding.category, finding.measured) == ("metric_missing", "no temperature_c")


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
def test_a_failed_run_says_its_status_and_the_next_step(status: Status) -> None:
    (finding,) = diagnosed(*GOOD, make_failed("node-4", status=status, message="what happened"))
    assert (finding.category, finding.measured) == (f"run_{status.value}", "1 of 1 runs failed")
    assert "what happened" in finding.summary
    assert finding.resolution


def test_a_missing_node() -> None:
    (finding,) = diagnosed(*GOOD, expected=("node-9",))
    assert (finding.category, finding.subject) == ("node_missing", "node-9")


def test_too_few_nodes_and_too_much_noise_are_told_apart() -> None:
    assert {f.category for f in diagnosed(*GOOD[:2])} == {"too_few_nodes"}
    noisy = [make_cpu_result(f"node-{i}", windows=(30.0, 40.0, 55.0)) for i in (1, 2, 3)]
    found = diagnosed(*noisy)
    assert {f.category for f in found} == {"too_noisy"}
    assert {f.level for f in found} == {Level.WARNING}


def test_a_breach_that_its_re_run_did_not_confirm_is_information() -> None:
    results = [*GOOD, make_result("node-4", 8.0)]
    again = make_result("node-4", 9.5, round=2)
    groups = confirm(judge(results, [], LIMITS), [again], LIMITS)
    (finding,) = diagnose(groups, [*results, again])
    assert (finding.category, finding.level) == ("not_confirmed", Level.INFO)


def test_a_node_whose_program_chose_other_work_is_a_finding() -> None:
    def chose(size: int) -> Chosen:
        return Chosen(micro_batch_size=size, gradient_checkpointing=False, why="fits", means={})

    runs = [make_result(f"node-{i}", micro_batch_size="auto", chosen=chose(4 if i == 4 else 8)) for i in (1, 2, 3, 4)]
    (finding,) = strays(runs)

    assert diagnosed(*runs) == ()
    assert (finding.category, finding.subject, finding.level) == ("chose_other_work", "node-4", Level.WARNING)
    assert finding.measured == "micro-batch 4, checkpointing off"
    assert finding.expected == "micro-batch 8, checkpointing off, as on most nodes"
    assert strays(GOOD) == ()


def test_strategies_on_one_node_are_not_a_finding_each() -> None:
    one = [make_result(), make_result(strategy="ddp", gpus_per_node=2), make_result(strategy="fsdp", gpus_per_node=2)]

    assert diagnosed(*one) == ()
    assert [finding.category for finding in diagnosed(one[0])] == ["too_few_nodes"]

"""A node that computes something else than its peers: seen in its first loss, its parameters or its means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bench_image.contract.parse import parse_result
from bench_image.contract.result import Phase, RunError, RunResult, Status
from bench_image.contract.result_sections import ParameterCount, Performance
from committed import committed
from tests.builders import make_failed, make_result
from tests.kube.after_fault import HEALTHY, SICK, after_night, is_green, night_with, whole_results
from trainbench.core.grouping import grouped
from trainbench.core.verdicts import Level, Why
from trainbench.judging.same_work import (
    FIRST_LOSS_PCT,
    MEAN_LOSS_PCT,
    fail_unequal_work,
    unequal_work_findings,
)

PUBLISHED = [text.encode() for text in committed("*/result.json").values()]


def with_loss(node: str, loss: float | None, round_: int = 1, **fields: Any) -> RunResult:
    return with_losses(make_result(node, round=round_, **fields), first_loss=loss)


def with_losses(result: RunResult, **losses: float | None) -> RunResult:
    return result.model_copy(update={"performance": result.performance.model_copy(update=losses)})


def fleet(*losses: float | None) -> list[RunResult]:
    return [with_loss(f"node-{number}", loss) for number, loss in enumerate(losses, start=1)]


def failed(results: tuple[RunResult, ...]) -> list[str]:
    return [f"{run.spec.identity.node}: {run.error.message}" for run in results if run.error]


def test_a_node_with_another_first_loss_computes_something_else_and_keeps_its_figures() -> None:
    """[J9]: mean loss 99 against 10.2 at the same seed was within the limits. Checking twice is checking once."""
    once = fail_unequal_work(fleet(10.2, 10.2, 99.0, 10.2001))
    bad = once[2]

    assert failed(once) == ["node-3: node-3 computes something else: first loss 99, its peers 10.2 at the same seed"]
    assert fail_unequal_work(once) == once

    assert (bad.status, bad.error and bad.error.kind) == (Status.ERROR, "computes_something_else")
    assert bad.performance.samples_per_second == 9.5
    assert parse_result(bad.model_dump_json()) == bad


def test_a_night_with_a_node_that_computes_something_else_is_red_for_it() -> None:
    whole = whole_results()[SICK]
    other = whole.performance.model_copy(update={"first_loss": 99.0})
    night = night_with(whole.model_copy(update={"performance": other}).model_dump_json(), "success")

    assert {node.node: node.why for node in night.nodes} == dict.fromkeys(HEALTHY, Why.WELL) | {SICK: Why.OTHER_NUMBERS}
    after_night("other-loss", planned=[*HEALTHY, SICK], campaign=night, is_green=is_green(night))


@pytest.mark.parametrize(
    ("loss", "is_odd"), [(10.2, False), (10.21, False), (10.2103, True), (10.19, False), (10.1897, True)]
)
def test_a_first_loss_may_lie_a_tenth_of_a_percent_off(loss: float, is_odd: bool) -> None:
    """0.1 % of 10.2 is 0.0102."""
    assert bool(failed(fail_unequal_work(fleet(10.2, 10.2, 10.2, loss)))) == is_odd


@pytest.mark.parametrize(
    ("mean", "steps", "is_odd"),
    [
        (99.0, 60, True),
        (0.0, 60, True),
        (9.04, 60, False),  # 0.5 % of 9 is 0.045
        (9.05, 60, True),
        (8.95, 60, True),
        (9.54, 45, False),  # 15 of 60 steps are lacking: a quarter of the fall from 10 to 8 more
        (9.55, 45, True),
        (8.46, 80, False),  # as many more steps, and the mean is lower
        (8.45, 80, True),
        (99.0, 1, True),
    ],
)
def test_a_mean_loss_may_lie_half_a_percent_off_and_what_fewer_steps_explain(
    mean: float, steps: int, is_odd: bool
) -> None:
    """A night's windows end by time, so a slow node does fewer steps and its mean is higher: it is slow, no more."""
    usual = {"first_loss": 10.0, "last_loss": 8.0, "mean_loss": 9.0, "measured_steps": 60}
    other = usual | {"mean_loss": mean, "measured_steps": steps}
    results = [with_losses(make_result(f"node-{n}"), **(other if n == 2 else usual)) for n in (1, 2, 3)]
    messages = failed(fail_unequal_work(results))

    expected = [f"node-2: node-2 computes something else: mean loss {mean:.5g}, its peers 9 at the same seed"]
    assert messages == (expected if is_odd else [])


def test_fewer_steps_excuse_nothing_where_it_is_not_known_how_far_the_losses_fall() -> None:
    """As in the row above of 9.54 over 45 of 60 steps, but without a last loss."""
    usual = {"first_loss": 10.0, "last_loss": None, "mean_loss": 9.0, "measured_steps": 60}
    fewer = usual | {"mean_loss": 9.2, "measured_steps": 45}
    results = [with_losses(make_result(f"node-{n}"), **(fewer if n == 2 else usual)) for n in (1, 2, 3)]
    assert len(failed(fail_unequal_work(results))) == 1


def test_where_no_majority_has_one_mean_loss_all_are_named_with_theirs() -> None:
    results = [with_losses(make_result(f"node-{n}"), mean_loss=mean) for n, mean in ((1, 9.0), (2, 0.0))]
    (finding,) = unequal_work_findings(results)

    assert finding.measured == "node-1: mean loss 9 and node-2: mean loss 0"
    assert "mean losses within 0.5 %" in finding.expected


def test_losses_near_zero_are_compared_by_their_difference() -> None:
    """0.001 and 0.005 are 400 % apart, and nothing."""
    assert failed(fail_unequal_work(fleet(0.001, 0.001, 0.005))) == []


def test_one_odd_run_of_three_rounds_is_named_alone() -> None:
    """Numbers that are wrong now and then are wrong."""
    results = [with_loss(f"node-{n}", 99.0 if (n, r) == (2, 3) else 10.2, r) for r in (1, 2, 3) for n in (1, 2, 3)]
    bad = [run.spec for run in fail_unequal_work(results) if run.status is not Status.OK]

    assert [(spec.identity.node, spec.identity.round) for spec in bad] == [("node-2", 3)]


def test_seven_thousand_parameters_are_not_seven_billion() -> None:
    results = fleet(10.2, 10.2, 10.2)
    results[1] = results[1].model_copy(update={"parameters": ParameterCount(total=7_000, trainable=70)})
    (message,) = failed(fail_unequal_work(results))

    assert message.endswith(
        "7,000 parameters, 70 of them trained, its peers 7,261,655,040 parameters, 13,631,488 of them trained"
    )


def test_a_rerun_is_compared_with_the_runs_before_it() -> None:
    again = [with_loss("node-3", 99.0, 2)]

    assert failed(fail_unequal_work(again)) == []
    assert len(failed(fail_unequal_work(again, beside=fleet(10.2, 10.2, 10.2)))) == 1


@pytest.mark.parametrize("losses", [(10.2, 99.0), (10.2, 10.2, 99.0, 99.0), (1.0, 5.0, 9.0)])
def test_where_no_majority_agrees_nobody_fails_and_all_are_named(losses: tuple[float, ...]) -> None:
    results = fleet(*losses)
    (finding,) = unequal_work_findings(results)

    assert failed(fail_unequal_work(results)) == []
    assert (finding.level, finding.category) == (Level.ERROR, "computes_something_else")
    assert finding.nodes == tuple(f"node-{n}" for n in range(1, len(losses) + 1))
    assert finding.measured.startswith(f"node-1: first loss {losses[0]:.4g}")


@pytest.mark.parametrize("losses", [(), (10.2,), (None, None, None), (10.2, None, 10.2, 10.2), (10.2, 10.2)])
def test_what_is_equal_or_not_known_is_no_finding(losses: tuple[float | None, ...]) -> None:
    results = [*fleet(*losses), make_failed("node-9")]

    assert list(fail_unequal_work(results)) == results
    assert unequal_work_findings(results) == ()


def test_other_work_other_gpus_and_other_choices_are_not_compared() -> None:
    results = [
        *fleet(10.2, 10.2),
        with_loss("node-3", 99.0, seq_length=1024),
        with_loss("node-4", 99.0, gpu_name="NVIDIA A10"),
    ]

    assert failed(fail_unequal_work(results)) == []
    assert unequal_work_findings(results) == ()


def test_a_drill_computes_what_its_peers_do() -> None:
    results = [*fleet(10.2, 10.2), with_loss("node-3", 10.2, drill={"slowdown_pct": 20})]

    assert failed(fail_unequal_work(results)) == []


def test_of_independent_gpus_only_the_odd_one_fails() -> None:
    """GPU 1 of node-2; its neighbour has measured well."""
    results = [independent(f"node-{n}", (10.2, 99.0 if n == 2 else 10.2)) for n in (1, 2)]
    bad = fail_unequal_work(results)[1]

    assert failed((bad,)) == [
        "node-2: GPU 1 of node-2 computes something else: first loss 99, its peers 10.2 at the same seed"
    ]
    assert bad.error is not None
    assert bad.error.rank == 1
    assert [rank.status for rank in bad.ranks] == [Status.OK, Status.ERROR]
    uuids = [rank.gpu_uuid for rank in results[1].ranks][::-1]
    ranks = tuple(
        rank.model_copy(update={"gpu_uuid": uuid}) for rank, uuid in zip(results[1].ranks, uuids, strict=True)
    )
    (message,) = failed(fail_unequal_work([results[0], results[1].model_copy(update={"ranks": ranks})]))
    assert message.startswith("node-2: GPU 0 of node-2"), "the GPU that the rank names"


def test_beside_a_gpu_that_failed_the_others_are_compared_all_the_same() -> None:
    """GPU 0 of node-3 ran out of memory, GPU 1 computes something else: the run says both."""
    results = [independent(f"node-{n}", (10.2, 99.0 if n == 3 else 10.2)) for n in (1, 2, 3)]
    error = RunError(kind="OutOfMemoryError", message="GPU 0: out of memory", phase=Phase.WARMUP, rank=0)
    ranks = (results[2].ranks[0].model_copy(update={"status": Status.OOM}), results[2].ranks[1])
    results[2] = results[2].model_copy(update={"status": Status.OOM, "error": error, "ranks": ranks})
    once = fail_unequal_work(results)

    assert [rank.status for rank in once[2].ranks] == [Status.OOM, Status.ERROR]
    assert failed(once[2:])[0].startswith(
        "node-3: GPU 0: out of memory; GPU 1 of node-3 computes something else: first"
    )
    assert fail_unequal_work(once) == once


def independent(node: str, losses: tuple[float, ...]) -> RunResult:
    result = make_result(node, strategy="independent", gpus_per_node=len(losses))
    ranks = tuple(
        rank.model_copy(
            update={"performance": result.performance.model_copy(update={"first_loss": loss}), "rank": number}
        )
        for number, (rank, loss) in enumerate(zip(result.ranks, losses, strict=True))
    )
    return result.model_copy(update={"ranks": ranks})


def test_the_published_results_of_equal_work_lie_far_within_the_limits() -> None:
    """The limits are stated against these. Equal steps of warm-up belong to it: the first loss is that of the first
    measured step. Runs that tried what fits are among them: their trials leave no trace.
    """
    of_work: dict[str, list[Performance]] = {}
    for text in PUBLISHED:
        result = parse_result(text)
        parts = [rank.performance for rank in result.ranks if rank.performance] or [result.performance]
        of_work.setdefault(result.effective_spec.fingerprint, []).extend(part for part in parts if part.first_loss)
    repeated = {work: parts for work, parts in of_work.items() if len(parts) > 1}
    of_length = grouped(
        ((work, p.measured_steps), p.mean_loss or 0.0) for work, parts in repeated.items() for p in parts
    )

    assert (sum(map(len, repeated.values())), len(repeated)) == (211, 67)
    assert max(apart_pct([p.first_loss or 0.0 for p in parts]) for parts in repeated.values()) == about(0.0311)
    assert max(map(apart_pct, of_length.values())) == about(0.0590)
    assert (about(3.21 * 0.0311), about(8.47 * 0.0590)) == (FIRST_LOSS_PCT, MEAN_LOSS_PCT)


def apart_pct(losses: Sequence[float]) -> float:
    return 100 * (max(losses) - min(losses)) / min(losses)


def about(value: float) -> Any:
    return pytest.approx(value, rel=0.005)


def test_no_published_run_computes_something_else_than_its_equals() -> None:
    """Nor those of the nights, whose windows had 19 to 25 steps."""
    results = [parse_result(text) for text in PUBLISHED]
    alone = [
        result.spec.changed(identity={"campaign_id": "one", "group_id": result.spec.fingerprint}) for result in results
    ]
    together = [result.model_copy(update={"spec": spec}) for result, spec in zip(results, alone, strict=True)]

    assert [run.error for run in fail_unequal_work(together)] == [run.error for run in results]


def test_where_no_majority_has_the_same_parameters_all_are_named_with_theirs() -> None:
    """Two of four have 10 parameters and two have 12: nobody fails. Equal ones, or one that is not known, are none."""

    def with_parameters(*totals: int | None) -> list[RunResult]:
        return [
            make_result(f"node-{i}").model_copy(
                update={"parameters": ParameterCount(total=total, trainable=total and 1)}
            )
            for i, total in enumerate(totals, start=1)
        ]

    split = with_parameters(10, 10, 12, 12)
    assert failed(fail_unequal_work(split)) == []
    (finding,) = unequal_work_findings(split)
    assert finding.nodes == ("node-1", "node-2", "node-3", "node-4")
    assert finding.measured.startswith("node-1: 10 parameters, 1 of them trained, node-2: 10 parameters")
    assert (
        unequal_work_findings(with_parameters(10, 10, 10, 10)) == unequal_work_findings(with_parameters(10, None)) == ()
    )
    assert unequal_work_findings(fail_unequal_work(with_parameters(10, 10, 10, 12))) == ()

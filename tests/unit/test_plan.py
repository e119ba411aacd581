"""Plan: which runs, in which order, under which readable ids, and what is skipped and why."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bench_control.params import parse_params
from bench_control.plan import Plan, PlanError, campaign_id, confirm_specs, identifier, make_plan
from bench_image.contract import IDENTIFIER, fingerprint

NODES = ("node-1", "node-2", "node-3")


def plan(**params: Any) -> Plan:
    return make_plan(parse_params(params), NODES, "campaign-1")


def test_one_run_per_round_node_and_strategy_round_by_round() -> None:
    specs = plan(rounds=2, strategies=["single", "ddp"], gpus_per_node=4).specs

    assert len(specs) == 2 * 3 * 2
    assert [spec.round for spec in specs] == [1] * 6 + [2] * 6
    assert [spec.node for spec in specs[:3]] == list(NODES)
    assert {spec.strategy.value: spec.world_size for spec in specs} == {"single": 1, "ddp": 4}


def test_ids_are_readable_unique_and_end_in_the_fingerprint() -> None:
    specs = plan(rounds=2).specs

    assert specs[0].run_id == f"mistral-7b-qlora-single-1x1-b8-s512-{fingerprint(specs[0])}-node-1-r1"
    assert len({spec.run_id for spec in specs}) == len(specs)
    assert len({spec.group_id for spec in specs}) == 1
    assert all(re.match(IDENTIFIER, spec.run_id) for spec in specs)


def test_a_drill_slows_one_node_and_changes_neither_group_nor_fingerprint() -> None:
    drilled, plain = plan(drill_node="node-2", drill_slowdown_pct=20), plan()

    assert [spec.node for spec in drilled.specs if spec.drill] == ["node-2"]
    assert drilled.specs[1].group_id == plain.specs[1].group_id


def test_the_confirm_run_is_the_round_after_the_last_with_the_same_work_and_fault() -> None:
    drilled = plan(rounds=2, drill_node="node-2")
    (again,) = confirm_specs(drilled, ["node-2"])

    assert (again.round, again.node) == (3, "node-2")
    assert again.drill is not None
    assert again.run_id.endswith("-node-2-r3")
    assert fingerprint(again) == fingerprint(drilled.specs[1])


def test_impossible_strategies_are_skipped_with_the_reason() -> None:
    (skipped,) = plan(strategies=["single", "ddp"]).skipped

    assert skipped.what == "strategy ddp"
    assert "at least 2 GPUs" in skipped.reason


def test_nothing_to_run_is_an_error_that_says_why() -> None:
    with pytest.raises(PlanError, match="ddp: needs at least 2 GPUs"):
        plan(strategies=["ddp"])
    with pytest.raises(PlanError, match="no nodes"):
        make_plan(parse_params({}), (), "campaign-1")
    with pytest.raises(PlanError, match="drill_node 'node-9' is not among the nodes"):
        plan(drill_node="node-9")


def test_quick_overrides_the_steps() -> None:
    spec = plan(quick=True).specs[0]

    assert (spec.warmup_steps, spec.measured_steps, spec.repeats) == (3, 5, 1)


def test_a_thousand_nodes() -> None:
    nodes = [f"gpu-{i:04}.cluster.example" for i in range(1000)]
    specs = make_plan(parse_params({"rounds": 2}), nodes, "campaign-1").specs

    assert len({spec.run_id for spec in specs}) == 2000


@pytest.mark.parametrize("text", ["manual__2026-11-21T07:00:00+00:00", "Ü/../x", "a" * 500, "???", ""])
def test_identifiers_hold_nothing_that_a_path_could_misread(text: str) -> None:
    assert re.match(IDENTIFIER, identifier(f"dag-{text}", 60))
    assert len(identifier(text, 60)) <= 60


def test_long_names_stay_different() -> None:
    assert identifier("x" * 99 + "a", 60) != identifier("x" * 99 + "b", 60)
    assert campaign_id("node_consistency", "manual__1") == "node_consistency-manual__1"

"""A mark as the API's JSON: what is read from a node, what a patch says, and which node a name means."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from bench_image.contract.spec import Drill
from tests.builders import make_result
from tests.builders.fake_cluster import FakeCluster
from tests.builders.nights import ENDED_AT, night
from tests.unit.cli.test_cli_nodes import KEY, MARK, OTHER, TAINT, node
from trainbench import pipeline
from trainbench.alerting.run_summary import alerts, note
from trainbench.cluster import node_marks
from trainbench.cluster.kubernetes_api import Refused
from trainbench.cluster.node_marks import (
    MAX_TRIES,
    MarkRefusal,
    Replaced,
    gpu_nodes,
    is_due,
    listed_node,
    patch,
    write_mark,
)
from trainbench.core.verdicts import PART_FAILED, Level, Why
from trainbench.params.campaign_kind import CampaignKind
from trainbench.results.campaign import Campaign
from trainbench.settings.environment import Settings, read_settings


def settings(**environ: str) -> Settings:
    return read_settings({"TRAINBENCH_KEEP_AWAY": "taint"} | {f"TRAINBENCH_{n}": v for n, v in environ.items()})


def labelled(value: dict[str, Any], **labels: str) -> dict[str, Any]:
    metadata = value["metadata"]
    return value | {"metadata": metadata | {"labels": metadata["labels"] | labels}}


@pytest.mark.parametrize(
    ("environ", "label", "taints"),
    [
        ({}, None, [OTHER, {"key": KEY, "value": "night-1", "effect": "NoSchedule"}]),
        ({"KEEP_AWAY": "label"}, "night-1", [OTHER]),
    ],
)
def test_a_patch_replaces_what_stands_under_our_key_and_repeats_the_taints_of_others(
    environ: dict[str, str], label: str | None, taints: list[dict[str, str]]
) -> None:
    body = patch(node("gpu-0", TAINT | {"effect": "NoExecute"}, OTHER), MARK, settings(**environ))

    assert body["metadata"]["labels"] == {KEY: label}
    assert body["metadata"]["annotations"] == {KEY: MARK.model_dump_json()}
    assert body["metadata"]["resourceVersion"] == "7"
    assert body["spec"]["taints"] == taints


@pytest.mark.parametrize(
    ("value", "shape", "is_as_set", "is_ours"),
    [
        (node("gpu-0"), None, False, False),
        (node("gpu-0", OTHER), None, False, False),
        (node("gpu-0", TAINT, mark=MARK), f"the taint {KEY}:NoSchedule", True, True),
        (node("gpu-0", TAINT | {"effect": "NoExecute"}, mark=MARK), f"the taint {KEY}:NoExecute", False, True),
        (node("gpu-0", TAINT), f"the taint {KEY}:NoSchedule", True, False),
        (
            node("gpu-0", TAINT, mark=MARK.model_copy(update={"instance": "other"})),
            f"the taint {KEY}:NoSchedule",
            True,
            False,
        ),
        (labelled(node("gpu-0", mark=MARK), **{KEY: "night-1"}), f"the label {KEY}", False, True),
        (node("gpu-0", mark=MARK), None, False, False),
    ],
)
def test_what_a_node_says_of_its_mark(value: Any, shape: str | None, is_as_set: bool, is_ours: bool) -> None:
    listed = listed_node(value, settings())

    assert (listed.shape, listed.is_as_set, listed.is_ours) == (shape, is_as_set, is_ours)


def test_a_freed_node_carries_no_mark_and_says_who_freed_it() -> None:
    """Also where somebody else taints it since."""
    freed = MARK.model_copy(update={"freed_by": "night-2"})
    body = patch(node("gpu-0", TAINT, mark=MARK), freed, settings())
    later = listed_node(node("gpu-0", TAINT, mark=freed), settings())

    assert (body["spec"], body["metadata"]["annotations"]) == ({"taints": None}, {KEY: freed.model_dump_json()})
    assert (later.is_ours, later.mark, later.freed) == (False, None, freed)


def test_another_program_s_annotation_under_our_key_is_no_mark() -> None:
    odd = node("gpu-0", TAINT)
    odd["metadata"]["annotations"] = {KEY: "[not ours"}

    assert listed_node(odd, settings()).mark is None


def test_nodes_go_by_the_name_in_verdicts_and_a_name_that_two_bear_is_left_out() -> None:
    renamed = node("ip-10-0-0-7")
    renamed["metadata"]["labels"] = renamed["metadata"]["labels"] | {"kubernetes.io/hostname": "gpu-7"}
    twin = node("gpu-1") | {"metadata": node("gpu-1")["metadata"] | {"name": "gpu-1-again"}}
    no_gpu = node("cpu-0") | {"status": {}}
    no_gpu["metadata"]["labels"] = {}

    known = gpu_nodes([renamed, node("gpu-1"), twin, no_gpu], settings())
    assert {name: each["metadata"]["name"] for name, each in known.items()} == {"gpu-7": "ip-10-0-0-7"}


class Contended(FakeCluster):
    """Refuses each patch with a conflict; the node has this UID when it is read again."""

    uid = "uid-gpu-0"

    def node(self, name: str) -> dict[str, Any]:
        known = node(name)
        return known | {"metadata": known["metadata"] | {"uid": self.uid}}

    def patch_node(self, name: str, patch: Mapping[str, Any]) -> dict[str, Any]:
        self.sent.append(patch)
        raise Refused("patch node", 409, "Conflict", "the object has been modified")


def test_conflicts_end_after_some_tries_and_another_machine_at_once() -> None:
    cluster = Contended()
    with pytest.raises(Refused, match="the object has been modified"):
        write_mark(cluster, node("gpu-0"), MARK, settings())
    assert len(cluster.sent) == MAX_TRIES

    replaced = type("ReplacedNode", (Contended,), {"uid": "another"})()
    with pytest.raises(Replaced, match="another machine is called gpu-0 now"):
        write_mark(replaced, node("gpu-0"), MARK, settings())
    assert len(replaced.sent) == 1


SHAPE = "the taint trainbench.io/breach:NoSchedule"


def test_a_mark_says_since_when_why_and_how_it_is_undone() -> None:
    new = node_marks.marked("node-3", SHAPE, MARK, None)
    old = node_marks.marked("node-3", SHAPE, MARK, "it was not measured")

    assert new.headline == (
        f"node-3 is marked with {SHAPE} since 2026-11-12 02:10:00 UTC, so that other work keeps away: samples/s −10.0 %"
    )
    assert old.headline == f"{new.headline}; it stays so, because it was not measured"
    assert new.resolution == (
        "repair it: a run that finds it well frees it; `trainbench nodes free node-3` undoes the mark at once"
    )


def test_nodes_that_are_not_marked_for_one_reason_are_one_finding() -> None:
    refusals = [
        MarkRefusal("node-1", "no room", "look"),
        MarkRefusal("node-2", "gone", "look"),
        MarkRefusal("node-9", "no room", "look"),
    ]
    first, second = node_marks.not_marked(refusals)

    assert first.headline == "node-1 and node-9 are red and not marked: no room"
    assert second.headline == "node-2 is red and not marked: gone"


def test_alert_and_note_of_a_red_node_name_the_mark_and_its_undoing_first() -> None:
    """Not those of another node, and not a warning about several."""
    campaign = night(1, {"node-1": 10.0, "node-3": 9.0, "node-4": 9.0}, {"node-3": Why.SLOW, "node-4": Why.SLOW})
    shapes = {"node-3": SHAPE}
    findings = (*node_marks.with_marks(campaign.findings, shapes), node_marks.marked("node-3", SHAPE, MARK, None))
    raised = alerts(campaign.model_copy(update={"findings": findings}))
    undo = f"it is marked with {SHAPE} (undo: `trainbench nodes free node-3`); look at the fans of node-3"

    assert [(alert.nodes, alert.level, alert.resolution) for alert in raised[:2]] == [
        (("node-3",), Level.ERROR, undo), (("node-4",), Level.ERROR, "look at the fans of node-4"),
    ]  # fmt: skip
    assert raised[2].category == node_marks.MARKED
    assert "nodes free node-3" in note(campaign, raised, "node_consistency", "r", None)


ON = {"TRAINBENCH_KEEP_AWAY": "taint"}
WELL = {"node-1": 10.0}


@pytest.mark.parametrize(
    ("environ", "campaign", "hours_later", "has_later", "expected"),
    [
        (ON, {}, 36, False, True),
        ({"TRAINBENCH_KEEP_AWAY": "label"}, {}, 1, False, True),
        ({}, {}, 1, False, False),
        (ON | {"TRAINBENCH_LAUNCHER": "local"}, {}, 1, False, False),
        (ON, {"campaign_kind": CampaignKind.STRATEGIES}, 1, False, False),
        (ON, {}, 37, False, False),
        (ON | {"TRAINBENCH_FRESH_H": "48"}, {}, 37, False, True),
        (ON, {}, 1, True, False),
    ],
)
def test_only_the_latest_fresh_night_of_the_cluster_acts_and_only_if_enabled(
    environ: dict[str, str], campaign: dict[str, Any], hours_later: int, has_later: bool, expected: bool
) -> None:
    now = ENDED_AT + timedelta(hours=hours_later)

    assert is_due(night(1, WELL, **campaign), read_settings(environ), now, has_later) is expected


def test_a_night_with_a_drill_neither_marks_nor_frees() -> None:
    slowed = night(1, [make_result("node-1"), make_result("node-2", drill=Drill(slowdown_pct=20))])

    assert slowed.is_drill
    assert not is_due(slowed, read_settings(ON), ENDED_AT, has_later=False)


def test_a_defect_in_it_is_one_red_finding_and_the_campaign_stays_as_it_was_judged() -> None:
    def broken(campaign: Campaign) -> Campaign:
        raise KeyError("taints")

    campaign = night(1, WELL)
    kept = pipeline.keep_away(campaign, broken)
    (finding,) = kept.findings

    assert kept.model_copy(update={"findings": ()}) == campaign
    assert (finding.level, finding.category) == (Level.ERROR, PART_FAILED)

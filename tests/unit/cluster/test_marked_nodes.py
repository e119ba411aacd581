"""A mark as the API's JSON: what is read from a node, what a patch says, and which node a name means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.builders.fake_cluster import FakeCluster
from tests.unit.cli.test_cli_nodes import KEY, MARK, OTHER, TAINT, node
from trainbench.cluster.kubernetes_api import Refused
from trainbench.cluster.node_marks import MAX_TRIES, Replaced, gpu_nodes, listed_node, patch, write_mark
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
        (
            {"KEEP_AWAY_EFFECT": "PreferNoSchedule"},
            None,
            [OTHER, {"key": KEY, "value": "night-1", "effect": "PreferNoSchedule"}],
        ),
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


def test_the_last_taint_goes_with_the_list() -> None:
    assert patch(node("gpu-0", TAINT), None, settings())["spec"] == {"taints": None}


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

"""`trainbench nodes list` and `nodes free` as people see them; tests/kube/test_mark_nodes.py has real patches."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from tests.builders.commands import document, trainbench
from tests.builders.fake_cluster import NODE, FakeCluster
from tests.builders.nights import night
from trainbench.cluster import kubernetes_api, node_marks
from trainbench.cluster.kubernetes_api import Refused
from trainbench.cluster.node_marks import Mark
from trainbench.history.history import open_history
from trainbench.history.tables import marks
from trainbench.results.artefacts import open_store

KEY = "trainbench.io/breach"
TAINT = {"key": KEY, "value": "night-1", "effect": "NoSchedule"}
OTHER = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}
MARK = Mark(
    instance="trainbench",
    campaign_id="night-1",
    at=datetime(2026, 11, 12, 2, 10, tzinfo=UTC),
    groups=("work-1",),
    reason="samples/s −10.0 %",
)


def node(name: str, *taints: Mapping[str, str], mark: Mark | None = None) -> dict[str, Any]:
    labels = {**NODE["metadata"]["labels"], "kubernetes.io/hostname": name}
    annotations = {KEY: mark.model_dump_json()} if mark else {}
    own = {"name": name, "uid": f"uid-{name}", "resourceVersion": "7", "labels": labels, "annotations": annotations}
    return NODE | {"metadata": NODE["metadata"] | own, "spec": {"taints": list(taints)}}


@dataclass(frozen=True)
class Marked(FakeCluster):
    """gpu-0 is marked by us, gpu-1 by hand, gpu-2 not at all. `patches`: what was sent, by node."""

    patches: dict[str, Any] = field(default_factory=dict)

    def nodes(self) -> tuple[dict[str, Any], ...]:
        return node("gpu-0", OTHER, TAINT, mark=MARK), node("gpu-1", TAINT), node("gpu-2")

    def patch_node(self, name: str, patch: Mapping[str, Any]) -> dict[str, Any]:
        self._may("patch_node")
        self.patches[name] = patch
        return {}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Marked:
    for name in [name for name in os.environ if name.startswith("TRAINBENCH_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TRAINBENCH_STORE", str(tmp_path / "store"))
    made = Marked()
    monkeypatch.setattr(kubernetes_api, "open_cluster", lambda *_: made)
    return made


def test_the_list_says_since_when_why_and_what_was_not_set_here(cluster: Marked) -> None:
    done = trainbench("nodes", "list")

    assert done.exit_code == 0
    first, second = (" ".join(line.split()) for line in done.stdout.splitlines() if "gpu-" in line)
    assert first == f"gpu-0 the taint {KEY}:NoSchedule 2026-11-12 02:10 UTC samples/s −10.0 % marked"
    assert "not by this installation" in second
    (ours, _) = document(trainbench("nodes", "list", "--json"))["nodes"]
    assert ours == {
        "node": "gpu-0", "shape": f"the taint {KEY}:NoSchedule", "mark": MARK.model_dump(mode="json"),
        "outcome": "marked", "fault": None,
    }  # fmt: skip


def test_a_freed_node_keeps_the_taints_of_others_and_its_warning_ends_with_a_name(cluster: Marked) -> None:
    history = open_history(store=open_store())
    finding = node_marks.marked("gpu-0", "the taint", MARK, None)
    history.record(night(1, {"gpu-0": 9.0}, findings=[finding], marks_are_known=True))
    done = trainbench("nodes", "free", "--all", "--who", "ada")

    assert done.exit_code == 0
    freed = MARK.model_copy(update={"freed_by": "hand"}).model_dump_json()  # no later try of its night marks it again
    assert cluster.patches == {
        "gpu-0": {
            "metadata": {"resourceVersion": "7", "labels": {KEY: None}, "annotations": {KEY: freed}},
            "spec": {"taints": [OTHER]},
        }
    }
    with history.engine.connect() as connection:
        assert list(connection.execute(select(marks.c.ended)).scalars()) == ["freed by ada"]


def test_a_node_that_could_not_be_freed_is_named_and_the_exit_code_says_so(
    cluster: Marked, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Marked(refusals={"patch_node": Refused("patch node", 403, "Forbidden", "you may not")})
    monkeypatch.setattr(kubernetes_api, "open_cluster", lambda *_: refused)
    done = trainbench("nodes", "free", "gpu-0", "--json")

    assert done.exit_code == 2
    (only,) = document(done)["nodes"]
    assert (only["outcome"], only["fault"]) == ("failed", "patch node: you may not (403 Forbidden)")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "which nodes are to be freed? Name them, or give --all"),
        (("gpu-0", "--all"), "which nodes are to be freed? Name them, or give --all"),
        (("gpu-9",), "the cluster has no node 'gpu-9'"),
    ],
)
def test_a_wrong_call_frees_nothing(cluster: Marked, arguments: tuple[str, ...], message: str) -> None:
    done = trainbench("nodes", "free", *arguments)

    assert done.exit_code == 2
    assert message in done.stderr
    assert cluster.patches == {}


def test_without_marks_one_line_says_so(cluster: Marked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_api, "open_cluster", lambda *_: FakeCluster())

    assert trainbench("nodes", "list").stdout == "no node is marked\n"

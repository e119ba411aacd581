"""Red nodes, marked and freed through the official client; the stand-in's PATCH refuses what a real one does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config  # type: ignore[import-untyped]
from typer.testing import CliRunner

from tests.builders.commands import whole_document
from tests.kube.after_fault import after_fault, is_green
from tests.kube.clusters import MARKER_ROLES, airflows_kubeconfig, shipped_roles
from tests.kube.e2e import NAMESPACE
from tests.unit.cluster.test_node_marks import night, ok, verdict
from trainbench.cli.app import app
from trainbench.cluster import doctor
from trainbench.cluster.doctor import Check, CheckState
from trainbench.cluster.kubernetes_api import open_cluster
from trainbench.cluster.node_marks import mark_nodes
from trainbench.core.verdicts import Finding, Level, NodeVerdict
from trainbench.results.campaign import Campaign
from trainbench.settings.environment import Settings, read_settings

KEY = "trainbench.io/breach"
TAINT = "the taint trainbench.io/breach:NoSchedule"
DEDICATED = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}


class Fleet:
    """The cluster as its owner sees it, and nights that act on it."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.api = client.CoreV1Api(config.new_client_from_config(str(cluster.kubeconfig)))

    def settings(self, **environ: str) -> Settings:
        given = {"NAMESPACE": NAMESPACE, "KEEP_AWAY": "taint", "KEEP_AWAY_MAX_PCT": "50", **environ}
        return read_settings({f"TRAINBENCH_{name}": value for name, value in given.items()})

    def night(self, *verdicts: NodeVerdict, number: int = 1, by: Any = None, **environ: str) -> Campaign:
        return self.act(self.campaign(*verdicts, number=number), by, **environ)

    def campaign(self, *verdicts: NodeVerdict, number: int = 1) -> Campaign:
        now = datetime.now(UTC) + timedelta(seconds=2)  # after the nodes, whose times are whole seconds
        return night(*verdicts, campaign_id=f"night-{number}", started_at=now, finished_at=now)

    def act(self, campaign: Campaign, by: Any = None, **environ: str) -> Campaign:
        settings = self.settings(**environ)
        opened = by or partial(open_cluster, settings, str(self.cluster.kubeconfig))
        return mark_nodes(campaign, settings, opened)

    def taints(self) -> Mapping[str, list[str]]:
        return {
            node.metadata.name: [f"{taint.key}:{taint.effect}" for taint in node.spec.taints or ()]
            for node in self.api.list_node().items
        }


@pytest.fixture
def fleet(cluster: Any) -> Fleet:
    cluster.add_node("gpu-0", gpus=1, taints=[DEDICATED])
    for name in ("gpu-1", "gpu-2", "gpu-3"):
        cluster.add_node(name, gpus=1)
    return Fleet(cluster)


def of(campaign: Campaign, category: str) -> list[Finding]:
    return [finding for finding in campaign.findings if finding.category == category]


def summary(campaign: Campaign, category: str) -> str:
    (finding,) = of(campaign, category)
    return f"{finding.headline}. {finding.resolution}"


def after_marking(row: str, reds: Sequence[str], campaign: Campaign) -> None:
    """The invariants of a night whose verdicts are made up: they stand after the marks as before."""
    red = [node.node for node in campaign.red_nodes]
    after_fault(row, results=(reds, red), green=(is_green(campaign), reds))
    for finding in campaign.findings:
        after_fault(row, cause=finding.text)


def test_a_bad_node_is_tainted_and_its_next_good_night_frees_it(fleet: Fleet) -> None:
    marked = fleet.night(verdict("gpu-0"), ok("gpu-1"))

    assert fleet.taints()["gpu-0"] == ["dedicated:NoSchedule", f"{KEY}:NoSchedule"]
    assert marked.marks_are_known
    marked_summary = summary(marked, "node_marked")
    assert marked_summary.startswith(f"gpu-0 is marked with {TAINT} since ")
    assert "samples/s −10.0 % against the median of 3 peers" in marked_summary
    assert "`trainbench nodes free gpu-0` undoes the mark" in marked_summary

    again = fleet.night(verdict("gpu-0"), number=2)
    assert [f.nodes for f in of(again, "node_marked")] == [("gpu-0",)]
    absent = fleet.night(ok("gpu-1"), number=3)
    assert "it stays so, because it was not measured" in summary(absent, "node_marked")
    assert fleet.taints()["gpu-0"] == ["dedicated:NoSchedule", f"{KEY}:NoSchedule"]

    freed = fleet.night(ok("gpu-0"), number=4)
    assert fleet.taints() == {"gpu-0": ["dedicated:NoSchedule"], "gpu-1": [], "gpu-2": [], "gpu-3": []}
    assert summary(freed, "node_freed").startswith("gpu-0 takes other work again: it is well")
    assert not of(fleet.night(ok("gpu-0"), number=5), "node_freed")
    assert fleet.night(verdict("gpu-0"), number=6).marks_are_known
    assert fleet.taints()["gpu-0"] == ["dedicated:NoSchedule", f"{KEY}:NoSchedule"]


def test_a_label_alone_and_then_a_taint(fleet: Fleet) -> None:
    fleet.night(verdict("gpu-0"), KEEP_AWAY="label")
    assert fleet.api.read_node("gpu-0").metadata.labels[KEY] == "night-1"
    assert fleet.taints()["gpu-0"] == ["dedicated:NoSchedule"]

    fleet.night(verdict("gpu-0"), number=2)
    assert KEY not in fleet.api.read_node("gpu-0").metadata.labels
    assert fleet.taints()["gpu-0"] == ["dedicated:NoSchedule", f"{KEY}:NoSchedule"]


def test_the_same_task_again_changes_nothing_and_reports_the_same(fleet: Fleet) -> None:
    campaign = fleet.campaign(verdict("gpu-0"), ok("gpu-1"))
    first = fleet.act(campaign)
    patches = len(patched(fleet))
    again = fleet.act(campaign)
    assert (again.findings, len(patched(fleet))) == (first.findings, patches)

    fleet.api.patch_node("gpu-0", {"spec": {"taints": [DEDICATED]}})
    by_hand = fleet.act(campaign)
    assert "somebody has removed the mark since" in summary(by_hand, "node_not_marked")
    assert fleet.taints()["gpu-0"] == ["dedicated:NoSchedule"]
    fleet.night(verdict("gpu-0"), number=2)
    assert fleet.taints()["gpu-0"] == ["dedicated:NoSchedule", f"{KEY}:NoSchedule"]

    healed = fleet.campaign(ok("gpu-0"), number=3)
    freed = fleet.act(healed)
    assert [f.nodes for f in of(freed, "node_freed")] == [("gpu-0",)]
    again = fleet.act(healed)  # as where the first try was ended before it had written its report
    assert again.findings == freed.findings
    assert fleet.taints()["gpu-0"] == ["dedicated:NoSchedule"]
    after_marking("ended-after-freeing", (), again)


def patched(fleet: Fleet) -> list[Any]:
    return [entry for entry in fleet.cluster.requests() if entry["verb"] == "patch"]


def test_without_the_right_the_night_stays_judged_and_one_warning_names_it(fleet: Fleet) -> None:
    account = airflows_kubeconfig(fleet.cluster)
    by = partial(open_cluster, fleet.settings(), str(account))
    campaign = fleet.night(verdict("gpu-0"), verdict("gpu-1"), by=by)

    (finding,) = of(campaign, "node_not_marked")
    assert (finding.level, finding.nodes) == (Level.WARNING, ("gpu-0", "gpu-1"))
    assert 'cannot patch resource "nodes"' in finding.summary
    assert "docker/kubernetes/node-marker" in finding.resolution
    assert len(patched(fleet)) == 1
    after_marking("no-right-to-mark", ("gpu-0", "gpu-1"), campaign)


def test_the_shipped_extra_right_is_enough(fleet: Fleet) -> None:
    account = airflows_kubeconfig(fleet.cluster, MARKER_ROLES)
    fleet.night(verdict("gpu-0"), by=partial(open_cluster, fleet.settings(), str(account)))

    assert f"{KEY}:NoSchedule" in fleet.taints()["gpu-0"]


class Busy:
    """A cluster in which somebody else changes each node just before our first patch of it."""

    def __init__(self, fleet: Fleet, change: Any) -> None:
        self.real = open_cluster(fleet.settings(), str(fleet.cluster.kubeconfig))
        self.change = change
        self.changed: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def patch_node(self, name: str, patch: Mapping[str, Any]) -> Any:
        if name not in self.changed:
            self.changed.add(name)
            self.change(name)
        return self.real.patch_node(name, patch)


def test_a_taint_that_somebody_sets_at_the_same_moment_is_kept(fleet: Fleet) -> None:
    other = {"key": "maintenance", "value": "fan", "effect": "NoExecute"}
    busy = Busy(fleet, lambda name: fleet.api.patch_node(name, {"spec": {"taints": [DEDICATED, other]}}))
    fleet.night(verdict("gpu-0"), by=lambda: busy)

    assert fleet.taints()["gpu-0"] == ["dedicated:NoSchedule", "maintenance:NoExecute", f"{KEY}:NoSchedule"]


def test_a_node_that_is_replaced_or_deleted_while_it_is_marked_stays_as_it_is(fleet: Fleet) -> None:
    def replace(name: str) -> None:
        fleet.api.delete_node(name)
        if name == "gpu-0":
            fleet.cluster.add_node(name, gpus=1)

    busy = Busy(fleet, replace)
    campaign = fleet.night(verdict("gpu-0"), verdict("gpu-1"), by=lambda: busy)

    assert fleet.taints() == {"gpu-0": [], "gpu-2": [], "gpu-3": []}
    reasons = [finding.headline for finding in of(campaign, "node_not_marked")]
    after_marking("node-changed-while-marking", ("gpu-0", "gpu-1"), campaign)
    assert ["another machine is called gpu-0 now" in reasons[0], "gone from the cluster" in reasons[1]] == [True, True]


def test_an_api_server_that_fails_in_the_middle_costs_what_was_not_done_and_the_report_says_which(fleet: Fleet) -> None:
    fleet.cluster.fault(method="PATCH", path="/nodes/gpu-1$", drop=True)
    bad = (verdict("gpu-0", 7.0), verdict("gpu-1", 8.0), verdict("gpu-2", 9.0))
    campaign = fleet.night(*bad, KEEP_AWAY_MAX_PCT="100")

    assert [f.nodes for f in of(campaign, "node_marked")] == [("gpu-0",)]
    broken, not_tried = of(campaign, "node_not_marked")
    assert (broken.nodes, not_tried.nodes) == (("gpu-1",), ("gpu-2",))
    assert "it is not known whether the mark was written" in broken.summary
    assert "not tried, the API server gave no answer before" in not_tried.summary
    after_marking("api-gone-while-marking", ("gpu-0", "gpu-1", "gpu-2"), campaign)

    fleet.night(*bad, number=2, KEEP_AWAY_MAX_PCT="100")
    assert sum(f"{KEY}:NoSchedule" in taints for taints in fleet.taints().values()) == 3


def test_a_reply_that_is_lost_after_the_deed_is_seen_by_the_next_night(fleet: Fleet) -> None:
    fleet.cluster.fault(method="PATCH", path="/nodes/gpu-0$", code=503, after=True)
    campaign = fleet.night(verdict("gpu-0"))
    assert "503" in summary(campaign, "node_not_marked")

    freed = fleet.night(ok("gpu-0"), number=2)
    assert of(freed, "node_freed")
    assert fleet.taints()["gpu-0"] == ["dedicated:NoSchedule"]


def test_nodes_that_cannot_be_listed_leave_the_campaign_as_it_was_judged(fleet: Fleet) -> None:
    fleet.cluster.fault(method="GET", path="/api/v1/nodes", code=503, n=0)
    campaign = fleet.night(verdict("gpu-0"))

    assert not campaign.marks_are_known
    assert "no node was marked or freed: the nodes could not be listed" in summary(campaign, "node_not_marked")


def test_two_campaigns_at_once_do_not_mark_more_than_the_share(fleet: Fleet) -> None:
    """Another one marks gpu-3 after ours has listed the nodes: ours takes its own mark back."""
    mark = {"key": KEY, "value": "other", "effect": "NoSchedule"}
    busy = Busy(fleet, lambda _: fleet.api.patch_node("gpu-3", {"spec": {"taints": [mark]}}))
    campaign = fleet.night(verdict("gpu-0"), by=lambda: busy, KEEP_AWAY_MAX_PCT="25")

    assert [name for name, taints in fleet.taints().items() if f"{KEY}:NoSchedule" in taints] == ["gpu-3"]
    assert "another run marked nodes at the same time" in summary(campaign, "node_not_marked")


@pytest.fixture
def trainbench(fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The command line on this cluster, as JSON; (exit code, node -> outcome)."""
    monkeypatch.setenv("TRAINBENCH_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("TRAINBENCH_NAMESPACE", NAMESPACE)

    def run(*arguments: str) -> tuple[int, Any]:
        done = CliRunner().invoke(app, [*arguments, "--json", "--kubeconfig", str(fleet.cluster.kubeconfig)])
        answer = whole_document(done)
        if answer["error"] and not answer["data"]:
            return done.exit_code, answer["error"]["message"]
        return done.exit_code, {each["node"]: each["outcome"] for each in answer["data"]["nodes"]}

    return run


def test_one_command_frees_all_nodes_that_this_installation_marked(fleet: Fleet, trainbench: Any) -> None:
    fleet.night(verdict("gpu-0"), verdict("gpu-1"))
    fleet.night(verdict("gpu-2"), INSTANCE="other", KEEP_AWAY_MAX_PCT="100")
    marked = fleet.taints()

    assert trainbench("nodes", "list") == (0, dict.fromkeys(("gpu-0", "gpu-1", "gpu-2"), "marked"))
    would = {"gpu-0": "would_free", "gpu-1": "would_free", "gpu-2": "left"}
    assert trainbench("nodes", "free", "--all", "--dry-run") == (0, would)
    assert fleet.taints() == marked

    assert trainbench("nodes", "free", "--all") == (0, {"gpu-0": "freed", "gpu-1": "freed", "gpu-2": "left"})
    assert {name: len(taints) for name, taints in fleet.taints().items()} == {
        "gpu-0": 1, "gpu-1": 0, "gpu-2": 1, "gpu-3": 0,
    }  # fmt: skip
    assert trainbench("nodes", "free", "gpu-2", "gpu-3") == (0, {"gpu-2": "freed", "gpu-3": "not_marked"})
    assert trainbench("nodes", "list") == (0, {})


def test_a_node_that_cannot_be_freed_is_reported(fleet: Fleet, trainbench: Any) -> None:
    fleet.night(verdict("gpu-0"))
    fleet.cluster.fault(method="PATCH", path="/nodes/gpu-0$", code=503)

    assert trainbench("nodes", "free", "gpu-0") == (2, {"gpu-0": "failed"})
    assert "the cluster has no node 'gpu-9'" in trainbench("nodes", "free", "gpu-9")[1]
    assert "Name them, or give --all" in trainbench("nodes", "free")[1]


def test_the_doctor_names_the_missing_right_to_mark(fleet: Fleet, tmp_path: Path) -> None:
    def check(roles: Any = None, **environ: str) -> Check:
        settings = fleet.settings(STORE=str(tmp_path / "store"), **environ)
        path = fleet.cluster.kubeconfig_of("ada", roles) if roles else fleet.cluster.kubeconfig
        checks = doctor.examine(settings, opened=partial(open_cluster, settings, str(path)))
        return next(check for check in checks if check.name == "permissions")

    missing = check(shipped_roles())
    assert missing.state is CheckState.WARN
    assert "patch nodes (to mark a red node, and free it)" in missing.summary
    assert "docker/kubernetes/node-marker" in missing.resolution
    assert check().state is check(shipped_roles(), KEEP_AWAY="off").state is CheckState.OK

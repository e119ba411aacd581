"""`trainbench doctor` and `trainbench housekeeping` as a script sees them: output, exit codes, what is deleted."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.builders.commands import document as document_of
from tests.builders.commands import trainbench
from tests.builders.fake_cluster import FakeCluster
from trainbench.cluster import kubernetes_api as cluster_module
from trainbench.pods.manifests import DAG_ID, DAG_RUN_ID, PodSettings, installation_labels
from trainbench.results.artefacts import open_store

OLD = "2026-01-01T00:00:00Z"


def pod(name: str, owned: bool = True, **metadata: Any) -> dict[str, Any]:
    annotations = {DAG_ID: "d", DAG_RUN_ID: "r"} if owned else {}
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "labels": installation_labels(PodSettings()),
            "annotations": annotations,
            "creationTimestamp": OLD,
            **metadata,
        },
        "spec": {},
        "status": {"phase": "Running"},
    }


@pytest.fixture(autouse=True)
def home(own_folder: Path) -> Path:
    return own_folder


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    listed = (pod("owned"), pod("nobodys", owned=False), pod("foreign", labels={"app": "x"}))

    class WithPods(FakeCluster):
        def pods(self, labels: Any) -> Any:
            return listed

    fake = WithPods()
    monkeypatch.setattr(cluster_module, "open_cluster", lambda *_: fake)
    monkeypatch.setenv("TRAINBENCH_LAUNCHER", "kubernetes")
    return fake


def old_campaign(home: Path) -> None:
    open_store(str(home / "store")).write_summary("old", {"metrics.csv": "x" * 1000})
    at = (datetime.now(UTC) - timedelta(days=400)).timestamp()
    os.utime(home / "store" / "campaigns" / "old" / "summary" / "metrics.csv", (at, at))


def test_a_doctor_who_finds_nothing_wrong_leaves_with_0(fake: FakeCluster, home: Path) -> None:
    done = trainbench("doctor", "--kubeconfig", "any", "--json")
    assert done.exit_code == 0
    document = document_of(done)
    assert document["ready"] is True
    assert document["checks"][0] == {
        "name": "cluster",
        "state": "ok",
        "summary": "Kubernetes v1.33.13, namespace trainbench, as ada",
        "resolution": "",
    }


def test_a_cluster_that_is_not_there_is_one_line_and_1(home: Path) -> None:
    done = trainbench("doctor", "--kubeconfig", str(home / "none"))
    assert done.exit_code == 1
    assert "✗   cluster" in done.stdout
    assert "Check --kubeconfig, KUBECONFIG or the Airflow connection, the network" in " ".join(done.stdout.split())
    assert done.stdout.endswith("Not ready: cluster.\n")


def test_without_a_launcher_and_without_a_cluster_it_is_this_machine(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "is_configured", lambda _: False)
    monkeypatch.setattr("tempfile.tempdir", str(home))  # another test's pods may run on this machine
    for command in (("doctor", "--json"), ("housekeeping", "--json"), ("watch", "--json")):
        done = trainbench(*command)
        assert "no cluster is configured: this machine only" in done.stderr, command
        document = document_of(done)
        if command[0] == "doctor":
            assert [check["name"] for check in document["checks"]] == ["interpreter", "GPUs", "store", "history"]
        if command[0] == "watch":
            assert document == {"pods": [], "problem": None}


def test_a_wrong_setting_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINBENCH_LAUNCHER", "nomad")
    assert trainbench("doctor").exit_code == 2
    monkeypatch.setenv("TRAINBENCH_LAUNCHER", "local")
    monkeypatch.setenv("TRAINBENCH_RETENTION_DAYS", "-3")
    done = trainbench("housekeeping")
    assert done.exit_code == 2
    assert "TRAINBENCH_RETENTION_DAYS is '-3': give at least 0" in done.stderr


def test_housekeeping_only_lists(fake: FakeCluster, home: Path) -> None:
    old_campaign(home)
    done = trainbench("housekeeping", "--json")
    assert done.exit_code == 0
    swept = document_of(done)
    assert {pod["name"]: (pod["outcome"], pod["why"]) for pod in swept["pods"]} == {
        "owned": ("to be looked at", "its run r of d is unknown from here"),
        "nobodys": ("to be looked at", "names no DAG run: started by hand? Delete it by hand if nobody needs it"),
    }
    assert [(each["name"], each["what"], each["outcome"]) for each in swept["artefacts"]] == [
        ("campaigns/old", "1 file, 0.0 MB", "to be deleted")
    ]
    assert swept["problems"] == []
    assert fake.deleted == []
    assert (home / "store" / "campaigns" / "old").exists()


def test_delete_alone_deletes_no_pod_whose_run_may_be_on(fake: FakeCluster, home: Path) -> None:
    old_campaign(home)
    done = trainbench("housekeeping", "--delete")
    assert done.exit_code == 0
    assert fake.deleted == []
    assert not (home / "store" / "campaigns" / "old").exists()
    assert "2 pods: 2 to be looked at" in done.stdout
    assert "1 folder: 1 deleted" in done.stdout


def test_force_trusts_the_age_of_ours_only(fake: FakeCluster) -> None:
    done = trainbench("housekeeping", "--delete", "--force")
    assert done.exit_code == 0
    assert fake.deleted == ["uid-owned"]
    assert "foreign" not in done.stdout


def test_without_a_cluster_the_artefacts_are_tidied_all_the_same(home: Path) -> None:
    old_campaign(home)
    done = trainbench("housekeeping", "--delete", "--kubeconfig", str(home / "none"))
    assert done.exit_code == 2
    assert "no Kubernetes cluster is configured" in done.stderr
    assert "1 folder: 1 deleted" in done.stdout
    assert "pods" not in done.stdout


def test_retention_0_keeps_for_ever(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINBENCH_LAUNCHER", "local")
    old_campaign(home)
    done = trainbench("housekeeping", "--delete", "--retention-days", "0")
    assert done.exit_code == 0
    assert "1 folder: nothing to do" in done.stdout
    assert "the local launcher leaves no pods" in done.stderr

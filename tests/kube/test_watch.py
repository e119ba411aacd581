"""`trainbench watch` against an API server: real pods, their logs by the real client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.builders.commands import document
from tests.kube.clusters import airflows_kubeconfig
from tests.kube.e2e import INSTANCE
from tests.kube.shell_pods import pod
from trainbench.cli.app import app
from trainbench.cluster.kubernetes_api import open_cluster
from trainbench.pods.manifests import PodSettings, installation_labels
from trainbench.settings.environment import read_settings

PROGRESS = "echo phase=measure window=1/3 steps=50 samples_per_s=9.5 gpu_use_pct=99 temperature_c=64; exec sleep 3600"


def test_what_runs_in_the_cluster(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pod of ours that tells its progress, one that waits for its node, and a stranger's."""
    monkeypatch.setenv("TRAINBENCH_NAMESPACE", cluster.namespace)
    monkeypatch.setenv("TRAINBENCH_INSTANCE", INSTANCE)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    labels = {**installation_labels(PodSettings(instance=INSTANCE)), "trainbench.io/node": "node-1"}
    cluster.nodes(1)
    reached = open_cluster(read_settings(), str(airflows_kubeconfig(cluster)))
    for made in (
        pod("tb-works", PROGRESS, labels=labels),
        pod("tb-waits", PROGRESS, labels=labels, nodeSelector={"kubernetes.io/hostname": "no-such-node"}),
        pod("stranger", "exec sleep 3600"),
    ):
        reached.create_pod(made)
    cluster.wait_for_pods(lambda pods: phases(pods)["tb-works"] == "Running")
    cluster.wait_for_pods(lambda pods: all(item["status"].get("conditions") for item in pods))

    done = CliRunner().invoke(app, ["watch", "--json", "--kubeconfig", str(airflows_kubeconfig(cluster))])
    assert done.exit_code == 0, done.stderr
    pods = {item["pod"]: item for item in document(done)["pods"]}
    assert pods.keys() == {"tb-works", "tb-waits"}
    assert (pods["tb-works"]["state"], pods["tb-waits"]["state"]) == ("Running", "Pending")
    assert pods["tb-works"]["progress"]["step"] in ("window 1/3", None)  # its log may not be there yet
    assert "didn't match Pod's node affinity/selector" in pods["tb-waits"]["why"]


def phases(pods: list[dict[str, Any]]) -> dict[str, str]:
    return {item["metadata"]["name"]: item["status"]["phase"] for item in pods}

"""Running pods: progress lines, pods of a cluster, pods of this machine, and the command that shows them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.builders import make_spec
from tests.builders.commands import document
from tests.builders.fake_cluster import FakeCluster
from trainbench.cli.app import app
from trainbench.cluster import kubernetes_api as cluster_module
from trainbench.cluster.kubernetes_api import Refused
from trainbench.cluster.running_pods import (
    LivePod,
    Progress,
    cluster_pods,
    local_pods,
    parse_progress,
    running_pods_table,
)
from trainbench.pods.local_pods import LocalImage, LocalPod
from trainbench.pods.manifests import PodSettings, installation_labels, manifest

NOW = datetime(2026, 11, 21, 2, 1, tzinfo=UTC)

LOG = """\
loading libraries
phase=import seconds_since_start=1.2
phase=warmup seconds_since_start=12.5
phase=warmup step=4/20 samples_per_s=8.9 gpu_use_pct=97 temperature_c=58
some library: phase=nonsense step=1/1
phase=measure seconds_since_start=31.0
phase=measure window=2/3 steps=50 samples_per_s=9.5 gpu_use_pct=99 temperature_c=64
"""


def pod(name: str, phase: str, log: str = "", **status: Any) -> dict[str, Any]:
    labels = {**installation_labels(PodSettings()), "trainbench.io/node": name}
    metadata = {
        "name": f"tb-{name}",
        "labels": labels,
        "annotations": {"trainbench.io/work": "single · round 1", "log": log},
        "creationTimestamp": "2026-11-21T02:00:00Z",
    }
    return {"metadata": metadata, "spec": {}, "status": {"phase": phase, **status}}


class Pods(FakeCluster):
    """Answers with the pods it holds and the log that stands in their annotations."""

    def pods(self, labels: Mapping[str, str]) -> Any:
        assert labels == installation_labels(PodSettings())
        return tuple(self.sent)

    def log_lines(self, name: str, container: str, **options: Any) -> Iterator[str]:
        self._may("log")
        assert (container, options) == ("base", {"tail_lines": 100})
        (result,) = (pod for pod in self.sent if pod["metadata"]["name"] == name)
        yield from result["metadata"]["annotations"]["log"].splitlines()


def test_the_last_figures_of_each_kind() -> None:
    assert parse_progress(LOG.splitlines()) == Progress(
        phase="measure", step="window 2/3", samples_per_s=9.5, gpu_use_pct=99.0, temperature_c=64.0
    )


def test_a_new_phase_has_no_step_yet_but_keeps_the_figures() -> None:
    progress = parse_progress(LOG.splitlines()[:6])
    assert (progress.phase, progress.step, progress.samples_per_s) == ("measure", None, 8.9)


@pytest.mark.parametrize(
    "line", ["", "phase=", "phase=x samples_per_s=nan", "phase=x samples_per_s=inf", "phase=x a b=c"]
)
def test_a_strange_line_is_no_figure(line: str) -> None:
    assert parse_progress([line]).samples_per_s is None


def test_pods_of_a_cluster_in_the_order_of_their_nodes() -> None:
    waiting = {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such tag"}}}]}
    full = {
        "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/4 nodes: Insufficient nvidia.com/gpu"}]
    }
    fake = Pods(sent=[
        pod("gpu-10", "Running", LOG), pod("gpu-2", "Pending", **waiting), pod("gpu-1", "Pending", **full),
        pod("gpu-3", "Failed"),
    ])  # fmt: skip
    seen = cluster_pods(fake, installation_labels(PodSettings()), NOW)
    assert [(pod.node, pod.state, pod.why) for pod in seen] == [
        ("gpu-1", "Pending", "0/4 nodes: Insufficient nvidia.com/gpu"),
        ("gpu-2", "Pending", "ImagePullBackOff: no such tag"),
        ("gpu-3", "Failed", None),
        ("gpu-10", "Running", None),
    ]
    assert running_pods_table(seen).rows[3].texts == (
        "gpu-10", "single · round 1", "Running", "measure", "window 2/3", "9.500", "99 %", "64 °C", "60.0 s", "",
    )  # fmt: skip


def test_a_log_that_cannot_be_read_is_reported_and_the_pod_stays() -> None:
    refusal = Refused("GET log", 403, "Forbidden", "no logs for you")
    fake = Pods(sent=[pod("gpu-1", "Running")], refusals={"log": refusal})
    (seen,) = cluster_pods(fake, installation_labels(PodSettings()), NOW)
    assert seen.why == "its log cannot be read: GET log: no logs for you (403 Forbidden)"


def test_a_cluster_whose_clock_is_ahead_gives_no_negative_age() -> None:
    early = datetime(2026, 11, 21, 1, 0, tzinfo=UTC)
    (seen,) = cluster_pods(Pods(sent=[pod("gpu-1", "Succeeded")]), installation_labels(PodSettings()), early)
    assert seen.age_s == 0.0


def test_pods_without_anything_are_shown_all_the_same() -> None:
    fake = Pods(sent=[{"metadata": {"name": "bare"}}])
    (seen,) = cluster_pods(fake, installation_labels(PodSettings()), NOW)
    assert (seen.pod, seen.node, seen.state) == ("bare", "n/a", "Unknown")


# --- this machine -----------------------------------------------------------------------------------------------------


def test_a_local_pod_is_seen_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From another process's view: its folder tells who it is and how far, and is gone with it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho phase=warmup step=1/5 samples_per_s=40.5\necho not progress\nexec sleep 30\n")
    program.chmod(0o755)
    local = LocalPod(manifest(make_spec(node="laptop"), PodSettings()), LocalImage(python=str(program), pythonpath=""))
    seen: list[LivePod] = []

    def look(line: str) -> None:
        if line == "not progress":
            seen.extend(local_pods(datetime.now(UTC)))
            local.stop("seen")

    local.run(look)
    ((node, state, progress),) = ((pod.node, pod.state, pod.progress) for pod in seen)
    assert (node, state, progress.step, progress.samples_per_s) == ("laptop", "Running", "1/5", 40.5)
    assert local_pods(datetime.now(UTC)) == ()


def leftover(folder: Path, **about: Any) -> None:
    place = folder / "trainbench-pod-x"
    place.mkdir()
    about_pod = {
        "pid": os.getpid(),
        "started_at": 0,
        "metadata": manifest(make_spec(), PodSettings())["metadata"],
        **about,
    }
    (place / "pod.json").write_text(json.dumps(about_pod))
    (place / "progress").write_text("")


def test_what_a_killed_launcher_left_behind_does_not_run(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    leftover(tmp_path, pid=int(ended.stdout))
    assert local_pods(NOW, tmp_path) == ()


@pytest.mark.parametrize("about", [{"pid": "x"}, {"metadata": {}}, {"metadata": None}, {"started_at": "soon"}])
def test_a_folder_that_holds_nonsense_is_no_pod(tmp_path: Path, about: dict[str, Any]) -> None:
    leftover(tmp_path, **about)
    assert local_pods(NOW, tmp_path) == ()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    leftover(tmp_path)
    assert len(local_pods(NOW, tmp_path)) == 1
    progress = tmp_path / "trainbench-pod-x" / "progress"
    progress.unlink()
    progress.symlink_to("/etc/passwd")
    assert local_pods(NOW, tmp_path) == ()


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def quiet(no_settings: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No pods of this machine, no settings."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def watch(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["watch", *arguments])


def test_once(quiet: None, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = pod("gpu-2", "Pending", containerStatuses=[{"state": {"waiting": {"reason": "x\x1b[2J[bold]y"}}}])
    fake = Pods(sent=[pod("gpu-1", "Running", LOG), hostile])
    monkeypatch.setenv("TRAINBENCH_LAUNCHER", "kubernetes")
    monkeypatch.setattr(cluster_module, "open_cluster", lambda *_: fake)
    done = watch("--once", "--kubeconfig", "any")
    assert done.exit_code == 0
    assert "2 pods of ours, 1 running" in done.stdout
    assert "window 2/3" in done.stdout
    assert "\x1b" not in done.stdout
    data = document(watch("--json"))
    assert [pod["progress"]["temperature_c"] for pod in data["pods"]] == [64.0, None]
    assert data["problem"] is None


def test_a_cluster_that_is_away_is_one_sentence(quiet: None, tmp_path: Path) -> None:
    done = watch("--once", "--kubeconfig", str(tmp_path / "none"))
    assert done.exit_code == 2
    assert "trainbench: no Kubernetes cluster is configured" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_local_launcher_needs_no_cluster(quiet: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINBENCH_LAUNCHER", "local")
    done = watch("--once")
    assert (done.exit_code, done.stdout.startswith("No pod of ours runs.")) == (0, True)


def test_ctrl_c_leaves_cleanly(quiet: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that looks twice, and is then interrupted in its pause."""
    from trainbench.cli import cluster as watching

    looks: list[float] = []

    def pause(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            raise KeyboardInterrupt

    monkeypatch.setenv("TRAINBENCH_LAUNCHER", "local")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    monkeypatch.setattr(watching, "time", type("Time", (), {"sleep": staticmethod(pause)}))
    done = watch("--interval", "3")
    assert (done.exit_code, looks) == (0, [3.0, 3.0])
    assert time.sleep is not pause

"""Pods applied by hand against an API server: results and logs come into the store, once, whatever else runs there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench_image.contract.result_lines import result_lines
from bench_image.contract.spec import RunSpec
from tests.builders import make_cpu_result
from tests.builders.commands import document
from tests.kube.clusters import airflows_kubeconfig
from tests.kube.e2e import INSTANCE
from tests.kube.real_cluster import e2e_settings
from tests.kube.shell_pods import SMALL
from trainbench.cli.app import app
from trainbench.cluster.kubernetes_api import open_cluster
from trainbench.pods.manifests import Owner, manifests
from trainbench.results.artefacts import open_store

GOOD = "echo warm-up; sleep 1; printf '%s\\n' {lines}; echo a thread ended late >&2"


def script_of(spec: RunSpec) -> str:
    result = make_cpu_result(spec.identity.node).model_copy(update={"spec": spec})
    return GOOD.format(lines=" ".join(f"'{line}'" for line in result_lines(result.model_dump_json())))


def test_results_and_logs_of_pods_that_kubectl_made(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One ends well, one without a result, one runs on, and one is a DAG's, whose tasks read it."""
    (node,) = cluster.nodes(1)
    settings, kubeconfig = e2e_settings(), str(airflows_kubeconfig(cluster))
    api = open_cluster(settings, kubeconfig)

    def apply(round_: int, script: str | None = None, owner: Owner | None = None) -> RunSpec:
        identity = {"run_id": f"run-{round_}", "campaign_id": "by-hand-1"}
        spec = make_cpu_result(node, round=round_).spec.changed(identity=identity)
        (pod,) = manifests(spec, settings, owner)
        pod["spec"]["containers"][0] |= {"command": ["sh", "-c", script or script_of(spec)], "resources": SMALL}
        api.create_pod(pod)
        return spec

    good, silent = apply(1), apply(2, "echo 'CUDA error' >&2; exit 3")
    apply(3, "exec sleep 3600")
    apply(4, owner=Owner(dag_id="node_consistency", dag_run_id="r"))
    cluster.wait_for_pods(
        lambda pods: sorted(pod["status"]["phase"] for pod in pods) == ["Failed", "Running", "Succeeded", "Succeeded"]
    )
    monkeypatch.setenv("TRAINBENCH_NAMESPACE", cluster.namespace)
    monkeypatch.setenv("TRAINBENCH_INSTANCE", INSTANCE)
    command = ["collect", "--json", "--kubeconfig", kubeconfig, "--store", str(tmp_path / "store")]
    first, second = (document(CliRunner().invoke(app, command)) for _ in range(2))

    assert first == second
    assert first["campaigns"] == ["by-hand-1"]
    assert {pod["run_id"]: pod["outcome"] for pod in first["pods"]} == {
        "run-1": "stored", "run-2": "no result", "run-3": "not finished",
    }  # fmt: skip
    store = open_store(str(tmp_path / "store"))
    results = {result.spec.identity.run_id: result for result in store.read_results("by-hand-1").results}
    assert results[good.identity.run_id].spec == good
    assert results[silent.identity.run_id].error is not None
    assert store.read_log("by-hand-1", "run-1", "pod.log") == b"warm-up\na thread ended late\n"
    assert store.read_log("by-hand-1", "run-2", "pod.log") == b"CUDA error\n"
    of_another = CliRunner().invoke(app, [*command, "another-campaign"])
    assert of_another.exit_code == 2
    assert "holds no pod of campaign another-campaign" in of_another.stderr

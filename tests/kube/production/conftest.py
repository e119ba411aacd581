"""One Airflow on production parts, and one night on it: healthy nodes, a slow one, and a sick node for each fault."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kubernetes import client, config

from tests.dag.sinks import StatsdSink, connection, http_sink
from tests.kube.clusters import MARKER_ROLES, ROOT
from tests.kube.clusters import connection as kubernetes_connection
from tests.kube.dag_runs import Runs, started
from tests.kube.e2e import BENCH_IMAGE, IS_REAL
from tests.kube.faults import inject, sick_nodes
from tests.kube.own_pods import is_ours
from tests.kube.production.services import SECRET, Services, services, wait_for_workers
from tests.standin import scripted_image
from trainbench.planning.nodes import KEPT_AWAY
from trainbench.results.campaign import Campaign
from trainbench.results.store_files import StoredResults

DAG_ID = "node_consistency"
HEALTHY = ("gpu-a", "gpu-bb", "gpu-ccc")
SLOW = "gpu-slow"


class Installation(NamedTuple):
    """`posted`: path and body of each notice; `statsd`: gets our gauges; `workers`: the home of each."""

    runs: Runs
    services: Services
    posted: list[tuple[str, dict[str, Any]]]
    statsd: StatsdSink
    workers: list[Path]


class Night(NamedTuple):
    """`stored`: all results of the store; `pods`: those of ours that stayed; `marks`: node -> taints and annotations of
    those that we tainted; `conditions`: node -> gauge that a worker sent by StatsD.
    """

    run_id: str
    state: str
    campaign: Campaign
    stored: StoredResults
    pods: list[dict[str, Any]]
    marks: dict[str, dict[str, Any]]
    conditions: dict[str, str]


@pytest.fixture(scope="package")
def installation(standin: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    if IS_REAL:
        pytest.skip("needs an image made for it: only the stand-in has that")
    folder = tmp_path_factory.mktemp("production")
    state, *workers = (folder / name for name in ("airflow", "worker-1", "worker-2"))
    for home in (state, *workers):
        home.mkdir()
    with (
        pytest.MonkeyPatch.context() as patch,
        http_sink() as (port, posted),
        closing(StatsdSink()) as statsd,
        services(folder) as parts,
    ):
        for name in (*SECRET, "AWS_ENDPOINT_URL"):
            patch.setenv(name, parts.environment[name])
        changes = parts.environment | {
            "TRAINBENCH_NOTIFY": json.dumps([{"kind": "webhook", "connection": "sink", "path": "hooks"}]),
            "TRAINBENCH_KEEP_AWAY": "taint",
            "TRAINBENCH_SCHEDULE_METRICS": "none",
            "AIRFLOW__METRICS__STATSD_ON": "True",
            "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
            "AIRFLOW__METRICS__STATSD_PORT": str(statsd.port),
            "AIRFLOW__METRICS__METRICS_ALLOW_LIST": "trainbench",
            "AIRFLOW_CONN_KUBERNETES_DEFAULT": kubernetes_connection(standin, MARKER_ROLES),
            "AIRFLOW_CONN_SINK": connection(conn_type="http", host=f"http://127.0.0.1:{port}"),
        }
        use_image(standin, tmp_path_factory.mktemp("image"))
        with started(standin, state, changes, workers) as runs:
            wait_for_workers(parts.redis.url, len(workers))  # one that comes late gets no task of a short night
            yield Installation(runs, parts, posted, statsd, workers)


def use_image(standin: Any, folder: Path, **changes: str) -> None:
    """The stand-in image, whose results say when they were made; its runs take 8 s. `changes`: of its environment."""
    folder.chmod(0o755)
    program = ROOT / "tests" / "dag" / "standin_image.py"
    environment = {
        "PYTHONPATH": f"{ROOT}:{ROOT / 'plugins'}",
        "STANDIN_S": "8",
        "STANDIN_CLOCK": "real",
    } | changes
    standin.set_images({BENCH_IMAGE: scripted_image(folder, program, ROOT, **environment)})


@pytest.fixture(scope="package")
def night(installation: Installation, standin: Any) -> Night:
    for name in (*HEALTHY, SLOW):
        standin.add_node(name, gpus=1)
    for fault in sick_nodes():
        inject(standin, fault)
    runs = installation.runs
    run_id = runs.start(DAG_ID, rounds=1)
    state = runs.wait(DAG_ID, run_id)
    allowed = {fault.node for fault in sick_nodes() if fault.leaves_pod}
    standin.wait_for_pods(lambda pods: all(node_of(pod) in allowed for pod in pods if is_ours(pod)))
    campaign = runs.campaign(DAG_ID, run_id)
    stored = runs.store.read_results(campaign.campaign_id)
    left = list(filter(is_ours, standin.pods()))
    return Night(run_id, state, campaign, stored, left, marks_on(standin), conditions_sent(installation))


def conditions_sent(installation: Installation) -> dict[str, str]:
    """By one run of the DAG `metrics`."""
    run_id = installation.runs.start("metrics")
    assert installation.runs.wait("metrics", run_id) == "success"
    prefix = "airflow.trainbench.node.condition."
    lines = [line for line in installation.statsd.lines() if line.startswith(prefix)]
    return dict(line.removeprefix(prefix).split(":") for line in lines)


def marks_on(standin: Any) -> dict[str, dict[str, Any]]:
    """Node -> the patch that would mark another one alike."""
    nodes = client.CoreV1Api(config.new_client_from_config(str(standin.kubeconfig))).list_node().items
    return {
        node.metadata.name: {
            "metadata": {"annotations": {KEPT_AWAY: node.metadata.annotations[KEPT_AWAY]}},
            "spec": {"taints": [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in ours]},
        }
        for node in nodes
        if (ours := [taint for taint in node.spec.taints or () if taint.key == KEPT_AWAY])
    }


def mark(standin: Any, name: str, patch: dict[str, Any]) -> None:
    client.CoreV1Api(config.new_client_from_config(str(standin.kubeconfig))).patch_node(name, patch)


def node_of(pod: dict[str, Any]) -> str:
    return str(pod["spec"].get("nodeName", ""))

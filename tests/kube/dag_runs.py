"""DAG runs by the real Airflow against the tests' cluster: its processes, and a client that starts runs and waits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import psutil
import yaml

from local_airflow import LocalAirflow, end_with_parent
from tests.builders import make_spec
from tests.builders.ports import free_port
from tests.kube.clusters import ROOT, connection
from tests.kube.e2e import E2E, INSTANCE, IS_REAL
from tests.kube.real_cluster import e2e_settings
from tests.kube.shell_pods import PRIORITY_CLASS, pod
from trainbench.planning.plan import campaign_id
from trainbench.pods.manifests import manifests
from trainbench.results.artefacts import Store, open_store
from trainbench.results.campaign import Campaign

SETTINGS = {
    "TRAINBENCH_LAUNCHER": "kubernetes",
    "TRAINBENCH_NAMESPACE": E2E.namespace,
    "TRAINBENCH_INSTANCE": INSTANCE,
    "TRAINBENCH_IMAGE": e2e_settings().image,
    "TRAINBENCH_PRIORITY_CLASS": PRIORITY_CLASS,
    "TRAINBENCH_QUEUE_TIMEOUT_S": f"{20 * E2E.patience:g}",
    "TRAINBENCH_WORLD_SIZES": "1,2",
    # Nothing may start by itself: the last 02:00 would, at once.
    "TRAINBENCH_SCHEDULE_NODE_CONSISTENCY": "none",
    "TRAINBENCH_SCHEDULE_STRATEGY_SCALING": "none",
    "TRAINBENCH_SCHEDULE_INTERCONNECT": "none",
    "TRAINBENCH_SCHEDULE_HOUSEKEEPING": "none",
    "TRAINBENCH_SCHEDULE_COST_REPORT": "0 0 29 2 *",  # for it starts with each campaign's results only if it has one
}
ENDED = ("success", "failed")
WHILE_A_POD_RUNS = "running" if os.environ.get("TRAINBENCH_DEFERRABLE") == "false" else "deferred"  # its task's state
# The benchmark program itself, with real torchrun and gloo.
TINY = {
    "device": "cpu", "model": "tiny", "recipe": "full", "seq_length": 64, "micro_batch_size": 2, "warmup_steps": 3,
    "gradient_accumulation_steps": 1, "repeats": 2, "gpus_per_node": 1,
}  # fmt: skip
NIGHT = {"rounds": 1, "strategies": ["single"], "preset": "as_users_run", "optimizer": "adamw_torch"}
ENDLESS = {"measured_steps": 100_000, "max_measured_steps": 100_000, "timeout_s": 120}
SHORT = {"measured_steps": 5, "max_measured_steps": 5, "timeout_s": 600}
POOL = ["gpu-a", "gpu-bb", "gpu-ccc"]
CAMPAIGN = {"suite": "node_consistency", "nodes": POOL, "parameters": {"rounds": 1}}  # of the file pool-by-night
# What every pod has beside our own, where the stand-in runs it: a night on tainted nodes runs only with it.
TEMPLATE = {
    "runtimeClassName": "nvidia",
    "tolerations": [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}],
    "containers": [{"name": "base", "env": [{"name": "NCCL_DEBUG", "value": "WARN"}]}],
}
LOCAL_BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"


class Runs:
    """A client of the running Airflow: starts DAG runs, waits, tells how they went."""

    def __init__(self, airflow: LocalAirflow, control: IO[str], replies: IO[str], store: Store) -> None:
        """`control` and `replies`: of the process that runs Airflow, see `airflow_process`."""
        self._airflow, self._control, self._replies = airflow, control, replies
        self.store = store

    def kill(self, component: str) -> None:
        """SIGKILL to `scheduler`, `triggerer`, `api-server`, `dag-processor` or `worker-1`, and to its children."""
        self._order("kill", component)

    def restart(self, component: str) -> None:
        """Starts a component that was killed."""
        self._order("start", component)

    def _order(self, verb: str, component: str) -> None:
        self._control.write(f"{verb} {component}\n")
        self._control.flush()
        assert self._replies.readline() == "done\n", f"could not {verb} {component}"

    def wait_until_known(self, dag_id: str) -> None:
        """For a DAG that does not come from the folder `dags`."""
        self._airflow.wait_until_healthy(dag_id)

    def start(self, dag_id: str, **conf: Any) -> str:
        return self._airflow.trigger(dag_id, conf)

    def wait(self, dag_id: str, run_id: str, timeout_s: float = 1800) -> str:
        def ended() -> str | None:
            run = self._airflow.get(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")
            return run["state"] if run and run["state"] in ENDED else None

        return str(self._until(ended, timeout_s))

    def wait_for_task(
        self, dag_id: str, run_id: str, task: tuple[str, int], state: str, timeout_s: float = 900
    ) -> None:
        self._until(lambda: self.tasks(dag_id, run_id).get(task) == state, timeout_s)

    def tasks(self, dag_id: str, run_id: str) -> dict[tuple[str, int], str]:
        listed = self._airflow.get(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances?limit=1000") or {}
        return {(ti["task_id"], ti["map_index"]): ti["state"] for ti in listed["task_instances"]}

    def mark_run(self, dag_id: str, run_id: str, state: str) -> None:
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}"
        self._airflow._client.patch(path, json={"state": state}).raise_for_status()

    def clear(self, dag_id: str, run_id: str, task_id: str, map_index: int) -> None:
        """With all tasks behind it."""
        body = {
            "dry_run": False,
            "dag_run_id": run_id,
            "task_ids": [[task_id, map_index]],
            "include_downstream": True,
            "only_failed": False,
            "reset_dag_runs": True,
        }
        self._airflow._client.post(f"/api/v2/dags/{dag_id}/clearTaskInstances", json=body).raise_for_status()

    def delete_run(self, dag_id: str, run_id: str) -> int:
        """Status of Airflow's reply."""
        return self._airflow._client.delete(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}").status_code

    def wait_until_answered(self, dag_id: str, run_id: str) -> None:
        """Until the API server, started anew, knows the run."""
        self._until(lambda: self.state_of(dag_id, run_id), 900)

    def state_of(self, dag_id: str, run_id: str) -> str | None:
        run = self._airflow.get(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")
        return run["state"] if run else None

    def campaign(self, dag_id: str, run_id: str) -> Campaign:
        return self.store.read_campaign(campaign_id(dag_id, run_id))

    def page(self, path: str) -> Any:
        """Airflow's reply for one of our pages, or for an address that begins with a slash."""
        return self._airflow._client.get(path if path.startswith("/") else f"/trainbench/{path}")

    @property
    def state(self) -> Path:
        return self._airflow.state

    def cost_reports_after(self, run_id: str) -> list[str]:
        """Those that the results of this DAG run have started."""
        return self._until(lambda: [run for run, _, source in self._cost_report_causes() if source == run_id], 900)

    def causes_of_cost_reports(self) -> set[str]:
        """The DAGs whose asset events have started one so far."""
        return {dag_id for _, dag_id, _ in self._cost_report_causes()}

    def _cost_report_causes(self) -> list[tuple[str, str, str]]:
        """(run of cost_report, DAG and run whose asset event it was started by)"""
        path = "/api/v2/dags/cost_report/dagRuns"
        listed = self._airflow.get(f"{path}?run_type=asset_triggered&limit=100") or {"dag_runs": []}
        return [
            (run["dag_run_id"], event["source_dag_id"], event["source_run_id"])
            for run in listed["dag_runs"]
            for event in self._airflow.get(f"{path}/{run['dag_run_id']}/upstreamAssetEvents")["asset_events"]
        ]

    @staticmethod
    def _until(test: Any, timeout_s: float) -> Any:
        give_up = time.monotonic() + timeout_s * E2E.patience
        while not (value := test()):
            if time.monotonic() > give_up:
                raise TimeoutError
            time.sleep(1)  # each request takes time of the server, which the runs need
        return value


@contextmanager
def started(
    standin: Any, state: Path, changes: Mapping[str, str] | None = None, workers: Sequence[Path] = ()
) -> Iterator[Runs]:
    """Airflow with our settings and `changes`, its files in `state`. `workers`: the home of each Celery worker."""
    port = free_port()
    path = os.pathsep.join(str(ROOT / folder) for folder in ("", "plugins", "scripts"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    environment |= SETTINGS | {"AIRFLOW_CONN_KUBERNETES_DEFAULT": connection(standin)} | (changes or {})
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [path, os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.kube.airflow_process", str(port), str(state), *map(str, workers)],
        cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        preexec_fn=end_with_parent,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    store = open_store(environment.get("TRAINBENCH_STORE") or str(state / "store"))
    try:
        assert process.stdout.readline() == "healthy\n", (state / "logs" / "scheduler.log").read_text()[-2000:]
        yield Runs(LocalAirflow(port, with_triggerer=True, state=state), process.stdin, process.stdout, store)
    finally:
        process.kill()  # as an interrupted lane is: nothing of it may stay
        process.wait()
        give_up = time.monotonic() + 300
        while left := started_in(state, *workers):
            assert time.monotonic() < give_up, left
            time.sleep(0.2)


def own_parts(state: Path) -> dict[str, str]:
    """Settings of an Airflow that has a campaign file, the example DAGs, and a Pod template."""
    (state / "campaigns").mkdir()
    (state / "campaigns" / "pool-by-night.yaml").write_text(yaml.safe_dump(CAMPAIGN))
    bundles = [
        {"name": name, "classpath": LOCAL_BUNDLE, "kwargs": {"path": str(folder)}}
        for name, folder in (("dags-folder", ROOT / "dags"), ("examples", ROOT / "docs" / "examples" / "dags"))
    ]
    changes = {
        "TRAINBENCH_CAMPAIGNS": str(state / "campaigns"),
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
    }
    if IS_REAL:  # a real cluster may have no such RuntimeClass
        return changes
    template = state / "pod-template.yaml"
    template.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "spec": TEMPLATE}))
    return changes | {"TRAINBENCH_POD_TEMPLATE": str(template)}


def started_in(*homes: Path) -> list[str]:
    """The commands of Airflow's processes whose home lies in one of these folders."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            home = process.environ().get("AIRFLOW_HOME", "nowhere")
            if any(Path(home).is_relative_to(folder) for folder in homes) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
    return found


def occupy(cluster: Any, node: str) -> None:
    """Let other work hold the node's GPU: in another namespace, as ours takes no pods of other priorities."""
    from kubernetes import client, config

    api = client.CoreV1Api(config.new_client_from_config(str(cluster.kubeconfig)))
    pinned = {"nodeSelector": {"kubernetes.io/hostname": node}, "priorityClassName": "production"}
    api.create_namespaced_pod("default", pod(f"production-{node}", "exec sleep 7200", gpus=1, **pinned))


def nodes(cluster: Any, count: int) -> list[str]:
    """So many nodes with room for a benchmark's pod; on a real cluster named in the form, for they may have no GPUs."""
    (benchmark,) = manifests(make_spec(node="any", device="cpu"), e2e_settings())
    return list(cluster.nodes(count, holds=benchmark))

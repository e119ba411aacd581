"""The trigger that makes a pod and collects its result: what goes well ends in it, what does not is left to a worker,
with the pod as it is. It runs here by itself, against the stand-in, as the triggerer would run it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench_image.contract.parse import parse_result
from bench_image.contract.spec import RunSpec
from tests.kube.after_fault import after_fault
from tests.kube.clusters import connection
from tests.kube.dag_runs import occupy
from tests.kube.e2e import IS_REAL
from tests.kube.operator_runs import FAST, WRITE, give_a_run
from tests.kube.shell_pods import pod
from trainbench.orchestration import kubernetes_operator, run_trigger
from trainbench.orchestration.run_trigger import RunTrigger
from trainbench.pods import time_limits
from trainbench.pods.manifests import CAMPAIGN

pytestmark = [pytest.mark.slow, pytest.mark.skipif(IS_REAL, reason="its faults need the stand-in")]
OPTIONS = {
    "kubernetes_conn_id": "kubernetes_default",
    "do_xcom_push": False,
    "startup_timeout_seconds": FAST["startup_timeout_seconds"],
    "termination_grace_period": 1,
}
QUEUE_S: float = FAST["schedule_timeout_seconds"]
SLOW = f"echo hello; sleep 2; {WRITE}"
FAILS = 'printf "step 1\\n\\033[31mCUDA error\\n"; sleep 1; exit 3'


class Triggers:
    """Makes triggers, and keeps what they push."""

    def __init__(self, cluster: Any, store: str) -> None:
        self.cluster = cluster
        self.runs: dict[str, RunSpec] = {}
        self.store = store

    def trigger(
        self, name: str, script: str = SLOW, try_number: int = 1, env: Any = (), queue_s: Any = QUEUE_S, **spec: Any
    ) -> RunTrigger:
        made = pod(f"case-{name}", script, labels={"app.kubernetes.io/name": "trainbench", CAMPAIGN: "c1"}, **spec)
        made["metadata"]["namespace"] = self.cluster.namespace
        made["spec"].setdefault("activeDeadlineSeconds", 600)
        base = made["spec"]["containers"][0]
        base["env"] = list(env)
        self.runs[name] = give_a_run(base, name)
        trigger = RunTrigger(
            {**OPTIONS, "schedule_timeout_seconds": queue_s, "pod_template_dict": made, "store": self.store}
        )
        trigger.task_instance = SimpleNamespace(  # type: ignore[assignment]
            dag_id="night", task_id=name, run_id="r1", map_index=0, try_number=try_number, max_tries=0, id=try_number
        )
        return trigger

    def run(self, *triggers: RunTrigger) -> list[Any]:
        """The first event of each, all at once in one loop as in the triggerer."""

        async def first() -> list[Any]:
            return await asyncio.gather(*(anext(trigger.run()) for trigger in triggers))

        return asyncio.run(first())

    def created(self, name: str) -> int:
        made = [entry for entry in self.cluster.requests() if entry["verb"] == "create"]
        return sum(entry.get("name", "").startswith(f"case-{name}-") for entry in made)

    def left(self) -> list[str]:
        """The task of each pod of ours that is not on its way out."""
        pods = [each["metadata"] for each in self.cluster.pods() if "deletionTimestamp" not in each["metadata"]]
        return sorted(each["labels"]["task_id"] for each in pods if "task_id" in each["labels"])


@pytest.fixture
def triggers(cluster: Any, airflow_db: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Triggers:
    cluster.nodes(1)
    monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", connection(cluster))
    monkeypatch.setattr(kubernetes_operator, "REFRESH_S", 0.2)
    monkeypatch.setattr(run_trigger, "MIN_DEFERRED_S", 0.0)
    monkeypatch.setattr(kubernetes_operator, "HOOK_S", 1e-6)  # each test has rights of its own
    monkeypatch.setattr(time_limits, "LOG_SILENCE_S", 600.0)
    return Triggers(cluster, str(tmp_path / "store"))


def test_one_bad_pod_does_nothing_to_the_others(triggers: Triggers) -> None:
    """Good ones are collected and gone; each bad one is left as it is, for a worker that says why. The end of each log
    is kept beside the result, without control characters: of a pod that failed it is what says why.
    """
    refused = {"method": "POST", "path": "/pods$", "body": "case-refused", "code": 403, "n": 0}
    triggers.cluster.fault(**refused)
    triggers.cluster.fault(action="evict", pod="^case-evicted-", moment="running", delay_s=1)
    scripts = {"good": SLOW, "also-good": SLOW, "failed": f"{WRITE}; exit 3", "silent": FAILS, "refused": SLOW,
               "evicted": "exec sleep 100", "cut": f"{WRITE} | cut -c-60"}  # fmt: skip
    events = dict(zip(scripts, triggers.run(*(triggers.trigger(*case) for case in scripts.items())), strict=True))

    good = {name for name, event in events.items() if type(event).__name__ == "TaskSuccessEvent"}
    assert good == {"good", "also-good"}
    for name in good:
        handed_over = events[name].xcoms["return_value"]
        assert parse_result(Path(handed_over["address"]).read_bytes()).spec == triggers.runs[name]
    assert {name for name, event in events.items() if name not in good and event.payload["is_made"]} == {
        "failed", "silent", "cut", "evicted",
    }  # fmt: skip
    assert triggers.left() == ["cut", "evicted", "failed", "silent"]
    for name, logged in {"good": "hello\n", "silent": "step 1\n [31mCUDA error\n"}.items():
        run = triggers.runs[name].identity
        kept = Path(triggers.store) / "campaigns" / run.campaign_id / "runs" / run.run_id / "pod.log"
        assert kept.read_text() == logged


def test_all_pods_are_watched_by_one_list(triggers: Triggers) -> None:
    names = [f"pod-{index}" for index in range(6)]
    triggers.run(*(triggers.trigger(name) for name in names))

    uris = [entry["uri"] for entry in triggers.cluster.requests() if entry["verb"] in ("get", "list")]
    assert [uri for uri in uris if "labelSelector" in uri and "task_id" not in uri and "/pods?" in uri]
    for name in names:
        (own,) = [uri for uri in uris if f"/pods/case-{name}-" in uri]
        assert "/log" in own


def test_two_hundred_pods_that_wait_in_vain_each_say_why_and_leave_nothing(triggers: Triggers) -> None:
    occupy(triggers.cluster, "node-1")
    made = [triggers.trigger(f"pod-{index}", gpus=1, queue_s=5) for index in range(200)]
    ends = [event.payload["end"] for event in triggers.run(*made)]

    assert {end["kind"] for end in ends} == {"busy"}
    (cause,) = {end["message"] for end in ends}
    after_fault("many-queued", pods=triggers.left(), cause=cause)


def test_a_task_that_somebody_ends_takes_its_pod_along_also_while_it_is_being_made(triggers: Triggers) -> None:
    triggers.cluster.fault(method="POST", path="/pods$", body="case-ended", delay_s=1, n=1)

    async def end() -> None:
        trigger = triggers.trigger("ended", "exec sleep 100")
        task = asyncio.create_task(anext(trigger.run()))  # type: ignore[arg-type]
        while not any(entry["verb"] == "create" for entry in triggers.cluster.requests()):
            await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.wait([task])
        await trigger.on_kill()

    asyncio.run(end())

    assert triggers.created("ended") == 1
    assert triggers.left() == []

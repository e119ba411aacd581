"""One night of pods that run until they may end, under which PostgreSQL is stopped, every part of Airflow is killed and
started again, the cluster's API server is away and the bucket is busy; then what people do to a DAG run: delete it,
clear a task, mark it, start two.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.kube.after_fault import after_fault, after_night
from tests.kube.own_pods import names_of_ours, wait_until_ours_are_gone
from tests.kube.production.conftest import DAG_ID, SLOW, Installation, Night, mark, marks_on, use_image
from trainbench.core.verdicts import FREED, State
from trainbench.history.database import connect
from trainbench.history.tables import runs
from trainbench.planning.plan import campaign_id
from trainbench.results.campaign import Campaign

pytestmark = pytest.mark.slow
NODES = ("node-1", "node-2", SLOW)  # the last was slow the night before, is marked, and has been repaired
KILLED = ("triggerer", "scheduler", "dag-processor", "worker-1", "api-server")  # some of them end without a database
# Rows of the fault table that this night suffers all together.
INTERRUPTIONS = (
    "triggerer-killed", "scheduler-killed", "worker-killed", "airflow-api-killed", "cluster-api-away",
    "broker-restarted", "database-restarted", "bucket-busy", "run-deleted",
)  # fmt: skip
AWAY_S = 20
BUSY_S = 8
DATABASE_AWAY_S = 4


class Interrupted(NamedTuple):
    run_id: str
    state: str
    campaign: Campaign
    created: list[str]  # names of the pods that were made
    deletion: int  # status of Airflow's reply to the run's deletion while its pods ran
    refused: int  # requests to the bucket that it answered with 503
    may_end: Path  # the image's runs go on while this file is not there


@pytest.fixture(scope="module")
def interrupted(
    installation: Installation, night: Night, standin: Any, tmp_path_factory: pytest.TempPathFactory
) -> Interrupted:
    """After the night of sick nodes, whose nodes are gone."""
    standin.reset()
    may_end = tmp_path_factory.mktemp("long") / "may-end"
    use_image(standin, may_end.parent, STANDIN_UNTIL=str(may_end), STANDIN_REPAIRED="1")
    for name in NODES:
        standin.add_node(name, gpus=1)
    mark(standin, SLOW, night.marks[SLOW])
    airflow, services = installation.runs, installation.services
    run_id = airflow.start(DAG_ID, rounds=1, nodes=list(NODES))
    standin.wait_for_pods(lambda pods: [pod["status"]["phase"] for pod in pods] == ["Running"] * len(NODES))
    for index in range(len(NODES)):
        airflow.wait_for_task(DAG_ID, run_id, ("benchmark", index), "deferred")
    deletion = airflow.delete_run(DAG_ID, run_id)
    services.postgres.stop()
    time.sleep(DATABASE_AWAY_S)
    services.postgres.start()
    standin.fault(path="/pods", drop=True, n=0, for_s=AWAY_S)
    for component in KILLED:
        airflow.kill(component)
    services.redis.kill()
    services.redis.start()
    for component in KILLED:
        airflow.restart(component)
    airflow.wait_until_answered(DAG_ID, run_id)
    services.bucket.refuse_from_now(BUSY_S)
    may_end.touch()
    state = airflow.wait(DAG_ID, run_id)
    # Whoever goes on with a pod asks for it again under its name, and is told that it is there.
    created = [entry["name"] for entry in standin.requests() if (entry["verb"], entry["code"]) == ("create", 201)]
    made = [name for name in created if name.startswith(("tb-node-", "tb-gpu-"))]  # `ready` tries one of another name
    campaign = airflow.campaign(DAG_ID, run_id)
    return Interrupted(run_id, state, campaign, made, deletion, services.bucket.refused, may_end)


def recorded(installation: Installation, campaign_id: str) -> list[str]:
    """The nodes of the campaign's runs in the history."""
    with connect(installation.services.environment["TRAINBENCH_HISTORY_URL"]).connect() as connection:
        rows = connection.execute(runs.select().where(runs.c.campaign_id == campaign_id)).all()
    return sorted(row.node for row in rows)


def test_the_night_goes_on(installation: Installation, interrupted: Interrupted, standin: Any) -> None:
    campaign = interrupted.campaign

    assert interrupted.state == "success", campaign.findings
    assert {node.node: node.state for node in campaign.nodes} == dict.fromkeys(NODES, State.WELL)
    assert len(interrupted.created) == len(NODES)
    assert recorded(installation, campaign.campaign_id) == sorted(NODES)
    assert interrupted.refused
    wait_until_ours_are_gone(standin)
    after_night(*INTERRUPTIONS, planned=NODES, campaign=campaign, is_green=interrupted.state == "success")
    after_fault(*INTERRUPTIONS, pods=names_of_ours(standin))


def test_the_node_that_was_slow_last_night_is_freed_in_this_one(interrupted: Interrupted, standin: Any) -> None:
    (freed,) = (finding for finding in interrupted.campaign.findings if finding.category == FREED)

    assert freed.nodes == (SLOW,)
    assert marks_on(standin) == {}


def test_a_run_is_not_deleted_while_its_pods_run(interrupted: Interrupted) -> None:
    """Airflow refuses it, and the run goes on."""
    assert interrupted.deletion == httpx.codes.CONFLICT


def test_a_cleared_task_counts_once(installation: Installation, interrupted: Interrupted, standin: Any) -> None:
    """The run is green again with the node's new result, and the history has one row for it."""
    airflow, run_id = installation.runs, interrupted.run_id
    before = airflow.campaign(DAG_ID, run_id)
    airflow.clear(DAG_ID, run_id, "benchmark", 0)
    state = airflow.wait(DAG_ID, run_id)
    after = airflow.campaign(DAG_ID, run_id)

    assert state == "success"
    assert len(after.results) == len(before.results) == len(NODES)
    assert recorded(installation, after.campaign_id) == sorted(NODES)
    assert [finding.nodes for finding in after.findings if finding.category == FREED] == [(SLOW,)]  # by the first try
    wait_until_ours_are_gone(standin)
    after_night("cleared", planned=NODES, campaign=after, is_green=state == "success")
    after_fault("cleared", pods=names_of_ours(standin))


def test_a_run_marked_successful_by_hand_leaves_no_pod(
    installation: Installation, interrupted: Interrupted, standin: Any
) -> None:
    """Who marks it takes the colour upon himself; a second run, started meanwhile, waits for its end."""
    airflow = installation.runs
    interrupted.may_end.unlink()
    run_id, second = (airflow.start(DAG_ID, rounds=1, nodes=list(NODES)) for _ in range(2))
    first = standin.wait_for_pods(lambda pods: [pod["status"]["phase"] for pod in pods] == ["Running"] * len(NODES))
    assert airflow.state_of(DAG_ID, second) == "queued"
    airflow.mark_run(DAG_ID, run_id, "success")
    names = {pod["metadata"]["name"] for pod in first}
    standin.wait_for_pods(lambda pods: names.isdisjoint(pod["metadata"]["name"] for pod in pods))
    interrupted.may_end.touch()

    state, of_second = airflow.wait(DAG_ID, second), airflow.campaign(DAG_ID, second)
    assert state == "success"
    assert of_second.nodes[0].state is State.WELL
    assert airflow.state_of(DAG_ID, run_id) == "success"
    wait_until_ours_are_gone(standin)
    counted = recorded(installation, campaign_id(DAG_ID, run_id))
    after_night("two-at-once", planned=NODES, campaign=of_second, is_green=state == "success")
    after_fault("two-at-once", "marked-successful", pods=names_of_ours(standin))
    after_fault("marked-successful", results=([], counted))  # its runs were ended: nothing of it is in the history

"""Stores the results of finished pods that were applied by hand: `plan --manifests | kubectl apply -f -`.

Such a pod has no container that hands its result over: the result is the last line of its log.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from bench_image.contract.frozen import ContractError, Frozen
from bench_image.contract.pod_io import MAX_RESULT_BYTES
from bench_image.contract.spec import RunSpec
from trainbench.cluster.kubernetes_api import Cluster, ClusterError
from trainbench.cluster.leaked_pods import ENDED_PHASES, owner_of
from trainbench.core.tables import Table, Tone, text_columns, text_row
from trainbench.pods.manifests import CAMPAIGN, CONTAINER, installation_labels, label_value
from trainbench.pods.pod_end import pod_end
from trainbench.pods.pod_log import LogTail
from trainbench.results.arrivals import arrived, run_of, store_arrival, store_log
from trainbench.results.artefacts import Store
from trainbench.results.collect import collect
from trainbench.settings.environment import Settings

LOG_LINES, LOG_BYTES = 1000, 4_000_000  # read of a log, of which the end is kept


class Outcome(StrEnum):
    STORED = "stored"
    FAILED = "no result"  # stored as a failed run
    RUNNING = "not finished"
    LEFT_OUT = "left out"


class CollectedPod(Frozen):
    """One pod. `detail`: the address of its result, or why there is none."""

    pod: str
    campaign_id: str | None
    run_id: str | None
    node: str | None
    outcome: Outcome
    detail: str


def collect_pods(
    cluster: Cluster, settings: Settings, store: Store, campaign_id: str | None, now: datetime
) -> tuple[CollectedPod, ...]:
    """Store the result and the log of each finished pod of this installation that no DAG run made; of one campaign, or
    of all. Repeated, it writes the same files again. Raises ClusterError where pods cannot be listed, and StoreError.
    """
    labels = installation_labels(settings) | ({CAMPAIGN: label_value(campaign_id)} if campaign_id else {})
    pods = sorted(cluster.pods(labels), key=lambda pod: str(pod["metadata"]["name"]))
    return tuple(_collected(cluster, store, pod, now) for pod in pods if owner_of(pod) is None)


def _collected(cluster: Cluster, store: Store, pod: Mapping[str, Any], now: datetime) -> CollectedPod:
    name, node = str(pod["metadata"]["name"]), pod["spec"].get("nodeName")
    try:
        run = run_of(pod)
    except ContractError as error:
        return _of(name, node, None, Outcome.LEFT_OUT, f"its run spec cannot be read: {error}")
    if run is None:
        return _of(name, node, None, Outcome.LEFT_OUT, "it holds no run spec")
    spec, rank = run
    if (phase := (pod.get("status") or {}).get("phase")) not in ENDED_PHASES:
        return _of(name, node, spec, Outcome.RUNNING, f"its phase is {phase}: collect again when it has ended")
    try:
        payload = cluster.log(name, CONTAINER, 1, MAX_RESULT_BYTES + 1)
        lines = cluster.log(name, CONTAINER, LOG_LINES, LOG_BYTES).split("\n")
    except ClusterError as error:
        return _of(name, node, spec, Outcome.LEFT_OUT, f"its log cannot be read: {error}")
    store_log(store, pod, LogTail(line for line in lines if line).text)
    if payload.startswith("{") and (address := store_arrival(store, pod, payload)):
        return _of(name, node, spec, Outcome.STORED, address)
    return _of(name, node, spec, Outcome.FAILED, _without_result(store, pod, spec, rank, now))


def _without_result(store: Store, pod: Mapping[str, Any], spec: RunSpec, rank: int, now: datetime) -> str:
    """Store a failed result, unless an earlier pod of this run left one; return why there is none."""
    end = pod_end(pod, CONTAINER, "its log ends without a result", now=now)
    if arrived(store, spec, rank) is None:
        (failed,) = collect([spec], [None], now, ends=[end])
        if spec.placement.nodes > 1:
            store.write_rank_result(failed, rank)
        else:
            store.write_result(failed)
    return end.message


def _of(name: str, node: str | None, spec: RunSpec | None, outcome: Outcome, detail: str) -> CollectedPod:
    identity = spec.identity if spec else None
    return CollectedPod(
        pod=name,
        campaign_id=identity.campaign_id if identity else None,
        run_id=identity.run_id if identity else None,
        node=node,
        outcome=outcome,
        detail=detail,
    )


TONES = {Outcome.STORED: Tone.GOOD, Outcome.FAILED: Tone.BAD, Outcome.LEFT_OUT: Tone.WARN, Outcome.RUNNING: Tone.PLAIN}


def collected_table(pods: tuple[CollectedPod, ...]) -> Table:
    rows = (text_row(each.pod, each.node or "", each.outcome, each.detail, tone=TONES[each.outcome]) for each in pods)
    return Table(columns=text_columns("pod", "node", "outcome", "detail", long="detail"), rows=tuple(rows))

"""Stores the results of finished pods that were applied by hand: `plan --manifests | kubectl apply -f -`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from bench_image.contract.frozen import ContractError, Frozen
from bench_image.contract.spec import RunSpec
from trainbench.cluster.kubernetes_api import Cluster, ClusterError
from trainbench.cluster.pod_deletions import collect
from trainbench.core.tables import Table, Tone, text_columns, text_row
from trainbench.pods.manifests import CAMPAIGN, CONTAINER, installation_labels, label_value, owner_of
from trainbench.pods.pod_end import pod_end
from trainbench.pods.time_limits import has_ended
from trainbench.results.arrivals import arrived, run_of, write_run
from trainbench.results.artefacts import Store
from trainbench.results.collect import UNUSABLE
from trainbench.results.collect import collect as collect_runs
from trainbench.settings.environment import Settings

log = logging.getLogger(__name__)


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
    spec: RunSpec | None = None
    try:
        outcome, detail = Outcome.LEFT_OUT, "it holds no run spec"
        if run := run_of(pod):
            spec, rank = run
            outcome, detail = _stored(cluster, store, pod, spec, rank, now)
    except ContractError as error:
        detail = f"its run spec cannot be read: {error}"
    except ClusterError as error:
        detail = f"its log cannot be read: {error}"
    return CollectedPod(
        pod=pod["metadata"]["name"],
        campaign_id=spec.identity.campaign_id if spec else None,
        run_id=spec.identity.run_id if spec else None,
        node=pod["spec"].get("nodeName"),
        outcome=outcome,
        detail=detail,
    )


def _stored(
    cluster: Cluster, store: Store, pod: Mapping[str, Any], spec: RunSpec, rank: int, now: datetime
) -> tuple[Outcome, str]:
    if not has_ended(pod, CONTAINER):
        phase = (pod.get("status") or {}).get("phase")
        return Outcome.RUNNING, f"its phase is {phase}: collect again when it has ended"
    left = collect(cluster, store, pod, pod["metadata"]["name"], log.warning)
    if left.arrival is None:
        end = pod_end(pod, CONTAINER, left.missing, now=now, missing=left.missing)
        (result,) = collect_runs([spec], [None], now, ends=[end])
        if arrived(store, spec, rank) is None:  # an earlier pod of this run left none
            write_run(store, result, rank)
        return Outcome.FAILED, result.error.message if result.error else ""
    failure = left.arrival.failure or ""
    if failure.partition(":")[0] in UNUSABLE:
        return Outcome.FAILED, failure
    return Outcome.STORED, left.arrival.address


TONES = {Outcome.STORED: Tone.GOOD, Outcome.FAILED: Tone.BAD, Outcome.LEFT_OUT: Tone.WARN, Outcome.RUNNING: Tone.PLAIN}


def collected_table(pods: tuple[CollectedPod, ...]) -> Table:
    rows = (text_row(each.pod, each.node or "", each.outcome, each.detail, tone=TONES[each.outcome]) for each in pods)
    return Table(columns=text_columns("pod", "node", "outcome", "detail", long="detail"), rows=tuple(rows))

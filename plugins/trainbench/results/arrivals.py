"""Stores each pod's result and log as soon as its task has them, so that no later failure loses them.

    {root}/campaigns/{campaign_id}/plan.json                      the planned runs
    {root}/campaigns/{campaign_id}/runs/{run_id}/result.json      of a run on one node
    {root}/campaigns/{campaign_id}/runs/{run_id}/rank-{k}.json    of the pod of node rank k, until the gang's are joined
    {root}/campaigns/{campaign_id}/runs/{run_id}/pod.log          the last part of the pod's log; rank-{k}.log of a gang

Names come from the run: a repeated task, or `publish` after it, writes the same file again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import AwareDatetime

from bench_image.contract.frozen import ContractError, Frozen
from bench_image.contract.parse import parse_spec
from bench_image.contract.pod_io import RESULT_FILE, SPEC_ENV
from bench_image.contract.result import Phase, RunResult
from bench_image.contract.spec import RunSpec
from trainbench.planning.plan import Plan
from trainbench.pods.manifests import CONTAINER, RANK_ENV
from trainbench.pods.pod_end import PodEnd
from trainbench.pods.pod_log import log_file
from trainbench.results.artefacts import Store
from trainbench.results.collect import mismatch, parse_payload
from trainbench.results.store_files import StoreError
from trainbench.results.stored_results import latest_try, rank_file


class PlannedCampaign(Frozen):
    """The plan of a campaign with its time. `suite`: the DAG's id, or that of the command line."""

    plan: Plan
    suite: str
    dag_run_id: str | None = None  # None: not made by a DAG run
    planned_at: AwareDatetime


def store_arrival(store: Store, manifest: Mapping[str, Any], payload: object) -> str | None:
    """Store the result of this manifest's pod; return the file's address. None: it is not the result of the manifest's
    run, so it is left to the judgement. Raises StoreError.
    """
    if (run := run_of(manifest)) is None:
        return None
    spec, rank = run
    try:
        result = parse_payload(payload)
    except ContractError:
        return None
    if mismatch(spec, result):
        return None
    return store.write_rank_result(result, rank) if spec.placement.nodes > 1 else store.write_result(result)


def store_log(store: Store, manifest: Mapping[str, Any], text: str) -> str | None:
    """Store the kept part of this pod's log; return the file's address. None: it is empty, or of a pod that is none of
    ours. Raises StoreError.
    """
    if not text or (run := run_of(manifest)) is None:
        return None
    spec, rank = run
    name = log_file(rank if spec.placement.nodes > 1 else None)
    return store.write_log(spec.identity.campaign_id, spec.identity.run_id, name, text)


def arrived(store: Store, spec: RunSpec, rank: int) -> str | None:
    """The stored result text of this run and rank; None: none is stored."""
    name = rank_file(rank) if spec.placement.nodes > 1 else RESULT_FILE
    try:
        text = store.read_run_file(spec.identity.campaign_id, spec.identity.run_id, name).decode()
        result = parse_payload(text)
    except (StoreError, ContractError, UnicodeDecodeError):
        return None
    # The judgement's substitute for a pod without a result is no measurement.
    return None if result.error and result.error.phase is Phase.LAUNCH else text


def arrived_of_pod(store: Store, manifest: Mapping[str, Any], pod_name: str) -> str | None:
    """The stored result text of this pod; None: none is stored, or another pod's of the run."""
    if (run := run_of(manifest)) is None or (text := arrived(store, *run)) is None:
        return None
    context = parse_payload(text).context
    return text if context and context.pod == pod_name else None


def complete_payloads(
    store: Store, specs: Sequence[RunSpec], payloads: Sequence[object | None], ends: Sequence[PodEnd | None]
) -> list[object | None]:
    """The payloads; where Airflow has neither a pod's result nor its end, the stored result. Of a gang, whose pods are
    the specs' ranks, only the ranks of one try count together.
    """
    with_stored = [
        arrived(store, spec, index) if payload is None and end is None else payload
        for index, (spec, payload, end) in enumerate(zip(specs, payloads, ends, strict=True))
    ]
    stored = [index for index, payload in enumerate(payloads) if payload is None and with_stored[index] is not None]
    if not stored or specs[0].placement.nodes == 1:
        return with_stored
    of_try = latest_try({index: result for index, payload in enumerate(with_stored) if (result := _read(payload))})
    return [None if index in stored and index not in of_try else payload for index, payload in enumerate(with_stored)]


def _read(payload: object | None) -> RunResult | None:
    try:
        return None if payload is None else parse_payload(payload)
    except ContractError:
        return None


def run_of(manifest: Mapping[str, Any]) -> tuple[RunSpec, int] | None:
    """The pod's run and node rank; None for another program's pod."""
    base: Mapping[str, Any] = next((c for c in manifest["spec"]["containers"] if c["name"] == CONTAINER), {})
    env = {variable["name"]: variable.get("value") for variable in base.get("env") or ()}
    if env.get(SPEC_ENV) is None:
        return None
    return parse_spec(env[SPEC_ENV]), int(env.get(RANK_ENV) or 0)

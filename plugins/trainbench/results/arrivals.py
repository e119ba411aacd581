"""Stores each pod's result and log as soon as its task has them, so that no later failure loses them.

    {root}/campaigns/{campaign_id}/plan.json                      the planned runs
    {root}/campaigns/{campaign_id}/runs/{run_id}/result.json      of a run on one node
    {root}/campaigns/{campaign_id}/runs/{run_id}/rank-{k}.json    of the pod of node rank k, until the gang's are joined
    {root}/campaigns/{campaign_id}/runs/{run_id}/pod.log          the last part of the pod's log; rank-{k}.log of a gang

Names come from the run: a repeated task writes the same file again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

from pydantic import AwareDatetime

from bench_image.contract.frozen import ContractError, Frozen
from bench_image.contract.parse import parse_result, parse_spec
from bench_image.contract.pod_io import RANK_ENV, RESULT_FILE, SPEC_ENV
from bench_image.contract.result import Phase, RunResult
from bench_image.contract.spec import RunSpec
from trainbench.planning.plan import Plan
from trainbench.pods.manifests import CONTAINER
from trainbench.pods.pod_end import PodEnd
from trainbench.pods.pod_log import log_file
from trainbench.results.artefacts import WRITERS, Store
from trainbench.results.collect import collect
from trainbench.results.store_files import FileMissing, FileUnusable, latest_try, rank_file

ADDRESS = "address"  # field of a task's XCom


def address_in(handed_over: object) -> str | None:
    """The address of a result in a task's XCom; None: there is none. Airflow encodes the XComs of a trigger twice, so
    that they are read as a text of JSON.
    """
    if isinstance(handed_over, str):
        try:
            handed_over = json.loads(handed_over)
        except ValueError:
            return None
    return handed_over.get(ADDRESS) if isinstance(handed_over, Mapping) else None


def result_of(store: Store, handed_over: object) -> RunResult | None:
    """The result whose address is in a task's XCom; None: there is none. Of an address the campaign, run and name
    count: the file is one of this store. Raises ContractError and StoreError.
    """
    match = re.search(r"/campaigns/([^/]+)/runs/([^/]+)/([^/]+)$", address_in(handed_over) or "")
    return parse_result(store.read_run_file(*match.groups())) if match else None


class Arrival(Frozen):
    """A pod's result in the store. `num_bytes`: of the text that the pod printed; `failure`: kind and message of a
    failed run's error.
    """

    address: str
    num_bytes: int
    failure: str | None

    @property
    def for_xcom(self) -> dict[str, Any]:
        """What Airflow's database holds of a result."""
        return {ADDRESS: self.address, "bytes": self.num_bytes}


class PlannedCampaign(Frozen):
    """The plan of a campaign with its time. `suite`: the DAG's id, or that of the command line."""

    plan: Plan
    suite: str
    dag_run_id: str | None = None  # None: not made by a DAG run
    planned_at: AwareDatetime


def store_arrival(store: Store, manifest: Mapping[str, Any], text: str, at: datetime) -> Arrival | None:
    """Store the result that this manifest's pod printed; what is no result of the manifest's run is stored as a failed
    run that says so. None: the pod is none of ours. Raises StoreError.
    """
    if (run := run_of(manifest)) is None:
        return None
    spec, rank = run
    (result,) = collect([spec], [text], at)
    return _arrival(write_run(store, result, rank), text, result)


def write_run(store: Store, result: RunResult, rank: int) -> str:
    """Write the result of one pod, of a gang as that of its rank; return the file's address. Raises StoreError."""
    return store.write_result(result, rank if result.spec.placement.nodes > 1 else None)


def store_log(store: Store, manifest: Mapping[str, Any], text: str) -> str | None:
    """Store the kept part of this pod's log; return the file's address. None: it is empty, or of a pod that is none of
    ours. Raises StoreError.
    """
    if not text or (run := run_of(manifest)) is None:
        return None
    spec, rank = run
    name = log_file(rank if spec.placement.nodes > 1 else None)
    return store.write_log(spec.identity.campaign_id, spec.identity.run_id, name, text)


def keep_log(store: Store, manifest: Mapping[str, Any], text: str, warn: Callable[[str], None]) -> None:
    """`store_log` of a task. Errors are only logged: a run never fails by its log."""
    try:
        store_log(store, manifest, text)
    except Exception as error:  # whatever the store's library raises
        warn(f"The pod's log is not kept beside its result: {error}")


def arrived(store: Store, spec: RunSpec, rank: int) -> str | None:
    """The stored result text of this run and rank; None: none is stored. Raises StoreError where that is not known."""
    text = stored_text(store, spec, rank)
    result = _parsed(text)
    # The judgement's substitute for a pod without a result is no measurement.
    return None if result is None or (result.error and result.error.phase is Phase.LAUNCH) else text


def stored_text(store: Store, spec: RunSpec, rank: int) -> str | None:
    """The text of the file of this run and rank, whatever it holds; None: there is none. Raises StoreError."""
    try:
        return store.read_run_file(*_file(spec, rank)).decode(errors="replace")
    except FileMissing:
        return None


def _file(spec: RunSpec, rank: int) -> tuple[str, str, str]:
    name = rank_file(rank) if spec.placement.nodes > 1 else RESULT_FILE
    return spec.identity.campaign_id, spec.identity.run_id, name


def arrived_of_pod(store: Store, manifest: Mapping[str, Any], pod_name: str | None) -> Arrival | None:
    """This pod's result that an earlier task stored; None: none is stored, or another pod's of the run. `pod_name`:
    None: any pod's of the run counts. Raises StoreError.
    """
    if (run := run_of(manifest)) is None or (text := arrived(store, *run)) is None:
        return None
    (spec, rank), result = run, parse_result(text)
    if pod_name is not None and not _is_of_pod(result, pod_name):
        return None
    address = store.run_file_address(*_file(spec, rank))
    return _arrival(address, text, result)


def stored_payloads(
    store: Store, specs: Sequence[RunSpec], has_address: Sequence[bool], ends: Sequence[PodEnd | None]
) -> list[str | None]:
    """The stored result of each run, of a gang's ranks the results of one try. `has_address`: whether this try's task
    handed over the address of what it stored. Where it did not, a result counts if the task told of no end, or if it is
    of the pod whose end it told: `release` found it there. Raises StoreError.
    """

    def payload(index: int) -> str | None:
        end = ends[index]
        try:
            if has_address[index]:
                return stored_text(store, specs[index], index)
            text = arrived(store, specs[index], index)
        except FileUnusable as error:  # a fault of this file alone
            return str(error)
        if text is None or end is None or (end.pod and _is_of_pod(parse_result(text), end.pod)):
            return text
        return None

    with ThreadPoolExecutor(WRITERS) as readers:
        payloads = list(readers.map(payload, range(len(specs))))
    late = [index for index, text in enumerate(payloads) if text is not None and not has_address[index]]
    if not late or specs[0].placement.nodes == 1:
        return payloads
    of_try = latest_try({index: result for index, text in enumerate(payloads) if (result := _parsed(text))})
    return [None if index in late and index not in of_try else text for index, text in enumerate(payloads)]


def _arrival(address: str, text: str, result: RunResult) -> Arrival:
    error = result.error
    return Arrival(address=address, num_bytes=len(text), failure=f"{error.kind}: {error.message}" if error else None)


def _is_of_pod(result: RunResult, pod_name: str) -> bool:
    return result.context is not None and result.context.pod == pod_name


def _parsed(text: str | None) -> RunResult | None:
    try:
        return None if text is None else parse_result(text)
    except ContractError:
        return None


def run_of(manifest: Mapping[str, Any]) -> tuple[RunSpec, int] | None:
    """The pod's run and node rank; None for another program's pod."""
    base: Mapping[str, Any] = next((c for c in manifest["spec"]["containers"] if c["name"] == CONTAINER), {})
    env = {variable["name"]: variable.get("value") for variable in base.get("env") or ()}
    if env.get(SPEC_ENV) is None:
        return None
    return parse_spec(env[SPEC_ENV]), int(env.get(RANK_ENV) or 0)

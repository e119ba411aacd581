"""Collects one `RunResult` for each planned run from the pods' payloads, in the plan's order. None is dropped."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from itertools import islice, zip_longest

from bench_image.contract.frozen import ContractError
from bench_image.contract.parse import parse_result
from bench_image.contract.result import Phase, RunResult, Status, failed_result
from bench_image.contract.spec import RunSpec
from trainbench.pods.pod_end import BESIDES_THE_PROGRAM, INFRASTRUCTURE, EndKind, PodEnd

UNUSABLE = frozenset({"invalid_result", "foreign_result"})  # kinds of errors of a text that is no result of its run


def collect(
    specs: Sequence[RunSpec],
    payloads: Sequence[str | None],
    at: datetime,
    states: Sequence[str | None] = (),
    ends: Sequence[PodEnd | None] = (),
) -> tuple[RunResult, ...]:
    """One result for each spec. Payload i belongs to spec i: JSON text, or None.

    A payload that is missing, broken or of another run becomes a failed result at time `at`. `states`: task states of
    the pods, for the message; `ends`: the ends of failed pods. A result written while the cluster took the node away
    does not count. Raises ValueError when there are more payloads than specs, which would be lost.
    """
    if len(payloads) > len(specs):
        raise ValueError(f"{len(payloads)} payloads for {len(specs)} planned runs: pass one payload for each run")
    return tuple(
        _result(spec, payload, state, end, at)
        for spec, payload, state, end in islice(zip_longest(specs, payloads, states, ends), len(specs))
    )


def _result(spec: RunSpec, payload: str | None, state: str | None, end: PodEnd | None, at: datetime) -> RunResult:
    failed = partial(failed_result, spec, at=at)
    if end and (payload is None or (end.kind in INFRASTRUCTURE and end.kind not in BESIDES_THE_PROGRAM)):
        return failed(status=end.status, kind=end.kind, message=end.message, phase=Phase.LAUNCH)
    if payload is None:
        ended = f"its task ended as '{state}'" if state else "the state of its task is not known"
        message = f"the run on node '{spec.identity.node}' gave no result; {ended}: read the pod's log"
        return failed(status=Status.INCOMPLETE, kind="no_result", message=message, phase=Phase.LAUNCH)
    try:
        result = parse_result(payload)
    except ContractError as error:
        return failed(status=Status.ERROR, kind="invalid_result", message=str(error), phase=Phase.REPORT)
    if foreign := mismatch(spec, result):
        return failed(status=Status.ERROR, kind="foreign_result", message=foreign, phase=Phase.REPORT)
    if end and end.kind is EndKind.OUT_OF_MEMORY and result.error:  # the program saw only a SIGKILL
        told = result.error.model_copy(update={"kind": end.kind.value, "message": end.message})
        return result.model_copy(update={"error": told})
    return result


def mismatch(spec: RunSpec, result: RunResult) -> str | None:
    """Why `result` is not the result of `spec`; None when it is. The result's own spec must be equal."""
    own, asked = result.spec.identity, spec.identity
    if own.run_id != asked.run_id:
        return f"this is the result of run '{own.run_id}', not of '{asked.run_id}': it is not counted"
    if own.node != asked.node:
        return f"the result of run '{asked.run_id}' names node '{own.node}', not '{asked.node}': it is not counted"
    planned, echoed = _settings(spec), _settings(result.spec)
    differing = [name for name in planned if echoed[name] != planned[name]]
    if not differing:
        return None
    values = ", ".join(f"{name} is {echoed[name]!r:.80}, planned {planned[name]!r:.80}" for name in differing[:5])
    return f"the result of run '{asked.run_id}' is of other work than planned: {values}: it is not counted"


def _settings(spec: RunSpec) -> dict[str, object]:
    """Field name -> value, of the spec and of its parts."""
    fields = dict(spec)
    parts = [fields.pop(name) for name in ("identity", "work", "placement", "measurement")]
    return {name: value for part in (fields.items(), *parts) for name, value in part}

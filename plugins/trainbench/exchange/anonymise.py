"""Removes the names of the owner's machines from a result; all measurements stay."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from bench_image.contract.result import RunResult
from bench_image.contract.result_sections import Context
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import DiskData

CAMPAIGN, HOST = "published", "left-out"
LEFT_OUT = "left out when the result was exported"
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b(?:[0-9a-f]{1,4}:){4,7}[0-9a-f]{1,4}\b", re.IGNORECASE)
_UUID = re.compile(r"\b(?:GPU|MIG)-[0-9a-f-]{8,}\b", re.IGNORECASE)


def anonymised(result: RunResult) -> RunResult:
    """The result with numbered nodes, without pod, host, UUIDs, registry and folders, in fields and in texts."""
    names = {
        name: f"node-{number}"
        for number, name in enumerate((result.spec.identity.node, *result.spec.identity.peers), 1)
    }
    spec = _spec(result.spec, names)
    missing = dict(result.missing)
    context = result.context and _context(result.context, spec.identity.node, missing)
    gpus = tuple(gpu.model_copy(update={"uuid": None}) for gpu in result.telemetry.gpus)
    ranks = tuple(rank.model_copy(update={"gpu_uuid": None}) for rank in result.ranks)
    missing |= dict.fromkeys(("telemetry.gpus.*.uuid", "ranks.*.gpu_uuid"), LEFT_OUT)
    plain = result.model_copy(
        update={
            "spec": spec,
            "context": context,
            "telemetry": result.telemetry.model_copy(update={"gpus": gpus}),
            "ranks": ranks,
            "missing": missing,
        }
    )
    return _without_names(plain, {**dict.fromkeys(_others(result), HOST), **names})


def _others(result: RunResult) -> Iterator[str]:
    """Pod, hosts, GPU UUIDs, folders and campaign: other names that messages may contain."""
    context, spec = result.context, result.spec
    if context:
        yield from filter(None, (context.pod, context.hostname, context.node))
    yield from filter(None, (gpu.uuid for gpu in context.gpus) if context else ())
    if isinstance(spec.work.data, DiskData):
        yield spec.work.data.folder
    if spec.work.weights.startswith("/"):
        yield spec.work.weights
    yield spec.identity.campaign_id


def _spec(spec: RunSpec, names: dict[str, str]) -> RunSpec:
    own = spec.identity
    identity = {
        "campaign_id": CAMPAIGN,
        "node": names[own.node],
        "peers": tuple(names[peer] for peer in own.peers),
        "run_id": f"{own.group_id}-{names[own.node]}-r{own.round}"[:200],
    }
    work: dict[str, Any] = {}
    if isinstance(spec.work.data, DiskData):
        work["data"] = spec.work.data.model_copy(update={"folder": _folder(spec.work.data.folder)})
    if spec.work.weights.startswith("/"):
        work["weights"] = _folder(spec.work.weights)
    return spec.changed(identity=identity, work=work)


def _context(context: Context, node: str, missing: dict[str, str]) -> Context:
    missing |= dict.fromkeys(("context.pod", "context.gpus.*.uuid"), LEFT_OUT)
    return context.model_copy(
        update={
            "node": node,
            "pod": None,
            "hostname": HOST,
            "image": context.image and context.image.rpartition("/")[2],  # the registry's address identifies its owner
            "gpus": tuple(gpu.model_copy(update={"uuid": None}) for gpu in context.gpus),
        }
    )


def _folder(path: str) -> str:
    """The last part of a path, so that results of different weights stay different."""
    return f"/{HOST}/{PurePosixPath(path).name}"


def _without_names(result: RunResult, secrets: Mapping[str, str]) -> RunResult:
    """The texts that a program or a library wrote: error, reasons, execution."""
    changes: dict[str, Any] = {"missing": {path: _plain(why, secrets) for path, why in result.missing.items()}}
    if result.error:
        changes["error"] = result.error.model_copy(update={"message": _plain(result.error.message, secrets)[:4000]})
    if result.chosen:
        execution = {name: _plain(value, secrets) for name, value in result.chosen.execution.items()}
        changes["chosen"] = result.chosen.model_copy(
            update={"why": _plain(result.chosen.why, secrets), "execution": execution}
        )
    return result.model_copy(update=changes)


def _plain(text: str, secrets: Mapping[str, str]) -> str:
    """`text` with each secret word replaced, the longest first, since a pod's name contains its node's."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(secret)}(?![A-Za-z0-9])", secrets[secret], text)
    return _UUID.sub(HOST, _ADDRESS.sub("x.x.x.x", text))

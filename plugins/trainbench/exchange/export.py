"""One result as a file for publication, the whole result without the names of its owner; and the import of such a file.

A result from outside is data: its size is bounded, each field is checked, and no path or command in it is used.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from bench_image.contract.model_shapes import EncoderDecoderShape
from bench_image.contract.result import RunResult, Status
from bench_image.contract.result_sections import Cost
from bench_image.contract.seq2seq_file import CAMPAIGN as SEQ2SEQ
from bench_image.contract.seq2seq_file import bench_name
from bench_image.contract.work import Device
from trainbench.core.formats import listing
from trainbench.core.user_error import UserError
from trainbench.exchange.result_files import ForeignFileError, contents_of, find_result_files, parse_file
from trainbench.planning.plan import identifier
from trainbench.results.artefacts import Store
from trainbench.results.campaign import IMPORTED
from trainbench.results.readings import gpu_name

CAMPAIGN, HOST = "published", "left-out"
LEFT_OUT = "left out when the result was exported"
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b(?:[0-9a-f]{1,4}:){4,7}[0-9a-f]{1,4}\b", re.IGNORECASE)
_UUID = re.compile(r"\b(?:GPU|MIG)-[0-9a-f-]{8,}\b", re.IGNORECASE)


def anonymised(result: RunResult) -> RunResult:
    """The result with numbered nodes, without pod, host, UUIDs, registry and folders, in fields and in texts."""
    own, document = result.spec.identity, result.model_dump(mode="json")
    names = {name: f"node-{number}" for number, name in enumerate((own.node, *own.peers), 1)}
    node, work, context = names[own.node], document["spec"]["work"], document["context"]
    document["spec"]["identity"] |= {
        "campaign_id": own.campaign_id if own.campaign_id == SEQ2SEQ else CAMPAIGN,
        "node": node,
        "peers": [names[peer] for peer in own.peers],
        "run_id": f"{own.group_id}-{node}-r{own.round}"[:200],
    }
    hidden = [own.campaign_id]  # what texts may contain, beside the names of nodes
    paths = [(work["data"], "folder")] if isinstance(work["data"], dict) else []
    paths += [(work, "weights")] if work["weights"].startswith("/") else []
    for holder, field in paths:
        hidden.append(holder[field])
        holder[field] = f"/{HOST}/{PurePosixPath(holder[field]).name}"  # the name keeps different weights different
    gpus, missing = document["telemetry"]["gpus"], ["telemetry.gpus.*.uuid", "ranks.*.gpu_uuid"]
    if context:
        hidden += [context["pod"], context["hostname"], context["node"], *(gpu["uuid"] for gpu in context["gpus"])]
        gpus, missing = [*gpus, *context["gpus"]], [*missing, "context.pod", "context.gpus.*.uuid"]
        image = context["image"] and context["image"].rpartition("/")[2]  # the registry's address identifies its owner
        context |= {"node": node, "pod": None, "hostname": HOST, "image": image}
    for gpu in gpus:
        gpu["uuid"] = None
    for rank in document["ranks"]:
        rank["gpu_uuid"] = None
    document["missing"] |= dict.fromkeys(missing, LEFT_OUT)
    # The texts that a program or a library wrote.
    secrets = dict.fromkeys(filter(None, hidden), HOST) | names
    written = [document["missing"]]
    if chosen := document["chosen"]:
        written.append(chosen["execution"])
        chosen["why"] = _plain(chosen["why"], secrets)
    for texts in written:
        texts |= {name: _plain(text, secrets) for name, text in texts.items()}
    return RunResult.model_validate(document)


def _plain(text: str, secrets: Mapping[str, str]) -> str:
    """`text` with each secret word replaced, the longest first, since a pod's name contains its node's."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(secret)}(?![A-Za-z0-9])", secrets[secret], text)
    return _UUID.sub(HOST, _ADDRESS.sub("x.x.x.x", text))


class ExportError(UserError, ValueError):
    """The result cannot be published; the message has the cause and the remedy."""


def published(result: RunResult) -> RunResult:
    """The result without its price, which is confidential and applies to its owner only. Raises ExportError for a run
    without figures and for a drill.
    """
    run_id = result.spec.identity.run_id
    if result.status is not Status.OK:
        raise ExportError(f"run {run_id} ended as {result.status.value}: there is nothing to publish or to compare")
    if result.spec.drill:
        raise ExportError(f"run {run_id} is a drill: it was slowed on purpose, choose another run")
    missing = {path: why for path, why in result.missing.items() if path.split(".")[0] != "cost"}
    return result.model_copy(update={"cost": Cost(), "missing": missing | {"cost": "a price is the reader's own"}})


def imported_result(content: bytes) -> RunResult:
    """The published result in a campaign of its own, whose id depends on the result alone. Raises ExportError,
    ForeignFileError and ContractError, for any content.
    """
    found = parse_file(content)
    if not isinstance(found, RunResult):
        raise ForeignFileError("no result of trainbench; `trainbench export` writes one, and `compare` reads this file")
    result = published(found)
    text = result.model_dump_json(exclude={"spec": {"identity": {"campaign_id"}}})
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    work = result.spec.work
    name = f"{IMPORTED}{gpu_name(result) or work.device.value}-{work.name}"
    campaign_id = f"{identifier(name, 100)}-{digest}"
    return result.model_copy(update={"spec": result.spec.changed(identity={"campaign_id": campaign_id})})


def file_name(result: RunResult) -> str:
    """File name without extension: "nvidia-h200-x1-mistral-7b-qlora-8x512-2026-11-21"; an encoder-decoder has the name
    of its bench file.
    """
    work, placement = result.effective_spec.work, result.spec.placement
    if work.own_job:
        what = work.name
    elif isinstance(work.shape, EncoderDecoderShape):
        return bench_name(result)
    else:
        what = f"{work.model}-{work.recipe}-{work.samples_per_micro_step}x{work.seq_length}"
    where = f"{gpu_name(result) or 'cpu'}-x{0 if work.device is Device.CPU else placement.world_size}"
    return identifier(f"{where}-{what}-{result.started_at:%Y-%m-%d}", 120)


def choose_result(source: str, run_id: str | None, store: Store) -> RunResult:
    """The one result of `source`, or that of `run_id`. Raises StoreError and ExportError."""
    found, broken = contents_of(find_result_files([source], store))
    results = [content for _, content in found if isinstance(content, RunResult)]
    if not results:
        why = f": {listing(file.reason for file in broken)}" if broken else ""
        raise ExportError(f"'{source}' holds no readable result of trainbench{why}")
    wanted = [result for result in results if run_id in (None, result.spec.identity.run_id)]
    if len(wanted) == 1:
        return wanted[0]
    known = listing((result.spec.identity.run_id for result in results), most=8)
    if not wanted:
        raise ExportError(f"'{source}' has no run '{run_id}': choose from {known}")
    raise ExportError(f"'{source}' has {len(wanted)} results: choose one by --run, of {known}")


def export_file(result: RunResult, *, with_names: bool) -> tuple[str, str]:
    """Name and content of the file for publication. Raises ExportError."""
    if result.spec.work.own_job and not with_names:
        raise ExportError(
            f"run {result.spec.identity.run_id} is a command of your own: the command, its folder and its environment "
            "tell who you are. Publish it with them by --with-names, once you have read them in its result.json"
        )
    shown = published(result) if with_names else anonymised(published(result))
    return f"{file_name(shown)}.json", shown.model_dump_json(indent=1) + "\n"

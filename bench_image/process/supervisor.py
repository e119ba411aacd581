"""The pod's first process: starts the ranks, waits with a deadline, cleans up, and always writes a result.

It imports no torch, so that a broken training stack becomes a result with that error.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bench_image.contract.flops import num_lora_parameters
from bench_image.contract.frozen import ContractError, fields_of
from bench_image.contract.options import DEEPSPEED, SINGLE_GPU, Strategy
from bench_image.contract.parse import explain
from bench_image.contract.pod_io import ALLOCATOR_ENV, OUTPUT_DIR_ENV, RESULT_FILE, SPEC_ENV
from bench_image.contract.preset_switches import grows_segments
from bench_image.contract.result import Phase, RunResult, Status, failed_result
from bench_image.contract.result_sections import GpuTelemetry
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Device
from bench_image.data.atomic_file import write_atomic
from bench_image.parallel.file_barrier import arrive
from bench_image.parallel.visible_gpus import rank_environments
from bench_image.process.children import Child, run_all
from bench_image.process.exit_codes import RANK_EXITS_FILE, read_exit_codes
from bench_image.process.meeting import LOOPBACK, meeting
from bench_image.process.merge import merge
from bench_image.process.own_job import run_own_job
from bench_image.process.parent_death import PARENT_ENV, process_start
from bench_image.process.rank_report import STARTED_ENV, RankReport, read_reports, remove_earlier_run
from bench_image.telemetry.gpu_watch import GpuWatch, Watched, with_watch

ENDED_EARLY = "the rank ended before it read its GPUs"
TERMINATION_LOG = Path("/dev/termination-log")
OFFLINE = {"HF_HUB_OFFLINE": "1"}  # a request to a hub that is not needed would cost seconds
GROWING = {ALLOCATOR_ENV: "expandable_segments:True"}
# Without these ways NCCL uses host memory between the GPUs of a host, and the network between hosts: no direct access
# between GPUs by NVLink or PCIe, none between hosts of one NVLink domain, no reduction in NVLink's switches
# (https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html).
INNER_LINK_OFF = {"NCCL_P2P_DISABLE": "1", "NCCL_MNNVL_ENABLE": "0", "NCCL_NVLS_ENABLE": "0"}
QUIET = {
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONWARNINGS": "ignore",
    "PYTHONUNBUFFERED": "1",
}


def supervise(spec: RunSpec, output: Path, environ: Mapping[str, str]) -> RunResult:
    """Runs the spec to its end, at most `timeout_s` and a few seconds. Raises OSError if `output` cannot be written."""
    started = process_start()
    started_at = datetime.fromtimestamp(started, UTC)
    output.mkdir(parents=True, exist_ok=True)
    remove_earlier_run(output, (RESULT_FILE, RANK_EXITS_FILE))
    if spec.work.own_job:
        return run_own_job(spec, environ)
    try:
        children = children_of(spec, output, environ, started)
    except ContractError as error:
        return failed_result(
            spec, status=Status.ERROR, kind="ContractError", message=str(error), phase=Phase.LAUNCH, at=started_at
        )
    watch = GpuWatch(spec.work.device)
    remaining_s = spec.timeout_s - (time.time() - started)
    exits = run_all(children, remaining_s, ended=lambda rank: arrive(output, rank))
    watched = watch.end()
    try:
        # Broken figures of an independent rank are its own. torchrun is one process here; it noted who failed first.
        is_independent = spec.placement.strategy is Strategy.INDEPENDENT
        reports = watched_reports(read_reports(output, skip_broken=is_independent), watched)
        ends = exits if is_independent else exits._replace(codes=read_exit_codes(output) or exits.codes)
        return merge(spec, reports, ends, started_at, datetime.now(UTC))
    except ValidationError as error:  # a figure outside of its bounds, e.g. because a clock was set meanwhile
        message = f"the ranks' figures break the contract: {explain(error)}"
        return failed_result(
            spec, status=Status.ERROR, kind="broken_figures", message=message, phase=Phase.REPORT, at=started_at
        )


def watched_reports(reports: Sequence[RankReport], watched: Watched) -> tuple[RankReport, ...]:
    """The reports with the fields of `gpu_watch`. A rank that ended before it read its GPUs gets a row for its own GPU
    if that reported an Xid: it may be why the rank ended.
    """
    seen = []
    for report in reports:
        gpus, missing = list(report.gpus), dict(report.missing)
        if not gpus and watched(report.gpu_uuid).fields["xids"]:
            unread: dict[str, Any] = dict.fromkeys(fields_of(GpuTelemetry))
            gpus = [GpuTelemetry(**unread | {"index": 0, "uuid": report.gpu_uuid, "num_samples": 0})]
            missing["telemetry.gpus.0"] = ENDED_EARLY
        rows = with_watch(gpus, watched, missing)
        seen.append(report.model_copy(update={"gpus": rows, "missing": missing}))
    return tuple(seen)


def publish(result: RunResult, output: Path) -> None:
    """Writes the result to the output folder, and a failure's cause for Kubernetes."""
    write_termination_message(result, TERMINATION_LOG)
    write_atomic(output / RESULT_FILE, result.model_dump_json())


def children_of(spec: RunSpec, output: Path, environ: Mapping[str, str], started: float) -> list[Child]:
    """The processes to start: one, or one for each independent rank. Raises ContractError as `command` does."""
    arguments, common = command(spec, environ), rank_environment(spec, output, environ, started)
    if spec.placement.strategy is not Strategy.INDEPENDENT:
        return [Child(arguments, common)]
    return [Child(arguments, common | own) for own in rank_environments(spec, environ)]


def command(spec: RunSpec, environ: Mapping[str, str]) -> list[str]:
    """The command line of the process to start: the worker itself, or torchrun around several workers.

    Raises ContractError for a spec that no rank could run: unknown model, unknown LoRA targets, no rendezvous address.
    """
    shape = spec.work.shape  # raises for an unknown model
    if spec.work.lora:
        num_lora_parameters(shape, spec.work.lora)  # raises for unknown targets
    if spec.placement.strategy in SINGLE_GPU:
        return [sys.executable, "-m", "bench_image.process.worker"]
    torchrun = [
        sys.executable,
        "-m",
        "bench_image.process.torchrun",
        f"--nproc-per-node={spec.placement.gpus_per_node}",
        "--max-restarts=0",
    ]
    if spec.placement.nodes == 1:
        rendezvous = ["--standalone", f"--local-addr={LOOPBACK}"]
    else:
        rank, address, port = meeting(spec.placement.nodes, environ).values()
        rendezvous = [
            f"--nnodes={spec.placement.nodes}",
            f"--node-rank={rank}",
            f"--master-addr={address}",
            f"--master-port={port}",
        ]
    return [*torchrun, *rendezvous, "-m", "bench_image.process.worker"]


def rank_environment(spec: RunSpec, output: Path, environ: Mapping[str, str], started: float) -> dict[str, str]:
    """The environment of the ranks: quiet libraries, the spec, and the time at which the supervisor started."""
    result = QUIET | ({} if spec.work.needs_hub else OFFLINE) | (GROWING if grows_segments(spec) else {})
    result |= dict(environ) | {
        SPEC_ENV: spec.model_dump_json(),
        OUTPUT_DIR_ENV: str(output.resolve()),
        STARTED_ENV: repr(started),
        PARENT_ENV: str(os.getpid()),
    }
    if spec.link_sweep and not spec.link_sweep.inner_link:
        result |= INNER_LINK_OFF
    if spec.placement.strategy is Strategy.SINGLE:
        result |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    if spec.work.device is Device.CPU:
        # Threads that wait for each other spin, and spinning counts as CPU time.
        result.setdefault("OMP_NUM_THREADS", "1")
    if spec.placement.strategy in DEEPSPEED:
        result.setdefault("DS_ACCELERATOR", spec.work.device.value)  # else it would use any GPU it sees
    return result


def write_termination_message(result: RunResult, path: Path) -> None:
    """Writes the cause of a failure as one line for `kubectl describe pod`, where Kubernetes offers a file for it."""
    if result.error is None or not os.access(path, os.W_OK):
        return
    cause = f"{result.status.value}: {result.error.kind}: {result.error.message}"
    path.write_text(" ".join(cause.split())[:1000] + "\n")

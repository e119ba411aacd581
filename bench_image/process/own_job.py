"""Runs a training command of the user's own beside our sampler, and makes a RunResult of its log.

What only our loop knows, such as probes and FLOPs, is null with that reason.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import resource
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from pydantic import ValidationError

from bench_image.contract.consistency import unexplained_nulls
from bench_image.contract.frozen import ContractError
from bench_image.contract.own_job import OwnJob, choose_profiles, parse_profiles
from bench_image.contract.parse import explain
from bench_image.contract.pod_io import HOST_PYTHONPATH_ENV, PROFILES_ENV
from bench_image.contract.result import Chosen, Phase, RunError, RunResult, Status, failed_result
from bench_image.contract.result_lines import MARK
from bench_image.contract.result_sections import (
    Context,
    GpuTelemetry,
    HostTelemetry,
    Memory,
    Performance,
    Startup,
    Telemetry,
    Window,
)
from bench_image.contract.spec import RunSpec
from bench_image.contract.step_stats import half_width_pct, step_time
from bench_image.contract.work import Device
from bench_image.parallel.visible_gpus import VISIBLE, visible_gpus
from bench_image.process.children import Child, run_all
from bench_image.process.exit_codes import ProcessExits, signal_name
from bench_image.process.job_log import JobLog, Speed
from bench_image.process.meeting import meeting
from bench_image.process.merge import HINTS, PRICED_LATER
from bench_image.process.parent_death import process_start
from bench_image.telemetry.environment import read_context
from bench_image.telemetry.gpu_watch import GpuWatch, used_bytes, with_watch
from bench_image.telemetry.sampler import Sampler
from bench_image.telemetry.unmeasured_gpus import TorchGpu

OURS = "a command of the user's own has none of our loop"
NO_SPEED = "the command ended with exit code 0, but its log has no speed"
CHUNK_BYTES = 65_536
SEGMENT_S = (
    1.0  # the sampler's windows are closed at lines that are so far apart: what comes after the last is left out
)
LOG_EVERY_S = 3.0
PIPE_S = 2.0  # for the last lines, after the command has ended
NUM_WINDOWS = 3
MAX_BATCH = 65_536
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


class Heard(NamedTuple):
    """All that was seen of a run. `sampled_s`: in which the GPUs' energy was counted, between measured lines; 0 where
    these came within a second. `memory_bytes`: the most in use on one GPU, or by one process.
    """

    log: JobLog
    exits: ProcessExits
    context: Context
    gpus: tuple[GpuTelemetry, ...]
    host: HostTelemetry
    sampled_s: float
    memory_bytes: int | None
    started: float
    ended: float


def run_own_job(spec: RunSpec, environ: Mapping[str, str]) -> RunResult:
    """Runs the spec's command to its end, at most `timeout_s` and a few seconds; none of its processes is left."""
    started = process_start()
    failed = partial(failed_result, spec, status=Status.ERROR, phase=Phase.LAUNCH, at=datetime.now(UTC))
    job = spec.work.own_job
    assert job is not None, "the caller has looked"
    try:
        own = (
            parse_profiles(environ[PROFILES_ENV], "the log profiles of this installation")
            if environ.get(PROFILES_ENV)
            else ()
        )
        log = JobLog(choose_profiles(job.profile, own), job, spec.placement.world_size)
        child = _child(spec, job, environ)
    except ContractError as error:
        return failed(kind="ContractError", message=str(error))
    try:
        missing: dict[str, str] = {}
        heard = _listen(spec, log, child, started, missing)
        return result_of(spec, heard, missing)
    except OSError as error:  # no program, though it was there a moment ago; or no process can be started
        return failed(kind="command_not_started", message=f"{child.arguments[0]} could not be started: {error}")
    except ValidationError as error:  # a log that tells of more seconds than the run had, or of impossible numbers
        message = f"the figures of the log break the contract: {explain(error)}; last lines:\n{log.tail}"
        return failed(kind="broken_figures", message=message[:4000])


def _child(spec: RunSpec, job: OwnJob, environ: Mapping[str, str]) -> Child:
    """The command with its environment and folder. Raises ContractError for one that is not there."""
    own = {
        name: value for name, value in environ.items() if not name.startswith("TRAINBENCH_") and name != "PYTHONPATH"
    }
    if environ.get(HOST_PYTHONPATH_ENV):
        own["PYTHONPATH"] = environ[HOST_PYTHONPATH_ENV]
    own = (
        {"PYTHONUNBUFFERED": "1"} | own | dict(each.split("=", 1) for each in job.environment)
    )  # else a script's lines arrive in heaps
    if spec.work.device is Device.CUDA and VISIBLE in own:
        own[VISIBLE] = ",".join(own[VISIBLE].split(",")[: spec.placement.gpus_per_node])
    placement = spec.placement
    rank, address, port = meeting(placement.nodes, environ).values()
    arguments = job.arguments(
        gpus=placement.gpus_per_node,
        node=spec.identity.nodes[int(rank)],
        nodes=placement.nodes,
        node_rank=rank,
        master_addr=address,
        master_port=port,
    )
    folder = job.folder
    if folder is not None and not Path(folder).is_dir():
        raise ContractError(f"job_folder {folder:.200} is no folder here: give one that is there")
    program = str(Path(folder or "", arguments[0])) if "/" in arguments[0] else arguments[0]
    if shutil.which(program, path=own.get("PATH")) is None:
        raise ContractError(f"the command {arguments[0]!r:.200} was not found: install it, or give its path")
    return Child(arguments, own, folder)


def _listen(spec: RunSpec, log: JobLog, child: Child, started: float, missing: dict[str, str]) -> Heard:
    """Runs the command and follows its log, while the sampler reads between measured lines."""
    with contextlib.suppress(OSError, AttributeError):  # Linux: what the command leaves behind becomes our child
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    device = spec.work.device
    gpus = visible_gpus(child.environ)[: spec.placement.gpus_per_node] if device is Device.CUDA else ()
    context, reasons = read_context(spec.identity.node, device, gpus)
    context = context.model_copy(update={"libraries": {}})  # ours are not those of the command
    missing |= {f"context.{path}": reason for path, reason in reasons.items()}
    sampler, watch = Sampler(device, gpus, spec.telemetry_interval_s), GpuWatch(device)
    sampler.start()
    ear = _Ear(log, sampler, gpus)
    reading, writing = os.pipe()
    thread = threading.Thread(target=ear.follow, args=(reading,), name="log", daemon=True)
    thread.start()
    try:
        remaining_s = spec.timeout_s - (time.time() - started)
        exits = run_all([child._replace(output=writing)], remaining_s, cutting=log.keep_tail)
    finally:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        os.close(writing)
        thread.join(PIPE_S)
    ended = time.time()
    if ear.sampled_s:
        sampler.forget()
    telemetry, host, reasons = sampler.stop()
    missing |= {f"telemetry.{path}": reason for path, reason in reasons.items()}
    telemetry = with_watch(telemetry, watch.end(), missing)
    memory_bytes = ear.most_bytes if gpus else resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return Heard(log, exits, context, telemetry, host, ear.sampled_s, memory_bytes, started, ended)


class _Ear:
    """Follows the log in a thread: passes each line on, and opens the sampler's windows at measured lines."""

    def __init__(self, log: JobLog, sampler: Sampler, gpus: Sequence[TorchGpu]) -> None:
        self._log, self._sampler, self._gpus = log, sampler, gpus
        self._opened_at = 0.0
        self._told_at = 0.0
        self.sampled_s = 0.0
        self.most_bytes: int | None = None

    def follow(self, descriptor: int) -> None:
        with open(descriptor, "rb", buffering=0) as pipe:
            while chunk := pipe.read(CHUNK_BYTES):
                at = time.time()
                for line in self._log.lines(chunk):
                    self._take(line, at)
        for line in self._log.last_line():
            self._take(line, time.time())

    def _take(self, line: str, at: float) -> None:
        is_measured = self._log.add(line, at)
        with contextlib.suppress(OSError):  # nobody reads our output any more: the log is read all the same
            sys.stderr.write(
                f" {line}\n" if line.startswith("phase=") else f"{line.replace(f'{MARK} ', f'{MARK}: ')}\n"
            )
        if not is_measured:
            return
        if at - self._opened_at >= SEGMENT_S:
            if self._opened_at:
                self._sampler.pause()
                self.sampled_s += at - self._opened_at
            self._sampler.resume()
            self._opened_at = at
            used = [number for gpu in self._gpus if (number := used_bytes(gpu.uuid)) is not None]
            self.most_bytes = max([*used, *filter(None, [self.most_bytes])], default=None)
        if at - self._told_at >= LOG_EVERY_S:
            self._told_at = at
            sys.stderr.write(f"phase=measure step={self._log.newest}\n")


# --- the result


def result_of(spec: RunSpec, heard: Heard, missing: dict[str, str]) -> RunResult:
    speed = heard.log.speed()
    status, error = _end(spec, heard, speed)
    chosen = _chosen(spec, speed) if speed else None
    wall_s = heard.ended - heard.started
    missing |= {"cost": PRICED_LATER, "probes": OURS, "communication": OURS, "parameters": OURS}
    missing |= {f"performance.{name}": OURS for name in OF_OUR_LOOP}
    of_run = f"the run ended as {status.value}" if error else "the log does not tell"
    if speed is None and not error:
        of_run = "the log of this pod has no speed"
        missing["performance.samples_per_second"] = f"{NO_SPEED}: {heard.log.why_none}{_last_lines(heard)}"[:4000]
    performance = _performance(speed, chosen.micro_batch_size, heard) if speed and chosen else None
    measured = performance or Performance()
    # The mean power of all pods' GPUs, where those of the others draw what this pod's do: a gang has its pods' mean.
    joules = [gpu.energy_j for gpu in heard.gpus if gpu.energy_j is not None]
    power_w = None
    if joules and len(joules) == len(heard.gpus):
        power_w = math.fsum(joules) / heard.sampled_s * spec.placement.nodes if heard.sampled_s else None
        reason = "the measured lines came within a second"
        missing |= {} if power_w else {f"telemetry.energy_per_{of}_j": reason for of in ("sample", "token")}
    sections: dict[str, Any] = {
        "chosen": chosen,
        "context": heard.context,
        "startup": _startup(speed, heard.started, wall_s),
        "performance": measured,
        "memory": _memory(spec, heard),
        "telemetry": Telemetry(
            gpus=heard.gpus,
            host=heard.host,
            energy_per_sample_j=_ratio(power_w, measured.samples_per_second),
            energy_per_token_j=_ratio(power_w, measured.tokens_per_second),
        ),
        "ranks": (),
    }
    missing |= dict.fromkeys(unexplained_nulls(sections, missing), of_run)
    return RunResult(
        spec=spec,
        status=status,
        error=error,
        started_at=datetime.fromtimestamp(heard.started, UTC),
        finished_at=datetime.fromtimestamp(heard.ended, UTC),
        missing=missing,
        **sections,
    )


OF_OUR_LOOP = (
    "flops_per_token", "mfu_pct", "hfu_pct", "matmul_share_pct", "loader_wait_pct", "input_mb_per_s",
)  # fmt: skip


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _end(spec: RunSpec, heard: Heard, speed: Speed | None) -> tuple[Status, RunError | None]:
    """How the run ended: why the command ended comes before what its log lacks."""
    exits, code = heard.exits, heard.exits.codes.get(0, 0)
    phase = Phase.MEASURE if speed else Phase.WARMUP if any(r.num_lines for r in heard.log.readers) else Phase.LAUNCH
    status, kind = Status.ERROR, ""
    if exits.stopped_by:
        status, kind, message = Status.INCOMPLETE, exits.stopped_by, f"stopped by {exits.stopped_by}"
    elif exits.timed_out:
        status, kind = Status.TIMEOUT, "timeout"
        remedy = "let it make fewer steps" if heard.log.newest else "look for a hang"
        reached = f"at step {heard.log.newest}" if heard.log.newest else "before the first step"
        limit = f"the command was not done after timeout_s {spec.timeout_s:g}"
        message = f"{limit} and was ended {reached}: raise it, or {remedy}"
    elif code < 0:
        kind = signal_name(code)
        message = f"the command was killed by {kind}; {HINTS.get(kind, 'look at its log')}"
    elif code > 0:
        kind, message = "exit_code", f"the command ended with exit code {code}"
        if any(words in heard.log.tail for words in ("OutOfMemoryError", "CUDA out of memory")):
            status, kind, message = Status.OOM, "OutOfMemoryError", f"{message}, out of GPU memory"
    elif speed is None and spec.placement.nodes > 1:
        return Status.OK, None  # one pod's log is enough: `pods.gangs` looks at all of them
    elif speed is None:
        kind, message = "no_step", f"{NO_SPEED}: {heard.log.why_none}"
    elif None in speed.losses:
        status, kind, message = Status.INVALID_LOSS, "invalid_loss", "a loss in the log is NaN or infinite"
    else:
        return Status.OK, None
    return status, RunError(kind=kind, message=(message + _last_lines(heard))[:4000], phase=phase)


def _last_lines(heard: Heard) -> str:
    return f"; last lines:\n{heard.log.tail}" if heard.log.tail else "; it wrote nothing"


def _chosen(spec: RunSpec, speed: Speed) -> Chosen:
    """What was read, and by which profile. The samples of a step are those of the log where none are given."""
    asked = spec.work.micro_batch_size
    in_log = speed.samples_per_step if speed.samples_per_step and speed.samples_per_step <= MAX_BATCH else None
    samples = asked if isinstance(asked, int) else in_log or 1
    of = (
        "given" if isinstance(asked, int) else "by the log" if in_log else "not in the log: a step counts as one sample"
    )
    execution = {
        "log profile": speed.profile.name,
        "time of a step by": speed.source,
        "lines read": str(len(speed.seconds)),
        "samples of a step": f"{samples}, {of}",
    }
    return Chosen(
        micro_batch_size=samples,
        gradient_checkpointing=False,
        why="; ".join(f"{name}: {value}" for name, value in execution.items()),
        execution=execution,
    )


def _performance(speed: Speed, samples: int, heard: Heard) -> Performance:
    """Rates over all measured lines. Windows follow one another without gaps and end with the last line."""
    walls = [seconds * steps for seconds, steps in zip(speed.seconds, speed.steps, strict=True)]
    count, wall_s, num_steps = len(walls), math.fsum(walls), sum(speed.steps)
    parts = min(NUM_WINDOWS, count // 2)
    borders = [count * part // parts for part in range(parts + 1)]
    windows, left_s = [], wall_s
    for first, end in pairwise(borders):
        window_s, steps = math.fsum(walls[first:end]), sum(speed.steps[first:end])
        half_width = half_width_pct(speed.seconds[first:end])
        assert half_width is not None, "a window has at least two lines"
        windows.append(
            Window(
                started_s=max(0.0, speed.last_at - left_s - heard.started),
                wall_s=window_s,
                num_steps=steps,
                samples_per_second=steps * samples / window_s,
                half_width_pct=half_width,
                steady=False,
            )
        )
        left_s -= window_s
    losses = [loss for loss in speed.losses if loss is not None]
    return Performance(
        samples_per_second=num_steps * samples / wall_s,
        tokens_per_second=speed.tokens_per_second,
        measured_steps=num_steps,
        measured_wall_s=wall_s,
        step_time=step_time(speed.seconds),
        windows=tuple(windows),
        step_times_s=tuple(round(each, 6) for each in speed.seconds) if set(speed.steps) == {1} else (),
        mean_loss=statistics.fmean(losses) if losses and len(losses) == len(speed.losses) else None,
        first_loss=speed.losses[0] if speed.losses else None,
        last_loss=speed.losses[-1] if speed.losses else None,
    )


def _startup(speed: Speed | None, started: float, wall_s: float) -> Startup:
    if speed is None:
        return Startup(total_s=wall_s)
    return Startup(
        launch_s=max(0.0, speed.first_at - started),
        warmup_s=max(0.0, speed.warm_at - speed.first_at),
        measure_s=max(0.0, speed.last_at - speed.warm_at),
        total_s=wall_s,
    )


def _memory(spec: RunSpec, heard: Heard) -> Memory:
    if not heard.memory_bytes:
        return Memory()
    kind: Any = "gpu_used" if spec.work.device is Device.CUDA else "process_rss"
    return Memory(kind=kind, peak_during_training=heard.memory_bytes / 1e9)

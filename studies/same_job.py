"""The spec and the step times of a job that a study lets several programs do."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

from bench_image.contract.spec import Identity, RunSpec
from bench_image.contract.work import Device, Lora, Quantisation, Work

ALL_LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def job_spec(recipe: str, targets: Sequence[str] = ALL_LINEARS, **work: Any) -> RunSpec:
    """A job on one GPU; adapters on `targets`; `work`: the other fields of Work."""
    lora = Lora(targets=tuple(targets))
    quantisation = Quantisation() if recipe == "qlora" else None
    return RunSpec(
        identity=Identity(campaign_id="compare", run_id="compare", group_id="compare", node="this"),
        work=Work(recipe=recipe, lora=lora, quantisation=quantisation, device=kind(), **work),
    )


def kind() -> Device:
    return Device.CUDA if torch.cuda.is_available() else Device.CPU


def mark() -> Any:
    """This moment: an event on the GPU's stream, so that nothing waits for it; on a CPU the clock."""
    if kind() is Device.CPU:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def seconds_between(marks: Sequence[Any]) -> list[float]:
    """Of each two neighbours; waits for the GPU."""
    if kind() is Device.CPU:
        return [end - begin for begin, end in itertools.pairwise(marks)]
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) / 1e3 for begin, end in itertools.pairwise(marks)]


def tokens_per_second(tokens_per_step: int, step_s: Sequence[float]) -> float:
    """By the median step: the host delays single ones."""
    return tokens_per_step / statistics.median(step_s)

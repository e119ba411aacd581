"""Where the GPU time of a training step goes, by class of kernel: `profile_step.py SPEC.json... --output DIR`.

For each spec: builds the model, warms up, times steps without the profiler, then records a few with it. Writes one
JSON file per spec and prints a table of milliseconds per step. The classes add up to the busy time; idle is the rest of
the recorded step. `--without` leaves parts of the preset `tuned` out, to see what each is worth.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import re
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

from bench_image.contract.flops import flops_per_token
from bench_image.contract.gpu_specs import peak_tflops
from bench_image.contract.parse import parse_spec
from bench_image.contract.spec import RunSpec
from studies.run_specs import spec_file

T = TypeVar("T")
PROFILED_STEPS = 2
# masks: asking about them is left out; kernel: of the adapters; kept: 4-bit weights, from forward to backward
PARTS = ("fused", "loss", "masks", "kernel", "graph", "kept")
# The first match wins. Names are those of cuBLAS, cuDNN, flash attention, bitsandbytes, torch and inductor on CUDA 13.
CLASSES = {
    "attention": re.compile(r"flash|fmha|sdpa|attention|cudnn", re.IGNORECASE),
    "dequantise": re.compile(r"dequant|^_unpack$", re.IGNORECASE),
    "optimizer": re.compile(r"adam|optimizer|multi_tensor|lpnorm|8bit|^_update$|^_squares$", re.IGNORECASE),
    "matmul": re.compile(r"gemm|gemv|nvjet|cutlass|splitk|xmma|cublas|^_share$|^_add_up$", re.IGNORECASE),
    "loss": re.compile(r"softmax|nll|cross_entropy|log_softmax|^_losses$|^_gradients$", re.IGNORECASE),
    "copy": re.compile(r"memcpy|memset|copy_kernel|CatArray", re.IGNORECASE),
}


def class_of(kernel: str) -> str:
    """The kernel's class; kernels of no class do elementwise work: norms, rotary positions, activations, additions."""
    return next((name for name, pattern in CLASSES.items() if pattern.search(kernel)), "elementwise")


def busy_ns(intervals: list[tuple[int, int]]) -> int:
    """Length of the union of (start, end) intervals."""
    total, reached = 0, 0
    for start, end in sorted(intervals):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def kernel_times(step: Any, num_steps: int) -> dict[str, Any]:
    """Profile the next steps and return their `kernels_by_class`."""
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as recording:
        for _ in range(num_steps):
            step()
        torch.cuda.synchronize()
    return kernels_by_class(recording, num_steps)


def kernels_by_class(recording: Any, num_steps: int) -> dict[str, Any]:
    """Milliseconds per step by class, the 40 longest kernels, and the time in which the GPU did nothing."""
    by_class: dict[str, float] = defaultdict(float)
    by_kernel: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    intervals = []
    for event in recording.profiler.kineto_results.events():
        if event.device_type() != torch.autograd.DeviceType.CUDA or event.duration_ns() == 0:
            continue
        by_class[class_of(event.name())] += event.duration_ns() / 1e6 / num_steps
        entry = by_kernel[event.name()[:160]]
        entry[0] += event.duration_ns() / 1e6 / num_steps
        entry[1] += 1 / num_steps
        intervals.append((event.start_ns(), event.start_ns() + event.duration_ns()))
    span = max(end for _, end in intervals) - min(start for start, _ in intervals)
    longest = sorted(by_kernel.items(), key=lambda item: -item[1][0])[:40]
    return {
        "ms_per_step": dict(sorted(by_class.items(), key=lambda item: -item[1])),
        "idle_ms_per_step": (span - busy_ns(intervals)) / 1e6 / num_steps,
        "kernels_per_step": len(intervals) / num_steps,
        "kernels": [{"name": name, "ms": ms, "calls": calls} for name, (ms, calls) in longest],
    }


def timed(step: Any, num_steps: int) -> list[float]:
    """Seconds of each step by events, without waiting in between."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(num_steps + 1)]
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) / 1e3 for begin, end in itertools.pairwise(events)]


def mfu_pct(spec: RunSpec, tokens_per_second: float) -> float | None:
    """By the formulas of `sizing`, against the GPU table; None for a GPU that is not in it, or an unknown model."""
    peak = peak_tflops(torch.cuda.get_device_name(), spec.work.precision)
    work = flops_per_token(
        spec.work.shape,
        spec.work.recipe,
        spec.work.seq_length,
        spec.work.lora,
        spec.work.gradient_checkpointing is True,
    )
    return 100 * tokens_per_second * work.model / (peak * 1e12) if peak and work else None


def leave_out(parts: list[str]) -> None:
    """Switches off parts of `tuned` for the rest of this process."""
    from bench_image.kernels import lora_grad
    from bench_image.model import compile as tune
    from bench_image.training import train_step

    if "fused" in parts:
        tune.uses_fused_lora = lambda *_: False
    if "loss" in parts:
        tune.compile_loss = lambda *_: None
    if "masks" in parts:
        tune.leave_masks_out = lambda *_: None
    if "kernel" in parts:
        lora_grad.suits = lambda *_: False
    if "graph" in parts:
        train_step.uses_cuda_graph = lambda *_: False
    if "kept" in parts:
        train_step.keeps_unpacked = lambda *_: False


def finished(work: Callable[[], T]) -> tuple[T, float]:
    """Return the value of `work`, and the seconds until the GPU has done it."""
    begin = time.perf_counter()
    made = work()
    torch.cuda.synchronize()
    return made, time.perf_counter() - begin


def profiled(spec: RunSpec) -> dict[str, Any]:
    """Throughput and profile of one spec in this process."""
    from bench_image.model.build import build
    from bench_image.parallel.process_group import ProcessGroup
    from bench_image.training.execution import describe_execution
    from bench_image.training.train_step import TrainStep

    torch.compiler.reset()
    torch.cuda.reset_peak_memory_stats()
    device = torch.device("cuda", 0)
    step, build_s = finished(lambda: TrainStep(spec, build(spec, device), ProcessGroup(device)))
    _, first_step_s = finished(step)
    timed(step, spec.measurement.warmup_steps)
    losses = [step().item()]
    seconds = timed(step, spec.measurement.measured_steps)
    losses.append(step().item())
    tokens = spec.samples_per_step * spec.work.seq_length
    mean_s = sum(seconds) / len(seconds)
    result = {
        "spec": spec.model_dump(mode="json"),
        "execution": describe_execution(step),
        "mfu_pct": mfu_pct(spec, tokens / mean_s),
        "tokens_per_second": tokens / mean_s,
        "step_s": seconds,
        "losses": losses,
        "peak_allocated_gb": torch.cuda.max_memory_allocated() / 1e9,
        "build_s": build_s,
        "first_step_s": first_step_s,
        "compile_s": first_step_s - mean_s,
        "profile": kernel_times(step, PROFILED_STEPS),
    }
    step.close()
    del step
    gc.collect()
    torch.cuda.empty_cache()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("specs", nargs="+", type=spec_file, help="RunSpec JSON files, strategy single")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--without", nargs="*", choices=PARTS, default=[])
    arguments = parser.parse_args()
    leave_out(arguments.without)
    arguments.output.mkdir(parents=True, exist_ok=True)
    for path in arguments.specs:
        try:
            result = profiled(parse_spec(path.read_text()))
        except torch.OutOfMemoryError as error:
            print(f"{path.stem}: out of memory: {error}")
            continue
        name = "-without-".join([path.stem, *arguments.without])
        (arguments.output / f"{name}.json").write_text(json.dumps(result, indent=1))
        classes = {**result["profile"]["ms_per_step"], "idle": result["profile"]["idle_ms_per_step"]}
        table = "  ".join(f"{name} {ms:.1f}" for name, ms in classes.items())
        print(f"{name}: {result['tokens_per_second']:.0f} tokens/s; ms per step: {table}")


if __name__ == "__main__":
    main()

"""Trains a few steps of many configurations on this machine's GPU and writes down the peak memory of each.

The evidence behind `bench_image.contract.memory_estimate`; `docs/internals/sizing.md` compares. Needs the training
stack and one NVIDIA GPU:

    python3 studies/measure_peaks.py OUTPUT.json             all of them
    python3 studies/measure_peaks.py OUTPUT.json 1 4         every fourth, beginning with number 1: one GPU's share of 4
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from pathlib import Path
from typing import Any

import torch

from bench_image.contract.flops import lora_targets
from bench_image.contract.model_shapes import MODELS
from bench_image.contract.options import Precision, Recipe
from bench_image.contract.spec import Identity, RunSpec
from bench_image.contract.work import Lora, Preset, Quantisation, Work
from bench_image.model.build import build
from bench_image.parallel.strategies import join_group
from bench_image.training.execution import describe_execution
from bench_image.training.oom import is_out_of_memory
from bench_image.training.train_step import TrainStep

STEPS = 3  # the optimizer's states are there from the first step on
USERS, TUNED = Preset.AS_USERS_RUN, Preset.TUNED


def spec(model: str, recipe: str, preset: Preset, batch: int, seq: int, checkpointing: bool, **more: Any) -> RunSpec:
    """One configuration; LoRA adapts the attention unless `targets` says otherwise."""
    fields: dict[str, Any] = {
        "model": model, "recipe": recipe,
        "preset": preset, "micro_batch_size": batch, "seq_length": seq, "gradient_checkpointing": checkpointing,
        "optimizer": "adamw_torch" if preset is TUNED else "paged_adamw_8bit",
    }  # fmt: skip
    targets = more.pop("targets", "attention")
    if recipe != Recipe.FULL:
        fields["lora"] = Lora(targets=lora_targets(MODELS[model], targets))
    if recipe == Recipe.QLORA:
        fields["quantisation"] = Quantisation()
    return RunSpec(
        identity=Identity(campaign_id="peaks", run_id="run", group_id="group", node="gpu"), work=Work(**fields | more)
    )


def configurations() -> list[RunSpec]:
    return [*_of_mistral(), *_of_other_models()]


def _of_mistral() -> list[RunSpec]:
    return [
        spec("mistral-7b", "qlora", USERS, 8, 512, True),
        spec("mistral-7b", "qlora", USERS, 4, 1024, True),
        spec("mistral-7b", "qlora", USERS, 32, 512, True),
        spec("mistral-7b", "qlora", USERS, 8, 512, False),
        spec("mistral-7b", "qlora", TUNED, 8, 512, True),
        spec("mistral-7b", "qlora", TUNED, 8, 512, False),
        spec("mistral-7b", "qlora", TUNED, 8, 512, False, targets="all"),
        spec("mistral-7b", "qlora", TUNED, 8, 2048, False, targets="all"),
        spec("mistral-7b", "qlora", TUNED, 4, 2048, False),
        spec("mistral-7b", "qlora", TUNED, 4, 2048, False, targets="all"),
        spec("mistral-7b", "lora", USERS, 8, 512, True),
        spec("mistral-7b", "lora", USERS, 8, 512, False),
        spec("mistral-7b", "lora", TUNED, 8, 512, False, targets="all"),
        spec("mistral-7b", "lora", TUNED, 8, 2048, False, targets="all"),
        spec("mistral-7b", "lora", TUNED, 4, 2048, True),
        spec("mistral-7b", "full", USERS, 8, 2048, True),
        spec("mistral-7b", "full", TUNED, 4, 2048, True),
        spec("mistral-7b", "full", TUNED, 4, 2048, False),
    ]


def _of_other_models() -> list[RunSpec]:
    return [
        spec("llama2-7b", "lora", USERS, 4, 2048, True),
        spec("llama2-7b", "lora", TUNED, 4, 2048, False),
        spec("llama2-7b", "qlora", TUNED, 8, 512, False, targets="all"),
        spec("llama2-7b", "full", TUNED, 4, 2048, False),
        spec("llama2-13b", "lora", TUNED, 4, 2048, False),
        spec("llama2-13b", "qlora", USERS, 4, 2048, True),
        spec("llama2-13b", "full", TUNED, 1, 2048, True),
        spec("yi-34b", "qlora", USERS, 2, 2048, True),
        spec("llama2-70b", "qlora", USERS, 1, 2048, True),
        spec("mixtral-8x7b", "qlora", USERS, 2, 2048, True),
        spec("mixtral-8x7b", "lora", TUNED, 1, 2048, True),
        spec("gpt2", "full", USERS, 32, 1024, False),
        spec("gpt2-medium", "full", USERS, 16, 1024, False),
        spec("gpt2-large", "full", USERS, 8, 1024, False),
        spec("gpt2-large", "full", TUNED, 8, 1024, False),
        spec("gpt2-large", "lora", TUNED, 8, 1024, False),
        spec("gpt2-medium", "full", USERS, 8, 1024, False, precision=Precision.FP16, optimizer="adamw_torch"),
        spec("gpt2-medium", "full", USERS, 8, 1024, False, precision=Precision.FP32, optimizer="adamw_torch"),
        spec("tier-a", "full", TUNED, 1, 2048, False),
        spec("tier-b", "full", TUNED, 1, 2048, False),
        spec("tier-b", "full", USERS, 4, 2048, True, optimizer="adamw_8bit"),
        spec("encoder-decoder", "full", USERS, 512, 128, False, precision=Precision.FP16, optimizer="adamw_torch"),
        spec("encoder-decoder", "full", USERS, 512, 128, False, precision=Precision.FP32, optimizer="adamw_torch"),
    ]


def measure(work: RunSpec) -> dict[str, Any]:
    """Peak of the steps after the first, in bytes, and what happened."""
    group = join_group(work)
    row: dict[str, Any] = {"spec": work.model_dump(mode="json"), "peak_allocated_bytes": None, "error": None}
    started = time.perf_counter()
    try:
        step = TrainStep(work, build(work, group.device, group.shard), group)
        row["execution"] = describe_execution(step)
        row["build_s"] = round(time.perf_counter() - started, 2)
        step()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        begin = time.perf_counter()
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
        row["step_s"] = round((time.perf_counter() - begin) / STEPS, 4)
        row["peak_allocated_bytes"] = torch.cuda.max_memory_allocated()
    except Exception as error:
        kind = "oom" if is_out_of_memory(error) else type(error).__name__
        row["error"] = f"{kind}: {error}"[:500]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, metavar="OUTPUT.json")
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("stride", type=int, nargs="?", default=1)
    arguments = parser.parse_args()
    os.environ.setdefault("LOCAL_RANK", "0")
    rows = []
    for configuration in configurations()[arguments.first :: arguments.stride]:
        rows.append(measure(configuration))
        gc.collect()
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        row, work = rows[-1], configuration.work
        name = f"{work.model} {work.recipe} {work.preset} {work.micro_batch_size}x{work.seq_length}"
        peak = f"{row['peak_allocated_bytes'] / 1e9:.2f} GB" if row["peak_allocated_bytes"] else row["error"]
        print(f"{name} checkpointing={work.gradient_checkpointing}: {peak}", flush=True)
        gpu = torch.cuda.get_device_name()
        arguments.output.write_text(json.dumps({"gpu": gpu, "torch": torch.__version__, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()

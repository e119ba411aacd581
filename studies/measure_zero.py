"""ZeRO-3 that gathers whole layers and compiles them, beside ZeRO-3 that gathers each module, without communication.

    python3 studies/measure_zero.py OUT [--layers 12] [--turns 2] [--recipes full lora] [--device cuda]

Its python must hold the training stack and DeepSpeed. One rank of a group of one, so that one GPU shows all but the
communication: hooks, gathering, kernels and the GPU's idle time. Mistral-7B with fewer layers, 4 x 2048 tokens, fsdp
and ddp beside, step by step. Each case is a process of its own, by turns: DeepSpeed keeps memory of earlier engines.
OUT/steps.json gets a row for each.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "studies")]

from bench_image.contract.model_shapes import shape_of  # noqa: E402
from bench_image.contract.options import Optimizer, Recipe, Strategy  # noqa: E402
from bench_image.contract.spec import Identity, Measurement, Placement, RunSpec  # noqa: E402
from bench_image.contract.work import Device, Lora, Preset, Work  # noqa: E402

WAYS = {  # name -> strategy
    "by modules": Strategy.ZERO3, "by layers": Strategy.ZERO3, "fsdp": Strategy.FSDP, "ddp": Strategy.DDP,
}  # fmt: skip
FIRST_STEPS, TIMED_STEPS = 4, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--recipes", nargs="+", choices=["full", "lora"], default=["full", "lora"])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: a trial with a tiny model")
    parser.add_argument("--way", choices=list(WAYS), help="this way alone, in this process")
    arguments = parser.parse_args()
    if arguments.way:
        print(json.dumps(measured(arguments.recipes[0], arguments.way, arguments.layers, arguments.device)))
        return
    arguments.output.mkdir(parents=True, exist_ok=True)
    rows = []
    for turn in range(1, arguments.turns + 1):
        for recipe in arguments.recipes:
            for way in WAYS:
                rows.append({"turn": turn} | in_a_process(arguments, recipe, way))
                (arguments.output / "steps.json").write_text(json.dumps(rows, indent=1))
                shown = {name: rows[-1].get(name) for name in ("tokens_per_second", "losses", "error")}
                print(f"turn {turn}, {recipe}, {way}: {shown}", flush=True)


def in_a_process(arguments: argparse.Namespace, recipe: str, way: str) -> dict[str, Any]:
    """The row of a way that this program measures in a process of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    group = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, __file__, "-", "--recipes", recipe, "--way", way]
    command += ["--layers", str(arguments.layers), "--device", arguments.device]
    done = subprocess.run(command, env=os.environ | group, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"recipe": recipe, "way": way, "error": done.stderr[-2000:]}
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def measured(recipe: str, way: str, layers: int, device: str) -> dict[str, Any]:
    """Losses of the first steps; on a GPU also tokens/s, step times, and a profile of two steps."""
    from bench_image.contract import preset_switches
    from bench_image.model import build, compile
    from bench_image.parallel import deepspeed, strategies
    from bench_image.training import train_step
    from profile_step import kernel_times, timed

    spec = spec_of(recipe, WAYS[way], layers, device)
    if way == "by modules":  # as the program did it before
        for module in (preset_switches, build, compile, deepspeed):
            patch.object(module, "uses_compile", lambda _: False).start()
        for module in (build, deepspeed):
            patch.object(module, "gathers_layers", lambda _: False).start()
    patch.object(train_step, "uses_cuda_graph", lambda _: False).start()
    group = strategies.join_group(spec)
    built = build.build(spec, group.device, group.shard)
    step = train_step.TrainStep(spec, built, group)
    row: dict[str, Any] = {"recipe": recipe, "way": way, "fused": len(built.fused)}
    row["losses"] = [float(step()) for _ in range(FIRST_STEPS)]
    if device == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats()
        row["step_s"] = timed(step, TIMED_STEPS)
        row["tokens_per_second"] = 4 * 2048 * TIMED_STEPS / sum(row["step_s"])
        row["peak_allocated_bytes"] = torch.cuda.max_memory_allocated()
        row |= kernel_times(step, 2)
    step.close()
    group.close()
    return row


def spec_of(recipe: str, strategy: Strategy, layers: int, device: str) -> RunSpec:
    """As rank 0 of two; the group holds this rank alone."""
    on_gpu = device == "cuda"
    shape = shape_of("mistral-7b" if on_gpu else "tiny").model_copy(update={"num_layers": layers})
    lora = Lora(targets=("q_proj", "k_proj", "v_proj", "o_proj")) if recipe == "lora" else None
    work = Work(
        model="part-of-a-model", dimensions=shape, recipe=Recipe(recipe), preset=Preset.TUNED, lora=lora,
        optimizer=Optimizer.ADAMW_TORCH, device=Device(device), micro_batch_size=4 if on_gpu else 2,
        seq_length=2048 if on_gpu else 32, gradient_checkpointing=False,
    )  # fmt: skip
    return RunSpec(
        identity=Identity(campaign_id="zero", run_id="zero", group_id="zero", node="node-1"),
        work=work,
        placement=Placement(strategy=strategy, gpus_per_node=2),
        measurement=Measurement(),
        timeout_s=600,
    )


if __name__ == "__main__":
    main()

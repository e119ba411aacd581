"""Small models on several GPUs, with steps as CUDA graphs and, by an older program, launched kernel by kernel.

    python3 studies/measure_gang_graphs.py OUT --before TREE [--gpus 2] [--rounds 2] [--tcp]

Its python must hold the training stack. TREE is a checkout of the program to compare with. Tier A, 1 x 2048, with
accumulation 4: one GPU, then ddp and fsdp by TREE and by this program, each round in this order. `--tcp`: at last ddp
once more, with NCCL kept from the links between the GPUs, as between two hosts. OUT gets each run's spec and result,
and rates.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench_image.contract.options import Optimizer, Recipe, Strategy  # noqa: E402
from bench_image.contract.parse import parse_result  # noqa: E402
from bench_image.contract.spec import Identity, Measurement, Placement, RunSpec  # noqa: E402
from bench_image.contract.work import Preset, Work  # noqa: E402

TCP_ONLY = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}


class Turn(NamedTuple):
    """One run: by which program, by which strategy, and what its environment adds."""

    name: str
    tree: Path
    strategy: Strategy
    env: dict[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("--before", type=Path, required=True, metavar="TREE")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tcp", action="store_true")
    arguments = parser.parse_args()
    turns = [Turn("one-gpu", ROOT, Strategy.SINGLE, {})]
    for strategy in (Strategy.DDP, Strategy.FSDP):
        turns += [Turn(f"{strategy}-before", arguments.before, strategy, {}), Turn(strategy, ROOT, strategy, {})]
    rates: dict[str, list[float]] = {}
    for number in range(1, arguments.rounds + 1):
        for turn in turns:
            measure(turn, number, arguments, rates)
    if arguments.tcp:
        measure(Turn("ddp-tcp", ROOT, Strategy.DDP, TCP_ONLY), 1, arguments, rates)
    (arguments.output / "rates.json").write_text(json.dumps(rates, indent=1) + "\n")
    alone = statistics.fmean(rates["one-gpu"]) * arguments.gpus
    for name, own in rates.items():
        shares = ", ".join(f"{100 * rate / alone:.1f} %" for rate in own)
        print(f"{name}: {shares} of {arguments.gpus} x one GPU", flush=True)


def measure(turn: Turn, number: int, arguments: argparse.Namespace, rates: dict[str, list[float]]) -> None:
    """Runs the turn as a process of its own, as in a pod, and adds its tokens/s to `rates`."""
    gpus = 1 if turn.strategy is Strategy.SINGLE else arguments.gpus
    name = f"{turn.name}-{gpus}-gpus-{number}"
    folder = arguments.output / name
    folder.mkdir(parents=True, exist_ok=True)
    spec = tier_a(name, turn.strategy, gpus)
    path = folder / "spec.json"
    path.write_text(spec.model_dump_json(indent=1) + "\n")
    env = os.environ | turn.env
    env["PYTHONPATH"] = os.pathsep.join([str(turn.tree), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "bench_image", "--spec", str(path.resolve()), "--output", str(folder.resolve())]
    with (folder / "log").open("wb") as log:
        subprocess.run(command, cwd=turn.tree, env=env, stdout=log, stderr=subprocess.STDOUT, check=False)
    result = parse_result((folder / "result.json").read_bytes())
    figures, exchange = result.performance, result.communication
    rates.setdefault(turn.name, []).append(figures.tokens_per_second or 0.0)
    print(
        f"{name}: {result.status}, {figures.tokens_per_second or 0:.0f} tokens/s, "
        f"windows {[round(window.samples_per_second or 0, 2) for window in figures.windows]}, MFU {figures.mfu_pct}, "
        f"communication {exchange.total_pct}, exposed {exchange.exposed_pct}, "
        f"peak {result.memory.peak_allocated_bytes}, losses {figures.first_loss} {figures.last_loss}, "
        f"probe {result.probes.matmul_tflops} {result.error or ''}",
        flush=True,
    )


def tier_a(name: str, strategy: Strategy, gpus: int) -> RunSpec:
    fields: dict[str, Any] = {
        "model": "tier-a", "recipe": Recipe.FULL, "preset": Preset.TUNED, "optimizer": Optimizer.ADAMW_TORCH,
        "micro_batch_size": 1, "gradient_accumulation_steps": 4, "seq_length": 2048, "gradient_checkpointing": False,
    }  # fmt: skip
    return RunSpec(
        identity=Identity(campaign_id="gang-graphs", run_id=name, group_id="gang-graphs", node="h200"),
        work=Work(**fields),
        placement=Placement(strategy=strategy, gpus_per_node=gpus),
        measurement=Measurement(warmup_steps=20, measured_steps=50, max_measured_steps=50, max_window_s=8.0),
        timeout_s=180,
    )


if __name__ == "__main__":
    main()

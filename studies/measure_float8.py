"""8-bit products on one GPU, or several: their casts and layers, their losses against bf16, whole runs by turns.

    python3 studies/measure_float8.py layer OUT    one MLP of Mistral-7B: bf16, ours, and torchao's recipes if installed
    python3 studies/measure_float8.py losses OUT   on repeated batches, and on a stream that can be learnt: bf16 and fp8
    python3 studies/measure_float8.py turns OUT    whole runs of Mistral-7B 8 x 2048: bf16, fp8, bf16, fp8

Its python must hold the training stack. Losses and turns are those of full training, or with `--recipe lora` those of
LoRA on all seven linears. `turns` uses fsdp (LoRA: ddp) with `--gpus 2` or more. OUT gets layer.json, losses.json, and
each run's spec and result.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "studies")]
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])

import torch  # noqa: E402
from torch import nn  # noqa: E402

from bench_image.contract.model_shapes import MODELS  # noqa: E402
from bench_image.contract.options import Optimizer, Precision, Recipe, Strategy  # noqa: E402
from bench_image.contract.parse import parse_result  # noqa: E402
from bench_image.contract.spec import Identity, Measurement, Placement, RunSpec  # noqa: E402
from bench_image.contract.work import Lora, Preset, Work  # noqa: E402
from bench_image.kernels import float8_linear  # noqa: E402
from bench_image.kernels.float8_linear import FAST, FastAccumulation  # noqa: E402
from bench_image.model import build  # noqa: E402
from bench_image.optimizer import adamw  # noqa: E402
from run_specs import run  # noqa: E402

TOKENS, HIDDEN, INNER = 16_384, 4096, 14_336  # of Mistral-7B at 8 x 2048
TORCHAO = ("rowwise", "tensorwise", "rowwise_with_gw_hp")
STEPS, SYMBOLS, NOISE = 200, 512, 0.1
LORA = Lora(targets=tuple(MODELS["mistral-7b"].linears))
LORA_SEEDS = range(5)  # the step at which LoRA's loss begins to fall depends on the weights
LORA_LEARNING_RATE = 1e-3  # adapters of a model with random weights learn little at the program's own rate
ACCUMULATIONS = {
    "all": FastAccumulation(out=True, grad_x=True, grad_weight=True),
    "all but the weight gradient": FastAccumulation(out=True, grad_x=True, grad_weight=False),
    "out": FastAccumulation(out=True, grad_x=False, grad_weight=False),
    "none": FastAccumulation(out=False, grad_x=False, grad_weight=False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["layer", "losses", "turns"])
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("--recipe", type=Recipe, choices=[Recipe.FULL, Recipe.LORA], default=Recipe.FULL)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, help="of one window, so that the last losses of all runs compare")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    if arguments.what == "turns":
        turns(arguments.output, arguments.recipe, arguments.gpus, arguments.rounds, arguments.steps)
        return
    if arguments.what == "losses":
        losses(arguments.output / "losses.json", arguments.recipe)
        return
    (arguments.output / "layer.json").write_text(json.dumps(layer(), indent=1) + "\n")


def make_spec(name: str, recipe: Recipe, precision: Precision, gpus: int = 1, **work: Any) -> RunSpec:
    fields: dict[str, Any] = {
        "model": "mistral-7b", "recipe": recipe, "lora": LORA if recipe is Recipe.LORA else None,
        "preset": Preset.TUNED, "optimizer": Optimizer.ADAMW_TORCH, "precision": precision,
        "micro_batch_size": 8, "seq_length": 2048, "gradient_checkpointing": False,
    }  # fmt: skip
    strategy = Strategy.DDP if recipe is Recipe.LORA else Strategy.FSDP
    placement = Placement(strategy=strategy, gpus_per_node=gpus) if gpus > 1 else Placement()
    return RunSpec(
        identity=Identity(campaign_id="float8", run_id=name, group_id=name, node="h200"),
        work=Work(**fields | work),
        placement=placement,
        measurement=Measurement(warmup_steps=6, measured_steps=50, max_measured_steps=50, max_window_s=5.0),
        timeout_s=180,
    )


# Whole runs


def turns(output: Path, recipe: Recipe, gpus: int, rounds: int, steps: int | None) -> None:
    """Each run is a process of its own, as in a pod; runs of one precision share a compile cache."""
    with tempfile.TemporaryDirectory() as caches:
        for number in range(1, rounds + 1):
            for precision in (Precision.BF16, Precision.FP8):
                kind = f"lora-{precision}" if recipe is Recipe.LORA else precision
                name = f"{kind}-{gpus}-gpus-{f'{steps}-steps-' if steps else ''}{number}"
                spec = make_spec(name, recipe, precision, gpus)
                if steps:
                    exactly = {"measured_steps": steps, "max_measured_steps": steps, "repeats": 1, "max_window_s": 90.0}
                    spec = spec.changed(measurement=exactly)
                _turn(spec, output, Path(caches))


def _turn(spec: RunSpec, output: Path, caches: Path) -> None:
    folder = output / spec.identity.run_id
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{spec.identity.run_id}.json"
    path.write_text(spec.model_dump_json(indent=1) + "\n")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(caches / spec.work.precision / "inductor")
    os.environ["TRITON_CACHE_DIR"] = str(caches / spec.work.precision / "triton")
    run(path, folder)
    result = parse_result((folder / "result.json").read_bytes())
    figures = result.performance
    print(
        f"{spec.identity.run_id}: {result.status.value}, {figures.tokens_per_second or 0:.0f} tokens/s, "
        f"windows {[round(w.samples_per_second, 3) for w in figures.windows]}, MFU {figures.mfu_pct}, "
        f"peak {result.memory.peak_during_training} GB, losses {figures.first_loss} {figures.last_loss}, "
        f"{result.error.message[:400] if result.error else ''}",
        flush=True,
    )


# Losses


def losses(output: Path, recipe: Recipe) -> None:
    """Of bf16 and of fp8 with fast accumulation in all, in some and in no products, on two streams; of LoRA on the
    stream that can be learnt, in both precisions from weights of several seeds, with all products fast. What was
    measured is written after each run.
    """
    shape = MODELS["mistral-7b"].model_copy(update={"num_layers": 8})
    cases: list[tuple[str, Precision, int, FastAccumulation]] = [
        ("bf16", Precision.BF16, 0, FAST),
        *((f"fp8, fast: {name}", Precision.FP8, 0, fast) for name, fast in ACCUMULATIONS.items()),
        ("bf16, seed 1", Precision.BF16, 1, FAST),
    ]
    streams = [("repeated", 2048, 48), ("chain", 512, STEPS)]
    if recipe is Recipe.LORA:
        adamw.LEARNING_RATE = LORA_LEARNING_RATE
        precisions = (Precision.BF16, Precision.FP8)
        cases = [(f"{kind}, seed {seed}", kind, seed, FAST) for seed in LORA_SEEDS for kind in precisions]
        streams = streams[1:]
    figures: dict[str, Any] = {"model": shape.model_dump(), "symbols": SYMBOLS, "noise": NOISE, "losses": {}}
    for stream, seq_length, steps in streams:
        for name, precision, seed, fast in cases:
            float8_linear.FAST = fast
            spec = make_spec("losses", recipe, precision, dimensions=shape, seq_length=seq_length, seed=seed)
            made = _losses(spec, steps, Chain(spec) if stream == "chain" else None)
            figures["losses"][f"{stream}, {name}"] = made
            output.write_text(json.dumps(figures, indent=1) + "\n")
            print(
                stream, name, [round(statistics.fmean(made[at : at + 8]), 4) for at in range(0, steps, 8)], flush=True
            )


def _losses(spec: RunSpec, steps: int, stream: Chain | None) -> list[float]:
    """Of the first steps on the stream; None: on the program's own batches, which repeat."""
    from bench_image.parallel.process_group import ProcessGroup
    from bench_image.training.train_step import TrainStep

    torch.compiler.reset()
    device = torch.device("cuda", 0)
    step = TrainStep(spec, build.build(spec, device), ProcessGroup(device))
    own, step.batches = step.batches, stream or step.batches
    made = torch.stack([step() for _ in range(steps)]).tolist()
    own.close()
    del step
    gc.collect()
    torch.cuda.empty_cache()
    return [float(loss) for loss in made]


class Chain:
    """A stream that never repeats and can be learnt: a symbol is followed by its successor, or by any, by chance."""

    source = "a Markov chain"

    def __init__(self, spec: RunSpec) -> None:
        self._size = (spec.work.samples_per_micro_step, spec.work.seq_length)
        generator = torch.Generator().manual_seed(7)
        self._successor = torch.randperm(SYMBOLS, generator=generator)
        self._symbols = torch.randperm(spec.work.shape.vocab_size, generator=generator)[:SYMBOLS]

    def batch(self, step: int, micro_step: int) -> torch.Tensor:
        """Token ids (micro batch, sequence), pinned."""
        generator = torch.Generator().manual_seed(1000 + step)
        drawn = torch.randint(SYMBOLS, self._size, generator=generator)
        by_chance = torch.rand(self._size, generator=generator) < NOISE
        for at in range(1, self._size[1]):
            drawn[:, at] = torch.where(by_chance[:, at], drawn[:, at], self._successor[drawn[:, at - 1]])
        return self._symbols[drawn].pin_memory()

    def close(self) -> None:
        """Nothing to end."""


# One layer


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        sizes = ((HIDDEN, INNER), (HIDDEN, INNER), (INNER, HIDDEN))
        self.gate, self.up, self.down = (nn.Linear(*size, bias=False, dtype=torch.bfloat16) for size in sizes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.down(nn.functional.silu(self.gate(x)) * self.up(x))
        return made


def layer() -> dict[str, Any]:
    """Milliseconds of forward and backward, compiled, by turns; and of the casts alone."""
    torch._dynamo.config.recompile_limit = 64
    x = torch.randn(TOKENS, HIDDEN, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    figures: dict[str, Any] = {"casts": dict(_casts())}
    steps = dict(_variants(x))
    rounds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(3):
        for name, step in steps.items():
            rounds[name].append(milliseconds(step, 30))
    figures["mlp_ms"] = rounds
    print(json.dumps(figures, indent=1), flush=True)
    return figures


def _variants(x: torch.Tensor) -> Iterator[tuple[str, Callable[[], None]]]:
    from bench_image.kernels.float8_linear import Float8Linear

    yield "bf16", _step_of(_mlp(), x)
    for name, fast in ACCUMULATIONS.items():
        ours = _mlp()
        for linear in (ours.gate, ours.up, ours.down):
            linear.__class__ = Float8Linear
        yield f"ours, fast: {name}", _accumulating(fast, ours, x)
    try:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    except ImportError:
        return
    for recipe in TORCHAO:
        config = Float8LinearConfig.from_recipe_name(recipe)
        yield f"torchao {recipe}", _step_of(convert_to_float8_training(_mlp(), config=config), x)


def _accumulating(fast: FastAccumulation, mlp: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    """The compiled code that belongs to `fast` is chosen by its value at each call."""
    float8_linear.FAST = fast
    step = _step_of(mlp, x)

    def accumulating() -> None:
        float8_linear.FAST = fast
        step()

    return accumulating


def _mlp() -> Mlp:
    torch.manual_seed(0)
    return Mlp().cuda()


def _step_of(mlp: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    mlp.compile(dynamic=False)

    def step() -> None:
        mlp(x).square().mean().backward()
        for parameter in mlp.parameters():
            parameter.grad = None

    for _ in range(5):
        step()
    return step


def _casts() -> Iterator[tuple[str, float]]:
    """GB/s of the casts, where each number is read twice (2 bytes) and written once or twice (1 byte)."""
    from bench_image.kernels import float8_casts

    for width in (HIDDEN, INNER):
        matrix = torch.randn(TOKENS, width, device="cuda", dtype=torch.bfloat16)
        for by_row, by_column in ((True, True), (True, False), (False, True)):
            ms = milliseconds(lambda: float8_casts.cast(matrix, by_row, by_column), 30)  # noqa: B023
            yield f"{width} {by_row} {by_column}", matrix.numel() * (4 + by_row + by_column) / ms / 1e6


def milliseconds(work: Callable[[], object], times: int) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    work()
    begin.record()
    for _ in range(times):
        work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / times


if __name__ == "__main__":
    main()

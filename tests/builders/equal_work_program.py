"""Trains many specs one after the other in one process group, because starting processes costs most of a test's time.

Run by torchrun with a file of named specs (JSON) and a folder, into which each rank writes what it saw.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

import bench_image.data.batches as data_module
import bench_image.model.build as build_module
from bench_image.contract.options import Strategy
from bench_image.contract.spec import RunSpec
from bench_image.model import compile
from bench_image.model.build import BuiltModel
from bench_image.optimizer import adamw
from bench_image.optimizer.step import OptimizerStep
from bench_image.parallel import deepspeed, strategies
from bench_image.training import train_step
from bench_image.training.execution import describe_execution
from bench_image.training.train_step import TrainStep

STEPS = 3  # the third has two updates behind it
LEARNING_RATE = 3e-3
FORGETFUL = "forgetful"  # in a spec's name: its first micro-steps leave no gradients
COUNTED = "wide"  # the model whose memory is counted: looking at all objects of a process takes its time
FUSED = "fused"  # in a spec's name: adapters are fused as on a GPU
KEPT = "kept"  # in a spec's name: 4-bit weights stay unpacked from forward to backward
COMPILED = "compiled"  # in a spec's name: layers and loss are compiled as on a GPU, but without code generation
LINEAR = nn.functional.linear
STRANGERS = "strangers"  # in a spec's name: each rank believes to have another GPU


def main(specs: Path, folder: Path) -> None:
    torch.set_num_threads(1)
    os.environ["NCCL_NVLS_ENABLE"] = "0"
    # The same batch in every step and a high rate: a wrong gradient shows in the losses at once.
    adamw.LEARNING_RATE, data_module.POOL_STEPS = LEARNING_RATE, 1
    seen = {}
    for name, fields in json.loads(specs.read_text()).items():
        if name.endswith(f"/{Strategy.SINGLE}") and os.environ["RANK"] != "0":
            continue  # what one rank does alone, all others would do alike
        with contextlib.ExitStack() as changes:
            if STRANGERS in name:
                changes.enter_context(patch.object(strategies, "device_name", _own_kind))
            if FUSED in name:
                changes.enter_context(patch.object(compile, "uses_fused_lora", lambda _: True))
            if KEPT in name:
                changes.enter_context(patch.object(train_step, "keeps_unpacked", lambda *_: True))
            if COMPILED in name and not name.endswith(f"/{Strategy.SINGLE}"):
                _compile_on_cpu(changes)
            seen[name] = watched(RunSpec.model_validate(fields), forgetful=FORGETFUL in name)
    (folder / f"seen-{os.environ['RANK']}.json").write_text(json.dumps(seen))


def watched(spec: RunSpec, *, forgetful: bool) -> dict[str, Any]:
    """The losses and what this rank holds after the last step; or the error."""
    gc.collect()
    gc.freeze()  # imports and earlier cases: ZeRO-3 would search them for garbage each time that it joins tensors
    try:
        group = strategies.join_group(spec)
        built = build_module.build(spec, group.device, group.shard)
        step = TrainStep(spec, built, group)
        if forgetful:
            _forget(step.optimizer_step)
        losses = group.mean_over_ranks([_loss_as_before_a_capture(step) for _ in range(STEPS)])
        alive = _alive_bytes() if spec.work.model == COUNTED else None
        held = holdings(step, built)
        held["bytes"]["alive"] = alive
        return {"losses": losses, "execution": describe_execution(step)} | held
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


def _loss_as_before_a_capture(step: TrainStep) -> float:
    step.optimizer_step.forget_launched_steps()
    return float(step())


def _compile_on_cpu(changes: contextlib.ExitStack) -> None:
    """The graphs and what they save for backward are those of a GPU; their operations run one by one."""
    for module in (build_module, compile, deepspeed):
        changes.enter_context(patch.object(module, "uses_compile", lambda _: True))
    changes.enter_context(patch.object(nn.functional, "linear", LINEAR))  # DeepSpeed replaced it in an earlier case
    changes.enter_context(patch.object(torch, "compile", functools.partial(torch.compile, backend="aot_eager")))


def _own_kind(_device: torch.device) -> str:
    return f"GPU of kind {os.environ['RANK']}"


def _alive_bytes() -> int:
    """Of all tensors of this case, each piece of memory once."""
    gc.collect()
    tensors = [thing for thing in gc.get_objects() if isinstance(thing, torch.Tensor) and thing.device.type == "cpu"]
    storages = [tensor.untyped_storage() for tensor in tensors if not hasattr(tensor, "to_local")]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def _forget(optimizer_step: OptimizerStep) -> None:
    honest = optimizer_step.micro_step

    def micro_step(ids: torch.Tensor, *, last: bool) -> torch.Tensor:
        loss = honest(ids, last=last)
        if not last:
            optimizer_step.model.zero_grad()
        return loss

    optimizer_step.micro_step = micro_step  # type: ignore[method-assign]


def holdings(step: TrainStep, built: BuiltModel) -> dict[str, Any]:
    """Bytes and dtypes of what this rank keeps: after a whole step, and of gradients before an update."""
    weights = [_own(parameter) for parameter in built.model.parameters()]
    kept: dict[str, list[torch.Tensor]] = {
        "weights": weights,
        "trainable": [_own(parameter) for parameter in built.trainable],
        "copies": _copies(step.optimizer_step),
        "states": _states(step.optimizer_step),
    }
    step.optimizer_step.micro_step(step.batches.batch(0, 0), last=True)
    kept["gradients"] = _gradients(step.optimizer_step, built)
    return {
        "bytes": {name: sum(t.numel() * t.element_size() for t in tensors) for name, tensors in kept.items()},
        "dtypes": {name: sorted({str(t.dtype) for t in tensors}) for name, tensors in kept.items()},
    }


def _own(parameter: Any) -> torch.Tensor:
    """The part of a parameter that this rank holds between steps."""
    if hasattr(parameter, "ds_tensor") and not parameter.ds_persist:
        assert parameter.numel() == 0, "a partitioned parameter must not stay whole"
        return parameter.ds_tensor  # type: ignore[no-any-return]
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter.data  # type: ignore[no-any-return]


def _zero(optimizer_step: OptimizerStep) -> Any:
    """DeepSpeed's optimizer around ours; None under other strategies."""
    optimizer = getattr(optimizer_step.model, "optimizer", None)
    return None if isinstance(optimizer_step.model, nn.parallel.DistributedDataParallel) else optimizer


def _copies(optimizer_step: OptimizerStep) -> list[torch.Tensor]:
    zero = _zero(optimizer_step)
    if zero is None:
        return []
    return list(getattr(zero, "single_partition_of_fp32_groups", None) or zero.fp32_partitioned_groups_flat)


def _states(optimizer_step: OptimizerStep) -> list[torch.Tensor]:
    """AdamW's two moments, with the scales and tables of 8-bit ones."""
    state = (_zero(optimizer_step) or optimizer_step).optimizer.state
    return [t for moments in state.values() for t in moments.values() if isinstance(t, torch.Tensor) and t.numel() > 1]


def _gradients(optimizer_step: OptimizerStep, built: BuiltModel) -> list[torch.Tensor]:
    zero = _zero(optimizer_step)
    if zero is not None:
        return [gradient for group in zero.averaged_gradients.values() for gradient in group]
    whole = [parameter.grad for parameter in built.trainable if parameter.grad is not None]
    return [gradient.to_local() if hasattr(gradient, "to_local") else gradient for gradient in whole]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

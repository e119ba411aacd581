"""DeepSpeed ZeRO: stage 2 shards gradients and optimizer states, stage 3 the weights as well."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from bench_image.contract.options import Optimizer, Strategy
from bench_image.contract.preset_switches import gathers_layers, uses_compile
from bench_image.contract.spec import RunSpec
from bench_image.model.architectures import layers_of
from bench_image.model.build import BuiltModel
from bench_image.optimizer.adamw import make_optimizer
from bench_image.optimizer.step import MAX_GRAD_NORM, OptimizerStep

REDUCE_BUCKET = 500_000_000  # numbers; DeepSpeed's default


class ZeroStep(OptimizerStep):
    """DeepSpeed's engine does backward, clipping and the update.

    Each micro-step says whether it is the last: at both stages DeepSpeed reduces the gradients of each micro-step at
    once and adds them up in shards (it refuses `no_sync`, which contradicts that).
    The model is built whole on every rank before DeepSpeed shards it, because DeepSpeed cannot shard 4-bit weights
    while they are built: it must fit into one GPU once, without gradients and activations.
    """

    def __init__(self, spec: RunSpec, built: BuiltModel, device: torch.device) -> None:
        self._stage = 2 if spec.placement.strategy is Strategy.ZERO2 else 3
        self._layers = layers_of(built.base)
        super().__init__(spec, built.model, built.trainable, device)

    def make_optimizer(self, spec: RunSpec, device: torch.device) -> torch.optim.Optimizer:
        optimizer = make_optimizer(spec, self.trainable, device)
        # Autocast must be entered inside of DeepSpeed's engine, which switches off any from outside.
        self.model.forward = self.autocast(self.model.forward)
        config = settings(self._stage, self.trainable, device)
        if gathers_layers(spec):
            config["zero_optimization"] |= by_layer(self._layers, compiled=uses_compile(spec))
        import deepspeed  # type: ignore[import-untyped]
        import deepspeed.ops  # type: ignore[import-untyped]

        logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
        # Skips a C++ extension for the CPU, whose compilation would take half a minute.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        self.model, *_ = deepspeed.initialize(
            model=self.model, model_parameters=self.trainable, optimizer=optimizer, config=config,
            dist_init_required=False,
        )  # fmt: skip
        return optimizer

    def micro_step(self, ids: torch.Tensor, *, last: bool) -> torch.Tensor:
        engine: Any = self.model
        # The loss is divided here, so DeepSpeed must not scale it by its own count of accumulation steps.
        engine.set_gradient_accumulation_boundary(last)
        loss: torch.Tensor = engine(input_ids=ids, labels=ids).loss
        engine.backward(loss / self.num_micro_steps, scale_wrt_gas=False)
        return loss.detach().float()

    def update(self) -> None:
        self.model.step()  # type: ignore[operator]

    def describe_sharding(self, spec: RunSpec) -> dict[str, str]:
        parts = "gradients, optimizer states" if self._stage == 2 else "weights, gradients, optimizer states"
        shared = {"sharded": f"{parts}, and a copy of the trainable weights in their own dtype"}
        if self._stage == 3:
            shared["weights gathered"] = "by layer" if gathers_layers(spec) else "by module"
        if self.num_micro_steps > 1:
            shared["gradients exchanged"] = "once per micro-step"
        if spec.work.optimizer is not Optimizer.ADAMW_TORCH:
            shared["optimizer states"] = "8-bit with a scale per 256 numbers of the rank's flat share"
        return shared


def settings(stage: int, trainable: Sequence[nn.Parameter], device: torch.device) -> dict[str, Any]:
    """DeepSpeed's configuration, which keeps each tensor in the dtype that the recipe gave it.

    bf16 trainable weights: gradients, master copy and optimizer states in bf16 too. fp32 ones: no mixed precision by
    DeepSpeed, so that frozen weights keep their dtype; autocast is done by ZeroStep.
    """
    bf16 = {
        "enabled": True,
        "bf16_master_weights_and_grads": True,
        "bf16_optimizer_states": True,
        "check_grad_overflow": False,  # waits for the GPU; a NaN loss ends the run anyway
    }
    return {
        # ZeroStep counts batch sizes and accumulation itself.
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": MAX_GRAD_NORM,
        "zero_allow_untested_optimizer": True,  # the 8-bit ones
        "zero_optimization": {
            "stage": stage,
            "overlap_comm": device.type == "cuda",
            "contiguous_gradients": True,
            # A buffer of this size stays allocated, so it is no larger than the trainable weights.
            "reduce_bucket_size": min(REDUCE_BUCKET, sum(parameter.numel() for parameter in trainable)),
        },
        "steps_per_print": 2**31,
    } | ({"bf16": bf16} if trainable[0].dtype is torch.bfloat16 else {})


def by_layer(layers: Sequence[nn.Module], *, compiled: bool) -> dict[str, Any]:
    """Marks the layers as those that ZeRO-3 gathers whole; the settings for it.

    While a layer computes, the next one is gathered. DeepSpeed's own linear layer, which reads a released weight again
    in backward, cannot be compiled; a compiled layer saves the weight itself.
    """
    from deepspeed.utils import set_z3_leaf_module  # type: ignore[import-untyped]

    for layer in layers:
        set_z3_leaf_module(layer, True)
    layers[0].register_forward_pre_hook(_ask_for_input_gradient)
    largest = max(sum(parameter.numel() for parameter in layer.parameters()) for layer in layers)
    return {"stage3_prefetch_bucket_size": largest, "memory_efficient_linear": not compiled}


def _ask_for_input_gradient(_layer: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
    """DeepSpeed takes a layer's gradients once that of its input is there; adapters alone would not ask for it."""
    args[0].requires_grad_()

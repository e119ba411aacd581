"""AdamW in the spec's variant: torch's own, ours that clips within the update, or bitsandbytes' in 8 bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from bench_image.contract.options import Optimizer
from bench_image.contract.preset_switches import clips_within_update
from bench_image.contract.spec import RunSpec

LEARNING_RATE = 1e-4


def make_optimizer(spec: RunSpec, trainable: Sequence[nn.Parameter], device: torch.device) -> torch.optim.Optimizer:
    """AdamW over `trainable` in the spec's variant; torch's own is fused on a GPU."""
    if clips_within_update(spec):
        from bench_image.optimizer.clipping_adamw import ClippingAdamW

        return ClippingAdamW(trainable, LEARNING_RATE)
    if spec.work.optimizer is Optimizer.ADAMW_TORCH:
        return torch.optim.AdamW(trainable, lr=LEARNING_RATE, fused=device.type == "cuda")
    from bitsandbytes.optim.adamw import AdamW8bit, PagedAdamW8bit

    kind: Any = PagedAdamW8bit if spec.work.optimizer is Optimizer.PAGED_ADAMW_8BIT else AdamW8bit
    optimizer: torch.optim.Optimizer = kind(trainable, lr=LEARNING_RATE)
    return optimizer

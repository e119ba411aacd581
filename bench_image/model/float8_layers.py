"""8-bit products in a model's layers: every linear of every layer; embedding, attention and head stay in bf16."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from bench_image.contract.frozen import ContractError
from bench_image.contract.options import FLOAT8_MULTIPLE
from bench_image.kernels.float8_linear import Float8Linear
from bench_image.model.architectures import layers_of

LEAST_CAPABILITY = (8, 9)  # Ada, Hopper and later have units for 8-bit floats


def with_8bit_products(base: Any) -> None:
    """Lets the linears of all layers multiply in 8 bits; names and weights stay. ContractError: a size that cannot."""
    for layer in layers_of(base):
        for name, module in layer.named_modules():
            if type(module) is not nn.Linear:
                continue
            if module.in_features % FLOAT8_MULTIPLE or module.out_features % FLOAT8_MULTIPLE:
                raise ContractError(
                    f"precision 'fp8' with {name} of {module.in_features} x {module.out_features}: both must be "
                    f"multiples of {FLOAT8_MULTIPLE}: choose other dimensions, or bf16"
                )
            module.__class__ = Float8Linear


def check_8bit_units(device: torch.device) -> None:
    """Raises ContractError for a GPU without units for 8-bit floats."""
    if device.type != "cuda":
        return
    capability = torch.cuda.get_device_capability(device)
    if capability < LEAST_CAPABILITY:
        raise ContractError(
            f"precision 'fp8' on {torch.cuda.get_device_name(device)} of compute capability "
            f"{'.'.join(map(str, capability))}: it needs {'.'.join(map(str, LEAST_CAPABILITY))} or more: choose bf16"
        )

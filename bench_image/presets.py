"""By which means a preset may do a run's work: what the program does, and what the memory formula counts on."""

from __future__ import annotations

from bench_image.contract import Device, Precision, Preset, RunSpec, Strategy


def compiles(spec: RunSpec) -> bool:
    """ZeRO-3 fetches the weights of each small module by hooks, which would cut every layer's graph into pieces."""
    return spec.preset is Preset.TUNED and spec.device is Device.CUDA and spec.strategy is not Strategy.ZERO3


def fuses(spec: RunSpec) -> bool:
    """Adapters as one operation with their frozen weight: without dropout, and in one dtype, as fp16 training is not.

    Only where every rank holds whole weights: sharded ones are gathered, layer by layer, into memory of the strategy's
    own, where siblings no longer lie side by side; that was not measured.
    """
    plain = spec.lora is not None and spec.lora.dropout == 0 and spec.precision is not Precision.FP16
    return compiles(spec) and plain and spec.strategy is not Strategy.FSDP

"""Switches of a preset for a spec: compilation, fused LoRA, CUDA graph, the Trainer's checks.

Both the program and the memory estimate read it from here.
"""

from __future__ import annotations

from bench_image.contract.model_shapes import ConfiguredShape, DecoderShape
from bench_image.contract.options import SINGLE_GPU, Attention, Optimizer, Precision, Strategy
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Device, Preset

STEPS_BEFORE_CAPTURE = 2  # the first step compiles and creates the optimizer states
DDP_STEPS_BEFORE_CAPTURE = 11  # DDP times its first ten exchanges, and waits for the GPU to do so


def uses_compile(spec: RunSpec) -> bool:
    """Whether layers and loss are compiled. `tuned` compiles no layers of which nothing is known."""
    tries = spec.work.preset is not Preset.TUNED or spec.work.shape.is_known
    return spec.work.is_compiled and spec.work.device is Device.CUDA and tries


def gathers_layers(spec: RunSpec) -> bool:
    """Whether ZeRO-3 gathers the weights of a whole layer at once, not of each small module.

    A compiled layer needs it: hooks on the modules within it would cut its graph.
    """
    return spec.placement.strategy is Strategy.ZERO3 and (spec.work.preset is Preset.TUNED or uses_compile(spec))


def compiles_as_tuned(spec: RunSpec) -> bool:
    """Whether the preset `tuned` builds on compiled layers: no attention masks, fused adapters, CUDA graphs."""
    return spec.work.preset is Preset.TUNED and uses_compile(spec)


def grows_segments(spec: RunSpec) -> bool:
    """Whether torch's allocator takes memory in segments that grow, so that hardly any lies unused between blocks.

    Not tried with several ranks that communicate.
    """
    return compiles_as_tuned(spec) and spec.placement.strategy in SINGLE_GPU


def fuses_head(spec: RunSpec) -> bool:
    """Whether head and loss are one operation: not with ZeRO-3, which gathers the head's weight when it is called."""
    return compiles_as_tuned(spec) and spec.placement.strategy is not Strategy.ZERO3


def compiles_whole(spec: RunSpec) -> bool:
    """Whether all layers are one graph, not each its own: where small kernels prevail, and no layer is exchanged."""
    small = spec.work.shape.family == "encoder-decoder" and not spec.work.gradient_checkpointing
    return fuses_head(spec) and small and spec.placement.strategy in SINGLE_GPU


def clips_within_update(spec: RunSpec) -> bool:
    """Whether the optimizer clips while it updates: tensor by tensor, hence only in a graph."""
    scaled = spec.work.precision is Precision.FP16
    return uses_cuda_graph(spec) and spec.placement.strategy is Strategy.SINGLE and not scaled


def uses_fused_lora(spec: RunSpec) -> bool:
    """Whether adapters and frozen weights are one operation: without dropout, in one dtype, unlike fp16 training."""
    if not compiles_as_tuned(spec) or spec.work.lora is None:
        return False
    return spec.work.lora.dropout == 0 and spec.work.precision is not Precision.FP16


def makes_product_anew(spec: RunSpec) -> bool:
    """Whether backward makes the product within a gated MLP again: where its last layer has a fused adapter."""
    adapted = spec.work.lora is not None and "down_proj" in spec.work.lora.targets
    shape = spec.work.shape
    by_silu = isinstance(shape, DecoderShape) or (
        isinstance(shape, ConfiguredShape) and "gate_proj" in shape.linears and shape.config["hidden_act"] == "silu"
    )
    return uses_fused_lora(spec) and adapted and by_silu and spec.work.precision is not Precision.FP8


def uses_cuda_graph(spec: RunSpec) -> bool:
    """Whether the whole step, with its communication, is one CUDA graph: if no part of the step reads from the GPU.

    8-bit optimizers count steps on the host, a mixture of experts counts its tokens, eager attention reads its mask,
    and DeepSpeed reads norms and waits for its streams. Loss scaling does not read: torch's fused AdamW skips a step on
    the GPU; not tried with adapters. The warm-up must be long enough for the capture and the steps before it.
    """
    counts_on_gpu = spec.work.optimizer is Optimizer.ADAMW_TORCH and not spec.work.shape.is_mixture
    recorded = compiles_as_tuned(spec) and spec.placement.strategy in (Strategy.SINGLE, Strategy.DDP, Strategy.FSDP)
    tried = spec.work.precision is not Precision.FP16 or spec.work.lora is None
    long_enough = spec.measurement.warmup_steps > steps_before_capture(spec)
    return recorded and counts_on_gpu and tried and not needs_mask(spec) and long_enough


def needs_mask(spec: RunSpec) -> bool:
    """Whether attention is causal by a mask only: a fused kernel leaves future tokens out by itself, but not those
    before a sliding window.
    """
    return attends_eagerly(spec) or has_narrow_window(spec)


def attends_eagerly(spec: RunSpec) -> bool:
    """Whether attention is products and a softmax: by choice, or because torch's kernels cannot compute it."""
    return spec.work.attention is Attention.EAGER or spec.work.shape.attends_by_itself


def has_narrow_window(spec: RunSpec) -> bool:
    """Whether some layers attend to fewer positions than a sample has."""
    windows = [layer.window for layer, _ in spec.work.shape.layers if layer.window]
    return min(windows, default=spec.work.seq_length) < spec.work.seq_length


def steps_before_capture(spec: RunSpec) -> int:
    """Steps that are launched kernel by kernel before one is captured."""
    return DDP_STEPS_BEFORE_CAPTURE if spec.placement.strategy is Strategy.DDP else STEPS_BEFORE_CAPTURE


def acts_as_hf_trainer(spec: RunSpec) -> bool:
    """Whether the loop does around each step what the Hugging Face Trainer does, at the GPU's expense.

    After each backward pass the Trainer checks that the loss is finite (`logging_nan_inf_filter`, on by default), which
    waits for the GPU. Before it launches anything again it counts the model's parameters, for its estimate of FLOPs,
    and walks through all modules to reset gradients and to set each to training. The Trainer does not train an
    encoder-decoder of torch.nn.
    """
    return spec.work.preset is Preset.AS_USERS_RUN and spec.work.shape.family != "encoder-decoder"

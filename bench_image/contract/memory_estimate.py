"""Estimates the GPU memory that a run needs, by formula, and finds the smallest GPU that holds it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from bench_image.contract.decoder_config import Layer
from bench_image.contract.flops import (
    lora_targets,
    num_adaptable,
    num_linear,
    num_lora_parameters,
    num_parameters,
    num_quantisable,
    tokens_per_sample,
)
from bench_image.contract.gpu_specs import GPU_SPECS
from bench_image.contract.model_shapes import (
    MODELS,
    ConfiguredShape,
    DecoderShape,
    EncoderDecoderShape,
    Gpt2Shape,
    MixtralShape,
    ModelShape,
)
from bench_image.contract.options import DEEPSPEED, WIDE, Optimizer, Precision, Recipe, Strategy
from bench_image.contract.preset_switches import (
    attends_eagerly,
    compiles_as_tuned,
    fuses_head,
    grows_segments,
    makes_product_anew,
    uses_compile,
    uses_cuda_graph,
    uses_fused_lora,
)
from bench_image.contract.spec import Identity, RunSpec
from bench_image.contract.work import AUTO, Lora, Preset, Quantisation, Work

GPU_MEMORY_GIB: dict[str, int] = {name: spec.memory_gib for name, spec in GPU_SPECS.items()}
# The rest is taken by ECC (a sixteenth of GDDR memory), the CUDA context, buffers of NCCL and cuBLAS, fragmentation.
USABLE_SHARE = 0.9
# Where some layers are checkpointed they free unequal blocks: torch reserved 1.15 times what it allocated, unless its
# segments grow.
PARTLY_USABLE_SHARE = 0.85
GATHERED = (Strategy.FSDP, Strategy.ZERO3)  # these shard the weights
SHARED_STATES = (Strategy.FSDP, *DEEPSPEED)  # these shard the optimizer states
ZERO_BUCKET = 500_000_000  # numbers that DeepSpeed reduces at once
EIGHT_BIT_STATES = 2 + 2 * 4 / 256  # bytes per number: two of 8 bit, each with an fp32 scale per block of 256
WORKSPACES = 250_000_000  # of libraries, for launched steps and for the graph; measured
WHOLE_SHARE = 1 / 6  # of a GPU's memory that fsdp may fill with whole weights, or gradients, to save communication


class MemoryNeed(NamedTuple):
    """Bytes on one GPU. `total` is less than the sum of the parts, because not all exist at the same time.

    `paged`: states of the paged optimizer, which are not in `total`: the driver may move them to the host.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    total: int
    paged: int

    @property
    def with_paged(self) -> int:
        """The need of a run whose paged optimizer states stay on the GPU."""
        return self.total + self.paged


def memory_need_bytes(spec: RunSpec, gpu_memory_bytes: int | None = None) -> MemoryNeed:
    """Estimates the peak that torch allocates on one GPU, in bytes.

    The peak is either at the loss (saved activations and logits) or in the backward pass (gradients and the layer that
    is computed). `gradients`: those that exist at the loss, because of buckets or accumulation; else those at the end
    of the backward pass. `weights` includes autocast's narrow copies and, of a sharded model, what is gathered at the
    time. States of the paged optimizer are apart, in `paged`: torch does not count them.
    `gpu_memory_bytes` decides whether fsdp keeps weights whole and fused 4-bit weights stay unpacked; None: they do.
    'auto' counts as what needs least: a micro-batch of 1, with checkpointing. docs/internals/sizing.md compares the
    estimates with measured peaks. Raises ContractError for an unknown model without dimensions.
    """
    return _need(spec, gpu_memory_bytes, keeps=keeps_unpacked(spec, gpu_memory_bytes))


def partly_checkpointed(spec: RunSpec, gpu_memory_bytes: int) -> Iterator[tuple[int, int]]:
    """Numbers of layers that are checkpointed for the run to fit, and the bytes that it needs then.

    The fewest that fit, and an eighth of all layers more, in case that is too few. None where all must be, or
    the model's layers are not checkpointed one by one. Only `tuned` does so: users' programs checkpoint all or none.
    `spec` has checkpointing off and no other 'auto'.
    """
    if not compiles_as_tuned(spec) or isinstance(spec.work.shape, EncoderDecoderShape):
        return
    all_layers = spec.work.shape.num_layers
    needs = {n: _need(spec, gpu_memory_bytes, keeps=False, checkpointed=n).total for n in range(1, all_layers)}
    usable_bytes = (USABLE_SHARE if grows_segments(spec) else PARTLY_USABLE_SHARE) * gpu_memory_bytes
    fewest = next((n for n, need in needs.items() if need <= usable_bytes), all_layers)
    for layers in (fewest, fewest + math.ceil(all_layers / 8)):
        if layers in needs:
            yield layers, needs[layers]


def keeps_unpacked(spec: RunSpec, gpu_memory_bytes: int | None) -> bool:
    """Whether 4-bit weights that forward unpacks are kept for backward, instead of being unpacked again.

    Fused ones are, if the run fits with them. Not with checkpointing, whose first forward pass keeps nothing.
    """
    if not uses_fused_lora(spec) or spec.work.quantisation is None or spec.work.gradient_checkpointing is not False:
        return False
    room = gpu_memory_bytes
    return room is None or _need(spec, room, keeps=True).total <= USABLE_SHARE * room


def _need(spec: RunSpec, gpu_memory_bytes: int | None, *, keeps: bool, checkpointed: int = 0) -> MemoryNeed:
    """`checkpointed`: the number of layers, the first ones, that keep their inputs only where not all do."""
    shape = spec.work.shape
    trainable = _num_trained(spec)
    micro_batch = 1 if spec.work.micro_batch_size == AUTO else spec.work.micro_batch_size
    tokens = micro_batch * tokens_per_sample(shape, spec.work.seq_length)

    weights = _weights_per_gpu(spec, shape, gpu_memory_bytes)
    waiting, at_the_end = _gradients_per_gpu(spec, trainable)
    optimizer, paged = _optimizer_per_gpu(spec, trainable)
    # Activations: of all layers, or with checkpointing the input of each layer and one layer computed again.
    one_layer, one_input = (
        tokens * _layer_activation_bytes(spec, shape),
        tokens * shape.hidden_size * _stream_width(spec),
    )
    if spec.work.gradient_checkpointing:
        saved = shape.num_layers * one_input
        activations, recomputed = saved + one_layer, one_layer
    else:
        activations = saved = checkpointed * one_input + (shape.num_layers - checkpointed) * one_layer
        recomputed = 0
    # Where only the first layers are checkpointed, their turn comes last, when nearly all gradients exist.
    again = checkpointed * one_input + one_layer if checkpointed else 0
    # 4-bit weights while they are unpacked: all of them until backward, or the largest for a moment.
    if keeps:
        kept = num_adaptable(shape) * _width(spec)
        activations, saved, unpacked = activations + kept, saved + kept, 0
    else:
        unpacked = _largest_unpacked_bytes(spec, shape)
    logits, of_head = _loss_bytes(spec, shape, tokens)
    # The larger of two moments: at the loss, or in the backward pass.
    at_loss = saved + logits + waiting + of_head
    in_backward = recomputed + unpacked + (saved + waiting if waiting else max(saved, at_the_end + again))
    in_backward += tokens * _softmax_backward_bytes(spec, shape) - _copies_after_forward(spec, shape)
    total = weights + optimizer + max(at_loss, in_backward) + (WORKSPACES if uses_cuda_graph(spec) else 0)
    return MemoryNeed(weights, waiting or at_the_end, optimizer, activations, logits, total, paged)


def smallest_gpu(spec: RunSpec) -> str | None:
    """The GPU of GPU_MEMORY_GIB with the least memory that holds the run, paged states too; None if none does."""
    for name, memory_gib in sorted(GPU_MEMORY_GIB.items(), key=lambda item: item[1]):
        memory = memory_gib * 2**30
        if memory_need_bytes(spec, memory).with_paged <= memory * USABLE_SHARE:
            return name
    return None


def has_room(num_bytes: float, gpu_memory_bytes: int | None) -> bool:
    """Whether fsdp may keep `num_bytes` whole on a GPU of that memory; None: it may."""
    return gpu_memory_bytes is None or num_bytes <= WHOLE_SHARE * gpu_memory_bytes


def _weights_per_gpu(spec: RunSpec, shape: ModelShape, gpu_memory_bytes: int | None) -> int:
    """Bytes of the weights on one GPU, with what is gathered at the time."""
    whole = _weight_bytes(spec, shape)
    if spec.placement.strategy not in GATHERED:
        return whole
    shard = whole / spec.placement.world_size
    if (
        spec.placement.strategy is Strategy.FSDP
        and spec.work.preset is Preset.TUNED
        and has_room(whole, gpu_memory_bytes)
    ):
        return round(shard + whole)
    layer = whole * num_linear(shape) / num_parameters(shape) / shape.num_layers
    ends = 2 * shape.vocab_size * shape.hidden_size * _width(spec)  # embedding and head are gathered as one unit
    return round(shard + ends + 2 * layer)  # the layer that is computed, and the next one


def all_gradients_bytes(spec: RunSpec) -> int:
    """Bytes of the gradients of all trained parameters, which `ddp` sums over all ranks in each step."""
    return _num_trained(spec) * _trainable_width(spec)


def _num_trained(spec: RunSpec) -> int:
    shape, lora = spec.work.shape, spec.work.lora
    return num_lora_parameters(shape, lora) if lora else num_parameters(shape)


def _gradients_per_gpu(spec: RunSpec, trainable: int) -> tuple[int, int]:
    """Bytes of the gradients that exist at the loss, and at the end of the backward pass."""
    width, accumulates = _trainable_width(spec), spec.work.gradient_accumulation_steps > 1
    whole, shard = trainable * width, trainable * width // spec.placement.world_size
    buckets = 2 * min(trainable, ZERO_BUCKET) * width  # one is filled while the other is reduced
    match spec.placement.strategy:
        case Strategy.SINGLE | Strategy.INDEPENDENT | Strategy.OWN:
            return (whole if accumulates else 0), whole
        case Strategy.DDP:  # while gradients accumulate, they exist beside their buckets
            waiting = whole * (2 if accumulates else 1)
            return waiting, waiting
        case Strategy.FSDP:
            return (whole + shard if accumulates else 0), shard
        case Strategy.ZERO2:
            return buckets + (shard if accumulates else 0), buckets + shard
        case Strategy.ZERO3:
            return buckets + shard, buckets + shard


def _optimizer_per_gpu(spec: RunSpec, trainable: int) -> tuple[int, int]:
    """Bytes of AdamW's two states, with DeepSpeed's copy of the trainable weights; and of the states that are paged,
    which are as many as those of the 8-bit optimizer that is not.
    """
    ranks = spec.placement.world_size if spec.placement.strategy in SHARED_STATES else 1
    copy = _trainable_width(spec) if spec.placement.strategy in DEEPSPEED else 0
    is_paged = spec.work.optimizer is Optimizer.PAGED_ADAMW_8BIT
    width = 2.0 * _trainable_width(spec) if spec.work.optimizer is Optimizer.ADAMW_TORCH else EIGHT_BIT_STATES
    states = 0.0 if is_paged else width
    return round(trainable * (states + copy) / ranks), round(trainable * width) if is_paged else 0


def _largest_unpacked_bytes(spec: RunSpec, shape: ModelShape) -> int:
    """Bytes of the largest unpacked 4-bit weight; fused layers unpack gate and up together. Gate and up of all experts
    of a layer are one tensor.
    """
    if spec.work.quantisation is None or not shape.linears:
        return 0
    largest = max(inputs * outputs for inputs, outputs in shape.linears.values()) * (2 if uses_compile(spec) else 1)
    if isinstance(shape, ConfiguredShape):
        largest = max(largest, *(layer.experts * 2 // 3 for layer, _ in shape.layers))
    return largest * _width(spec)


def _loss_bytes(spec: RunSpec, shape: ModelShape, tokens: int) -> tuple[int, int]:
    """Bytes of the logits and their copies in the cross-entropy and its backward pass: about three tensors in fp32;
    with `tuned` the logits in the run's precision, whose gradient takes their place where head and loss are one
    operation. And bytes beside them while that makes its gradients: those of its input, and of its weight; a vocabulary
    that is no multiple of 64 has a padded copy of the weight, too.
    """
    scored = tokens // 2 if isinstance(shape, EncoderDecoderShape) else tokens
    if not fuses_head(spec):
        return scored * shape.vocab_size * (2 * _width(spec) if compiles_as_tuned(spec) else 3 * 4), 0
    weight = shape.vocab_size * shape.hidden_size
    copies = (spec.work.recipe is Recipe.FULL) + (shape.vocab_size % 64 > 0)
    of_head = (tokens * shape.hidden_size + copies * weight) * _width(spec)
    return scored * shape.vocab_size * _width(spec), of_head


def _width(spec: RunSpec) -> int:
    """Bytes of a number in the run's precision; with fp8, weights and activations are bf16."""
    return 4 if spec.work.precision in WIDE else 2


def _trainable_width(spec: RunSpec) -> int:
    """Bytes of a trainable number: 2 for bf16 and fp8, else 4.

    fp16 needs fp32 weights to unscale gradients; by default PEFT keeps adapters in fp32, and users an encoder-decoder,
    which is trained from scratch.
    """
    from_scratch = spec.work.lora is not None or isinstance(spec.work.shape, EncoderDecoderShape)
    wide_default = from_scratch and spec.work.preset is Preset.AS_USERS_RUN
    narrow = spec.work.precision in (Precision.BF16, Precision.FP8)
    return 2 if narrow and not wide_default else 4


def _stream_width(spec: RunSpec) -> int:
    """Bytes of a number between the layers: that of the embeddings."""
    if spec.work.recipe is Recipe.FULL:
        return _trainable_width(spec)
    upcast = (
        spec.work.recipe is Recipe.QLORA and spec.work.preset is Preset.AS_USERS_RUN
    )  # prepare_model_for_kbit_training
    return 4 if upcast else _width(spec)


def _weight_bytes(spec: RunSpec, shape: ModelShape) -> int:
    """Bytes of all weights unsharded, adapters, 4-bit scales and autocast's copies included."""
    total, linear, head = num_parameters(shape), num_linear(shape), shape.vocab_size * shape.hidden_size
    packable = num_quantisable(shape)
    width, stream = _width(spec), _stream_width(spec)
    if spec.work.lora is None:
        return total * stream + (width * (linear + head) if width < stream else 0)
    adapters = num_lora_parameters(shape, spec.work.lora) * _trainable_width(spec)
    if spec.work.quantisation is None:
        return total * width + adapters
    # nf4: half a byte, and per block of 64 an fp32 scale; or an 8-bit scale, and an fp32 scale per 256 blocks
    packed = 0.5 + (1 / 64 + 4 / (64 * 256) if spec.work.quantisation.double else 4 / 64)
    return round(packable * packed) + (total - packable) * stream + (width * head if width < stream else 0) + adapters


def _copies_after_forward(spec: RunSpec, shape: ModelShape) -> int:
    """Bytes of autocast's narrow copies in `_weight_bytes` that are freed before the backward pass.

    With checkpointing no saved tensor needs those of the layers, so they end with forward; one layer's are made again.
    """
    copied = spec.work.lora is None and _width(spec) < _stream_width(spec)
    if not copied or not spec.work.gradient_checkpointing or spec.placement.strategy in GATHERED:
        return 0
    return _width(spec) * num_linear(shape) * (shape.num_layers - 1) // shape.num_layers


def _layer_activation_bytes(spec: RunSpec, shape: ModelShape) -> int:
    """Bytes that one layer saves per token for its backward pass.

    Layers that another preset compiles count as eager ones, which save more. 8-bit products in full training save both
    norms (hidden numbers each) and the MLP's product (inner) in 8 bits instead of 16; the attention's output (hidden)
    in 8 bits beside the 16 that attention itself needs. Adapters need their inputs in 16 bits.
    """
    if not compiles_as_tuned(spec):
        return _eager_bytes(spec, shape) + _score_bytes(spec, shape)
    layer = _width(spec) * _compiled_numbers(spec, shape) + _score_bytes(spec, shape)
    if spec.work.precision is Precision.FP8 and spec.work.lora is None and isinstance(shape, DecoderShape):
        return layer - shape.hidden_size - shape.intermediate_size
    return layer


def _score_bytes(spec: RunSpec, shape: ModelShape) -> int:
    """Bytes per token that eager attention saves of its scores: softmax in fp32, and its copy for the product."""
    if not attends_eagerly(spec) or isinstance(shape, EncoderDecoderShape):
        return 0
    return shape.num_heads * spec.work.seq_length * (4 + _width(spec))


def _softmax_backward_bytes(spec: RunSpec, shape: ModelShape) -> int:
    """Bytes per token for which the backward pass of eager attention needs more than its saved scores.

    torch's softmax on CUDA has four matrices in fp32 then: the scores, their gradient, the product of both and the
    result. The saved copy of the scores is freed before.
    """
    saved = _score_bytes(spec, shape)
    return shape.num_heads * spec.work.seq_length * 4 * 4 - saved if saved else 0


def _compiled_numbers(spec: RunSpec, shape: ModelShape) -> int:
    """Numbers that a compiled layer saves per token: counted from its formula, confirmed by measured peaks.

    Attention: the layer's input and its norm, q, k, v after rotation, the attention's output, the residual sum. MLP:
    its norm, gate, up and their product. Frozen linears need no input, so without adapters on the MLP its norm and the
    product are not saved; nor is the product where backward makes it anew. Fused adapters save q, k and v as one matrix
    beside the rotated q and k. 4-bit layers that are not fused cut the compiled graph, and the product is saved between
    the pieces.
    """
    hidden, lora = shape.hidden_size, spec.work.lora
    if isinstance(shape, EncoderDecoderShape):
        return (14 * hidden + shape.intermediate_size) // 2  # measured on two shapes; a layer sees half of the tokens
    if isinstance(shape, Gpt2Shape):
        return (16 if lora is None or any(target.startswith("mlp") for target in lora.targets) else 11) * hidden
    widths = _mean_layer(shape)
    if lora is None:
        return 4 * hidden + widths.query + widths.mixed + widths.kv + 3 * widths.inner + widths.saved
    fused = uses_fused_lora(spec)
    kept = 3 * hidden + widths.query + widths.mixed + widths.kv + 2 * widths.inner + widths.saved
    kept += widths.query + widths.kv // 2 if fused else 0
    if set(lora.targets) - shape.attention_linears.keys():
        return kept + hidden + (0 if makes_product_anew(spec) else widths.inner)
    return kept + (widths.inner if spec.work.quantisation and not fused else 0)


def _mean_layer(shape: DecoderShape | MixtralShape | ConfiguredShape) -> Layer:
    """The means of all layers' numbers per token. Not measured for a mixture of experts, whose token passes the MLPs of
    all experts that it visits.
    """
    names = ("query", "kv", "mixed", "inner", "saved")
    sums = {name: sum(getattr(layer, name) * count for layer, count in shape.layers) for name in names}
    return Layer((), **{name: numbers // shape.num_layers for name, numbers in sums.items()})


def _eager_bytes(spec: RunSpec, shape: ModelShape) -> int:
    """Bytes that a layer saves per token without compilation: a least-squares fit to measured peaks.

    Full runs of 6 shapes gave D (20 + 8 F/D + 4 KV/H) at 2 bytes (D hidden, F intermediate, KV/H share of k and v). A
    frozen linear saves no input; an adapter saves its input, or under autocast its cast copy of it. fp32 numbers
    between the layers cost about 16 D more, measured on one shape.
    """
    hidden, width = shape.hidden_size, _width(spec)
    if isinstance(shape, Gpt2Shape):
        return 41 * hidden * width
    if isinstance(shape, EncoderDecoderShape):
        return (
            (11 * hidden + 2 * shape.intermediate_size) * width // 2
        )  # fitted in fp16; a layer sees half of the tokens
    widths = _mean_layer(shape)
    attention = 3 * (widths.query + widths.mixed) + 2 * widths.kv
    kept = (14 * hidden + attention + 8 * widths.inner + 2 * widths.saved) * width // 2
    if spec.work.lora is not None:
        kept += width * (_adapter_inputs(spec, shape, spec.work.lora) - (2 * hidden + widths.mixed + widths.inner))
        # DeepSpeed's own linear layer keeps its input, also where the weight is frozen; measured on one shape.
        frozen_mlp = not set(spec.work.lora.targets) - shape.attention_linears.keys()
        if spec.placement.strategy is Strategy.ZERO3 and spec.work.quantisation is None and frozen_mlp:
            kept += width * widths.inner
    return kept + (16 * hidden if _stream_width(spec) > width else 0)


def _adapter_inputs(spec: RunSpec, shape: DecoderShape | MixtralShape | ConfiguredShape, lora: Lora) -> int:
    """Numbers per token that the adapters of one layer save as their inputs."""
    if _trainable_width(spec) > _width(spec):
        return sum(shape.linears[target][0] for target in set(lora.targets))
    of_attention = ("q_proj", "k_proj", "v_proj", "q_a_proj", "kv_a_proj_with_mqa")
    shared = dict.fromkeys(of_attention, "attention") | dict.fromkeys(("gate_proj", "up_proj"), "mlp")
    return sum({shared.get(target, target): shape.linears[target][0] for target in lora.targets}.values())


# --- what 'auto' may become, each with its need

SIZES = tuple(2**power for power in range(11))  # micro-batches that 'auto' considers


class Candidate(NamedTuple):
    """A spec without 'auto', the bytes it is predicted to need, and how many layers are checkpointed if not all are."""

    spec: RunSpec
    need: int
    checkpointed_layers: int = 0

    def __str__(self) -> str:
        checkpointing = "on" if self.spec.work.gradient_checkpointing else "off"
        if self.checkpointed_layers:
            checkpointing = f"in {self.checkpointed_layers} of {self.spec.work.shape.num_layers} layers"
        return f"micro-batch {self.spec.work.micro_batch_size}, checkpointing {checkpointing}"


def candidates(spec: RunSpec, memory: int) -> Iterator[Candidate]:
    """From the probably fastest to the one that needs least memory."""
    checkpointing = [False, True] if spec.work.gradient_checkpointing == AUTO else [spec.work.gradient_checkpointing]
    sizes = SIZES[::-1] if spec.work.micro_batch_size == AUTO else (spec.work.micro_batch_size,)
    for checkpoints in checkpointing:
        for size in sizes:
            whole = spec.changed(work={"gradient_checkpointing": checkpoints, "micro_batch_size": size})
            yield Candidate(whole, memory_need_bytes(whole, memory).total)
        if len(checkpointing) > 1 and not checkpoints and len(sizes) == 1:
            for layers, need in partly_checkpointed(whole, memory):
                yield Candidate(whole.changed(work={"gradient_checkpointing": True}), need, layers)


def predicted(spec: RunSpec, memory: int) -> Candidate:
    """The first candidate that fits `memory` bytes of a GPU by formula, else the one that needs least."""
    for candidate in candidates(spec, memory):
        if candidate.need <= USABLE_SHARE * memory:
            break
    return candidate


# --- the configuration of a known model and recipe that needs least, by which GPUs are chosen

SIZED = (
    "mistral-7b", "llama2-7b", "llama2-13b", "llama2-70b", "yi-34b", "mixtral-8x7b", "gpt2", "gpt2-medium",
    "gpt2-large",
)  # fmt: skip


def least(model: str, recipe: Recipe) -> RunSpec:
    """One sample of up to 2,048 tokens, checkpointing, 8-bit AdamW, fused and compiled."""
    fields: dict[str, Any] = {
        "model": model, "recipe": recipe,
        "preset": Preset.TUNED, "micro_batch_size": 1, "seq_length": min(2048, MODELS[model].max_positions),
        "gradient_checkpointing": True, "optimizer": Optimizer.ADAMW_8BIT,
    }  # fmt: skip
    if recipe is not Recipe.FULL:
        fields["lora"] = Lora(targets=lora_targets(MODELS[model], "all"))
    if recipe is Recipe.QLORA:
        fields["quantisation"] = Quantisation()
    return RunSpec(
        identity=Identity(campaign_id="sizing", run_id="run", group_id="group", node="gpu"), work=Work(**fields)
    )

"""Model shapes, and what follows from them by formula: parameters, FLOPs and memory. Needs neither torch nor a GPU."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field

from bench_image.contract import ContractError, Frozen, Lora, Optimizer, Precision, Preset, Recipe, RunSpec, Strategy


class DecoderShape(Frozen):
    """A decoder with RMS norms, rotary positions, grouped-query attention and a gated MLP; no biases."""

    family: Literal["mistral", "llama"]
    vocab_size: int = Field(ge=1)
    hidden_size: int = Field(ge=1)
    intermediate_size: int = Field(ge=1)
    num_layers: int = Field(ge=1)
    num_heads: int = Field(ge=1)
    num_kv_heads: int = Field(ge=1)
    tie_embeddings: bool = False
    max_positions: int = Field(ge=1)

    @property
    def kv_size(self) -> int:
        """Width of the key and of the value projection."""
        return self.hidden_size // self.num_heads * self.num_kv_heads

    @property
    def linears(self) -> dict[str, tuple[int, int]]:
        """Name -> (in, out) of the linear layers of one decoder layer."""
        hidden, inner, kv = self.hidden_size, self.intermediate_size, self.kv_size
        return {
            "q_proj": (hidden, hidden),
            "k_proj": (hidden, kv),
            "v_proj": (hidden, kv),
            "o_proj": (hidden, hidden),
            "gate_proj": (hidden, inner),
            "up_proj": (hidden, inner),
            "down_proj": (inner, hidden),
        }


def _llama2(hidden: int, inner: int, layers: int, heads: int, kv_heads: int) -> DecoderShape:
    return DecoderShape(
        family="llama", vocab_size=32_000, hidden_size=hidden, intermediate_size=inner, num_layers=layers,
        num_heads=heads, num_kv_heads=kv_heads, max_positions=4096,
    )  # fmt: skip


MODELS: dict[str, DecoderShape] = {
    # Small enough for a step of some tens of milliseconds on one CPU core; the widths suit 4-bit blocks of 64.
    "tiny": DecoderShape(
        family="mistral", vocab_size=1024, hidden_size=128, intermediate_size=384, num_layers=2, num_heads=4,
        num_kv_heads=2, max_positions=4096,
    ),
    "mistral-7b": DecoderShape(
        family="mistral", vocab_size=32_000, hidden_size=4096, intermediate_size=14_336, num_layers=32, num_heads=32,
        num_kv_heads=8, max_positions=32_768,
    ),
    "llama2-7b": _llama2(4096, 11_008, 32, 32, 32),
    "llama2-13b": _llama2(5120, 13_824, 40, 40, 40),
    "llama2-70b": _llama2(8192, 28_672, 80, 64, 8),
    "yi-34b": DecoderShape(
        family="llama", vocab_size=64_000, hidden_size=7168, intermediate_size=20_480, num_layers=60, num_heads=56,
        num_kv_heads=8, max_positions=4096,
    ),
}  # fmt: skip


class Flops(NamedTuple):
    """FLOPs of one token's training step. `model` is what the work needs, `hardware` what the GPU really computes."""

    model: float
    hardware: float


class MemoryNeed(NamedTuple):
    """Bytes of one GPU. `total` is less than the sum of the parts: not all of them live at the same time."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    total: int


def shape_of(model: str) -> DecoderShape:
    """Raises ContractError for an unknown model, naming the known ones."""
    try:
        return MODELS[model]
    except KeyError:
        raise ContractError(f"model '{model}' is not known: choose one of {', '.join(MODELS)}") from None


def num_parameters(shape: DecoderShape) -> int:
    """All parameters, embeddings and norms included; tied embeddings are counted once."""
    embeddings = shape.vocab_size * shape.hidden_size * (1 if shape.tie_embeddings else 2)
    norms = (2 * shape.num_layers + 1) * shape.hidden_size
    return embeddings + norms + _num_linear(shape)


def num_lora_parameters(shape: DecoderShape, lora: Lora) -> int:
    """Adapter parameters: rank * (in + out) for each target of each layer. Raises ContractError for unknown targets."""
    unknown = sorted(set(lora.targets) - shape.linears.keys())
    if unknown:
        raise ContractError(f"lora.targets {', '.join(unknown)}: choose from {', '.join(shape.linears)}")
    per_layer = sum(sum(shape.linears[target]) for target in set(lora.targets))
    return shape.num_layers * lora.rank * per_layer


def flops_per_token(
    shape: DecoderShape, recipe: Recipe, seq_length: int, lora: Lora | None, gradient_checkpointing: bool
) -> Flops:
    """FLOPs per token: 6N (full) or 4N + 6 N_lora (LoRA, QLoRA), plus 12 L D T for attention.

    N counts the matmul parameters with the head, without the input embedding. Frozen weights need no weight gradient,
    hence 4N. Attention is not halved for causality, as in PaLM (arXiv 2204.02311, appendix B) and torchtitan.
    Checkpointing recomputes the forward pass of the layers: that is hardware work, not model work.
    """
    layers = _num_linear(shape)
    matmul = layers + shape.vocab_size * shape.hidden_size
    adapters = num_lora_parameters(shape, lora) if lora else 0
    attention = 4 * shape.num_layers * shape.hidden_size * seq_length  # the forward pass; backward takes twice that
    model = (6 if recipe is Recipe.FULL else 4) * matmul + 6 * adapters + 3 * attention
    recomputed = 2 * layers + 2 * adapters + attention if gradient_checkpointing else 0
    return Flops(float(model), float(model + recomputed))


def memory_need_bytes(spec: RunSpec) -> MemoryNeed:
    """An estimate of the peak that torch allocates on one GPU of a single or ddp run.

    The peak is either at the loss (saved activations and logits) or in the backward pass (gradients and the layer at
    work). Gradients live on through the forward pass under ddp (buckets) and accumulation. Paged optimizer states
    count as 0: the driver may move them to the host, and torch does not count them. `weights` holds the narrow copies
    that autocast makes. Compiled layers keep fewer activations: for `tuned` without checkpointing this errs on the
    high side. Seven uncompiled or checkpointed runs on an H200 were within 5 % (see the tests); more must follow.
    Raises ContractError for an unknown model.
    """
    shape = shape_of(spec.model)
    trainable = num_lora_parameters(shape, spec.lora) if spec.lora else num_parameters(shape)
    tokens = spec.micro_batch_size * spec.seq_length

    weights = _weight_bytes(spec, shape)
    gradients = trainable * _trainable_width(spec)
    optimizer = round(trainable * _optimizer_width(spec))
    one_layer = tokens * _layer_activation_bytes(spec, shape)
    if spec.gradient_checkpointing:
        saved = tokens * shape.num_layers * shape.hidden_size * _stream_width(spec)
        activations, recomputed = saved + one_layer, one_layer
    else:
        activations = saved = shape.num_layers * one_layer
        recomputed = 0
    # fp32 logits, and about two more tensors of their size during the cross-entropy and its backward pass
    logits = 3 * 4 * tokens * shape.vocab_size
    persistent = spec.strategy is Strategy.DDP or spec.gradient_accumulation_steps > 1
    at_loss = saved + logits + (gradients if persistent else 0)
    in_backward = recomputed + (saved + gradients if persistent else max(saved, gradients))
    total = weights + optimizer + max(at_loss, in_backward)
    return MemoryNeed(weights, gradients, optimizer, activations, logits, total)


def _num_linear(shape: DecoderShape) -> int:
    return shape.num_layers * sum(inputs * outputs for inputs, outputs in shape.linears.values())


def _width(spec: RunSpec) -> int:
    """Bytes of a number in the run's precision."""
    return 4 if spec.precision is Precision.FP32 else 2


def _trainable_width(spec: RunSpec) -> int:
    """fp16 needs fp32 weights to unscale into, and PEFT keeps adapters in fp32 unless told otherwise."""
    peft_default = spec.lora is not None and spec.preset is Preset.AS_USERS_RUN
    return 2 if spec.precision is Precision.BF16 and not peft_default else 4


def _stream_width(spec: RunSpec) -> int:
    """Bytes of a number between the layers: the width of the embeddings."""
    if spec.recipe is Recipe.FULL:
        return _trainable_width(spec)
    upcast = spec.recipe is Recipe.QLORA and spec.preset is Preset.AS_USERS_RUN  # prepare_model_for_kbit_training
    return 4 if upcast else _width(spec)


def _optimizer_width(spec: RunSpec) -> float:
    """Bytes of AdamW's two states per trainable parameter; the 8-bit ones have fp32 scales per block of 256."""
    return {
        Optimizer.ADAMW_TORCH: 2.0 * _trainable_width(spec),
        Optimizer.ADAMW_8BIT: 2 + 2 * 4 / 256,
        Optimizer.PAGED_ADAMW_8BIT: 0.0,
    }[spec.optimizer]


def _weight_bytes(spec: RunSpec, shape: DecoderShape) -> int:
    total, linear, head = num_parameters(shape), _num_linear(shape), shape.vocab_size * shape.hidden_size
    width, stream = _width(spec), _stream_width(spec)
    if spec.lora is None:
        return total * stream + (width * (linear + head) if width < stream else 0)
    adapters = num_lora_parameters(shape, spec.lora) * _trainable_width(spec)
    if spec.quantisation is None:
        return total * width + adapters
    # nf4: half a byte, and per block of 64 an fp32 scale; or an 8-bit scale, and an fp32 scale per 256 blocks
    packed = 0.5 + (1 / 64 + 4 / (64 * 256) if spec.quantisation.double else 4 / 64)
    return round(linear * packed) + (total - linear) * stream + (width * head if width < stream else 0) + adapters


def _layer_activation_bytes(spec: RunSpec, shape: DecoderShape) -> int:
    """Bytes that one layer keeps per token for its backward pass, with fused attention.

    D (20 + 8 F/D + 4 KV/H) at 2 bytes: a least-squares fit over full runs of 6 shapes. A frozen linear keeps no input;
    an adapter keeps its own, or under autocast (adapters wider than the run's precision) its own cast copy of it.
    fp32 numbers between the layers cost about 16 D more: measured on one shape.
    """
    hidden, inner, width = shape.hidden_size, shape.intermediate_size, _width(spec)
    kept = (20 * hidden + 8 * inner + 4 * shape.kv_size) * width // 2
    if spec.lora is not None:
        kept += width * (_adapter_inputs(spec, shape, spec.lora) - (3 * hidden + inner))
    return kept + (16 * hidden if _stream_width(spec) > width else 0)


def _adapter_inputs(spec: RunSpec, shape: DecoderShape, lora: Lora) -> int:
    """Numbers per token that the adapters of one layer keep as their inputs."""
    if _trainable_width(spec) > _width(spec):
        return sum(shape.linears[target][0] for target in set(lora.targets))
    shared = {"q_proj": "attention", "k_proj": "attention", "v_proj": "attention", "gate_proj": "mlp", "up_proj": "mlp"}
    return sum({shared.get(target, target): shape.linears[target][0] for target in lora.targets}.values())

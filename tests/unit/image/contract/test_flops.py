"""Parameters and FLOPs by formula, against cases computed by hand and published counts."""

from __future__ import annotations

import pytest

from bench_image.contract.flops import (
    flops_per_token,
    lora_targets,
    num_lora_parameters,
    num_parameters,
    num_quantisable,
    tokens_per_sample,
)
from bench_image.contract.frozen import ContractError
from bench_image.contract.model_shapes import (
    MODELS,
    DecoderShape,
    EncoderDecoderShape,
    Gpt2Shape,
    MixtralShape,
    ModelShape,
)
from bench_image.contract.options import Recipe
from bench_image.contract.work import Lora

ALL_LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
MISTRAL_7B = MODELS["mistral-7b"]

# Small enough to count on paper: head width 4, so keys and values are 4 wide.
# One layer: q 8*8 + k 8*4 + v 8*4 + o 8*8 + gate 8*16 + up 8*16 + down 16*8 = 576 matmul parameters.
PAPER = DecoderShape(
    family="llama", vocab_size=10, hidden_size=8, intermediate_size=16, num_layers=3, num_heads=2, num_kv_heads=1,
    max_positions=32,
)  # fmt: skip
# The same with 4 experts, of which a token visits 2. One layer: attention 192, experts 4 * 3*8*16 = 1536, router 8*4.
MIXTRAL = MixtralShape(**PAPER.model_dump(exclude={"family"}), family="mixtral", num_experts=4, num_experts_per_token=2)
# One layer: 8*24 + 8*8 + 8*32 + 32*8 = 768.
GPT2 = Gpt2Shape(family="gpt2", vocab_size=10, hidden_size=8, num_layers=3, num_heads=2, max_positions=32)
# Encoder layer: 4*8*8 + 2*8*16 = 512; decoder layer, with cross-attention: 8*8*8 + 2*8*16 = 768.
ENCODER_DECODER = EncoderDecoderShape(
    family="encoder-decoder", vocab_size=10, hidden_size=8, intermediate_size=16, num_encoder_layers=1,
    num_decoder_layers=1, num_heads=2,
)  # fmt: skip


@pytest.mark.parametrize(
    ("model", "count"),
    [
        ("mistral-7b", 7_241_732_096),
        ("mistral-7b-v0.3", 7_248_023_552),  # 7,241,732,096 + 2 * 768 * 4096
        ("llama2-7b", 6_738_415_616),
        ("llama2-13b", 13_015_864_320),
        ("llama2-70b", 68_976_648_192),
        ("yi-34b", 34_388_917_248),
        ("mixtral-8x7b", 46_702_792_704),
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
    ],
)
def test_parameter_counts_are_those_of_the_published_models(model: str, count: int) -> None:
    assert num_parameters(MODELS[model]) == count


@pytest.mark.parametrize(
    ("shape", "count"),
    [
        (PAPER, 160 + 1728 + 56),  # 2 embeddings of 10*8, 3 layers of 576, and 3*2 + 1 norms of 8
        (PAPER.model_copy(update={"tie_embeddings": True}), 80 + 1728 + 56),
        (MIXTRAL, 160 + 3 * (192 + 1536 + 32) + 56),
        (GPT2, (10 + 32) * 8 + 3 * 768 + 3 * 13 * 8 + 2 * 8),  # positions; norms and biases
        # Embedding 80, head 80 + 10. Encoder: 512 + biases 32 + 24 + 2 norms of 16, final norm 16. Decoder: 768 +
        # biases 64 + 24 + 3 norms of 16, final norm 16.
        (ENCODER_DECODER, 170 + 616 + 920),
    ],
)
def test_parameters_by_hand(shape: ModelShape, count: int) -> None:
    assert num_parameters(shape) == count


def test_the_routers_of_a_mixture_are_not_packed_into_4_bits() -> None:
    assert num_quantisable(MIXTRAL) == 5280 - 3 * 32


@pytest.mark.parametrize(
    ("targets", "count"),
    [
        # r * 32 layers * (2 * (4096 + 4096) + 2 * (4096 + 1024)): 16 * 32 * 26,624
        (("q_proj", "k_proj", "v_proj", "o_proj"), 13_631_488),
        # ... and 3 * (4096 + 14336) more per layer: 16 * 32 * 81,920
        (ALL_LINEARS, 41_943_040),
        (("q_proj", "q_proj"), 16 * 32 * 8192),
    ],
)
def test_lora_parameters_of_mistral_7b_at_rank_16(targets: tuple[str, ...], count: int) -> None:
    assert num_lora_parameters(MISTRAL_7B, Lora(rank=16, targets=targets)) == count


def test_an_unknown_lora_target_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ContractError, match=r"lora\.targets c_attn: choose from q_proj, k_proj"):
        num_lora_parameters(MISTRAL_7B, Lora(targets=("q_proj", "c_attn")))


ON_Q = Lora(rank=2, targets=("q_proj",))


@pytest.mark.parametrize(
    ("shape", "recipe", "tokens", "lora", "checkpointed", "flops"),
    [
        # 6 * (1728 + head 80) + 12 * 3 layers * 8 wide * 4 tokens = 10,848 + 1,152
        (PAPER, Recipe.FULL, 4, None, 0, (12_000, 12_000)),
        # The layers' forward pass comes again: 2 * 1728 + 4 * 3 * 8 * 4 = 3,840 more, but for the hardware only
        (PAPER, Recipe.FULL, 4, None, 1, (12_000, 15_840)),
        (PAPER, Recipe.FULL, 4, None, 0.5, (12_000, 13_920)),
        # Frozen weights need no weight gradient. Adapters on q at rank 2: 3 * 2 * 16 = 96. 4 * 1808 + 6 * 96 + 1152 =
        # 8,960; again 3456 + 192 + 384 = 4,032
        (PAPER, Recipe.LORA, 4, ON_Q, 1, (8_960, 12_992)),
        (PAPER, Recipe.QLORA, 4, ON_Q, 1, (8_960, 12_992)),
        # 6 * 7,110,393,856 + 12 * 32 * 4096 * 2048
        (MISTRAL_7B, Recipe.FULL, 2048, None, 1, (45_883_588_608, 60_915_974_144)),
        # Two of four experts: 6 * (3 * (192 + 2 * 384 + 32) + head 80) + 1,152 for attention
        (MIXTRAL, Recipe.FULL, 4, None, 0, (19_488, 19_488)),
        # Half of the tokens pass the encoder, half the decoder and the head: 6 * (640 + 40) + 3 * 4*8*4 * (1 + 2) / 2
        (ENCODER_DECODER, Recipe.FULL, 4, None, 0, (4_656, 4_656)),
    ],
)
def test_flops_by_hand(
    shape: ModelShape, recipe: Recipe, tokens: int, lora: Lora | None, checkpointed: float, flops: tuple[int, int]
) -> None:
    assert flops_per_token(shape, recipe, tokens, lora, checkpointed) == flops


def test_an_encoder_decoder_reads_two_sequences() -> None:
    assert (tokens_per_sample(ENCODER_DECODER, 256), tokens_per_sample(GPT2, 256)) == (512, 256)


def test_the_linears_to_adapt() -> None:
    assert lora_targets(MISTRAL_7B, "all") == tuple(sorted(ALL_LINEARS))
    assert lora_targets(MISTRAL_7B, "attention") == ("k_proj", "o_proj", "q_proj", "v_proj")
    assert lora_targets(GPT2, "attention") == ("attn.c_attn", "attn.c_proj")
    assert lora_targets(MIXTRAL, "all") == lora_targets(MIXTRAL, "attention")
    assert lora_targets(ENCODER_DECODER, "all") == ()

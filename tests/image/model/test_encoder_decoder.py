"""The encoder-decoder model: its size, its FLOPs, its masks, its numerics."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from bench_image.contract.flops import flops_per_token, num_parameters
from bench_image.contract.model_shapes import EncoderDecoderShape
from bench_image.contract.options import Recipe
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Preset
from bench_image.data.batches import POOL_STEPS
from bench_image.model.build import build
from bench_image.model.encoder_decoder import EncoderDecoder, attend, sinusoids
from bench_image.parallel.process_group import ProcessGroup
from bench_image.training.train_step import TrainStep
from tests.builders.image_processes import make_spec

CPU = torch.device("cpu")
SMALL = EncoderDecoderShape(
    family="encoder-decoder", vocab_size=50, hidden_size=16, intermediate_size=24, num_encoder_layers=2,
    num_decoder_layers=3, num_heads=2, max_positions=64,
)  # fmt: skip


def spec_of(shape: EncoderDecoderShape = SMALL, **changes: object) -> RunSpec:
    fields = {"model": "encoder-decoder", "dimensions": shape, "recipe": Recipe.FULL, "precision": "fp32",
              "gradient_checkpointing": False, "seq_length": 12} | changes  # fmt: skip
    return make_spec(**fields)


def model_of(shape: EncoderDecoderShape = SMALL, **changes: object) -> EncoderDecoder:
    model = build(spec_of(shape, **changes), CPU).model
    assert isinstance(model, EncoderDecoder)
    return model


def ids_of(batch: int, seq: int) -> torch.Tensor:
    return torch.randint(SMALL.vocab_size, (batch, 2 * seq), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("shape", [EncoderDecoderShape(family="encoder-decoder"), SMALL])
def test_the_module_has_as_many_parameters_as_the_formula_says(shape: EncoderDecoderShape) -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in EncoderDecoder(shape).parameters()) == num_parameters(shape)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_flops_are_those_that_torch_counts(checkpointing: bool) -> None:
    """Forward and backward. Torch counts every matmul, and none of what the formula leaves out.

    A checkpointed layer stops its second forward pass once it has what the backward pass wants: the last matmul of
    each layer, hidden x intermediate, is not done again.
    """
    model, ids = model_of(gradient_checkpointing=checkpointing), ids_of(3, 12)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(input_ids=ids, labels=ids).loss.backward()

    flops = flops_per_token(SMALL, Recipe.FULL, 12, None, checkpointing)
    spared = 2 * (2 + 3) * 3 * 12 * 16 * 24 if checkpointing else 0
    assert counter.get_total_flops() == flops.hardware * ids.numel() - spared


@pytest.mark.parametrize(("token", "first_changed"), [(11, 0), (12 + 5, 6)], ids=["source", "target"])
def test_a_token_changes_the_logits_that_may_see_it(token: int, first_changed: int) -> None:
    """A source token all of them; a target token those after it: position t is predicted from the targets before t."""
    model, ids = model_of(), ids_of(2, 12)
    before = model(input_ids=ids, labels=ids).logits
    changed = ids.clone()
    changed[:, token] = (changed[:, token] + 1) % SMALL.vocab_size
    after = model(input_ids=changed, labels=changed).logits

    torch.testing.assert_close(after[:, :first_changed], before[:, :first_changed], rtol=0, atol=1e-6)
    assert (after[:, first_changed:] - before[:, first_changed:]).abs().amax(dim=(0, 2)).min() > 1e-5


@pytest.mark.parametrize("checkpoints", [False, True])
def test_attention_without_copies_and_checkpointed_layers_give_the_same_gradients(checkpoints: bool) -> None:
    """Self-attention of the encoder, causal one of the decoder, and attention of the decoder to the source."""
    plain, other, ids = model_of(), model_of(gradient_checkpointing=checkpoints), ids_of(2, 12)
    for module in [] if checkpoints else other.modules():
        if isinstance(module, torch.nn.MultiheadAttention):
            module.forward = functools.partial(attend, module)  # type: ignore[method-assign]
    for model in (plain, other):
        model(input_ids=ids, labels=ids).loss.backward()

    for (name, mine), theirs in zip(other.named_parameters(), plain.parameters(), strict=True):
        assert mine.grad is not None, name
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_the_loss_is_that_of_the_target_half() -> None:
    """Small weights make an untrained model guess: ln(50) = 3.91. The loss follows the labels of the second half."""
    model, ids = model_of(), ids_of(4, 12)
    output = model(input_ids=ids, labels=ids)
    by_hand = -output.logits.log_softmax(-1).gather(-1, ids[:, 12:, None]).mean()

    assert output.loss.item() == pytest.approx(math.log(50), rel=0.02)
    assert output.loss.item() == pytest.approx(by_hand.item(), rel=1e-5)


def test_positions_are_sines_and_cosines() -> None:
    """D = 4: frequencies 1 and 1/100."""
    table = sinusoids(3, 4, CPU)

    expected = [math.sin(2), math.cos(2), math.sin(0.02), math.cos(0.02)]
    assert table[2].tolist() == pytest.approx(expected, abs=1e-6)
    assert torch.equal(model_of().positions, sinusoids(64, 16, CPU))


@pytest.mark.parametrize("width", [23, 130])
def test_a_width_that_the_model_cannot_take_is_refused(width: int) -> None:
    ids = torch.zeros(1, width, dtype=torch.long)
    with pytest.raises(ValueError, match=f"ids of width {width}: .* max_positions 64: an even width of at most 128"):
        model_of()(input_ids=ids, labels=ids)


@pytest.mark.parametrize("preset", list(Preset))
@pytest.mark.parametrize(("precision", "seen"), [("fp16", torch.float16), ("bf16", torch.bfloat16), ("fp32", None)])
def test_mixed_precision_keeps_fp32_weights_but_for_bf16_under_tuned(
    preset: Preset, precision: str, seen: torch.dtype | None
) -> None:
    spec = spec_of(precision=precision, preset=preset, micro_batch_size=4)
    step = TrainStep(spec, build(spec, CPU), ProcessGroup(CPU))
    outputs: list[torch.dtype] = []
    linear = step.model.decoder.layers[0].linear1  # type: ignore[union-attr, index]
    linear.register_forward_hook(lambda _module, _args, output: outputs.append(output.dtype))
    losses = [float(step()) for _ in range(12)]

    narrow = precision == "bf16" and preset is Preset.TUNED
    assert {p.dtype for p in step.model.parameters()} == {torch.bfloat16 if narrow else torch.float32}
    assert set(outputs) == {seen or torch.float32}
    assert step.optimizer_step.scaler.is_enabled() == (precision == "fp16")
    assert all(math.isfinite(loss) for loss in losses)
    again = list(zip(losses, losses[POOL_STEPS:], strict=False))  # the same batches
    assert narrow or all(late < early for early, late in again)  # bf16 weights lose such small updates to rounding

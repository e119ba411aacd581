"""Fused adapters: PEFT's losses and gradients, for every kind of weight, and PEFT's own path where they differ."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from bench_image.contract.options import Precision, Recipe
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Lora, Preset, Quantisation
from bench_image.kernels import lora_linear as lora_linear_module
from bench_image.kernels.fused_lora import FusedLayers, fuse
from bench_image.kernels.lora_linear import lora_linear
from bench_image.model.architectures import layers_of
from bench_image.model.build import build
from tests.builders.image_processes import make_spec

CPU = torch.device("cpu")
SEVEN = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
TARGETS = {"all": SEVEN, "attention": SEVEN[:4], "not k": ("q_proj", "v_proj")}


def make_model(spec: RunSpec) -> Any:
    """With adapters that matter: B is 0 at first, and A would get no gradient."""
    model = build(spec, CPU).model
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(0, 0.02, generator=generator)
    return model


def trained(model: Any, tokens: int = 32) -> tuple[float, dict[str, torch.Tensor]]:
    ids = torch.randint(1024, (2, tokens), generator=torch.Generator().manual_seed(2))
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    return loss.item(), {n: p.grad.float() for n, p in model.named_parameters() if p.requires_grad}


def tuned(recipe: Recipe, **changes: Any) -> RunSpec:
    return make_spec(**{"recipe": recipe, "preset": Preset.TUNED, "gradient_checkpointing": False} | changes)


def largest_difference(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    assert set(ours) == set(theirs)
    return max(float((ours[name] - theirs[name]).norm() / theirs[name].norm()) for name in theirs)


def num_layers(fused: tuple[FusedLayers, ...]) -> int:
    return sum(len(siblings.layers) for siblings in fused)


def compared(spec: RunSpec) -> tuple[int, tuple[float, float], float]:
    """How many layers are fused; the losses with and without; and the largest difference of gradients."""
    loss, gradients = trained(make_model(spec))
    fused = make_model(spec)
    count = num_layers(fuse(fused))
    fused_loss, fused_gradients = trained(fused)
    return count, (fused_loss, loss), largest_difference(fused_gradients, gradients)


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        *(
            (recipe, {"lora": Lora(targets=each)})
            for recipe in (Recipe.LORA, Recipe.QLORA)
            for each in TARGETS.values()
        ),
        (Recipe.QLORA, {"quantisation": Quantisation(double=False)}),
        (Recipe.QLORA, {"gradient_checkpointing": True}),  # the layers run twice
    ],
)
def test_losses_and_gradients_are_pefts(recipe: Recipe, changes: dict[str, Any]) -> None:
    spec = tuned(recipe, **{"precision": Precision.FP32} | changes)
    count, (fused_loss, loss), difference = compared(spec)

    assert spec.work.lora
    assert count == 2 * (len(spec.work.lora.targets) if recipe is Recipe.LORA else 7)
    assert fused_loss == pytest.approx(loss, rel=1e-6)
    assert difference < 1e-5


@pytest.mark.parametrize("recipe", [Recipe.LORA, Recipe.QLORA])
def test_bf16_differs_by_rounding_only(recipe: Recipe) -> None:
    """Both are rounded at other places; fp32 weights of the same draw say which error is usual."""
    _, (fused_loss, loss), difference = compared(tuned(recipe, lora=Lora(targets=SEVEN)))

    assert fused_loss == pytest.approx(loss, abs=2e-3)
    assert difference < 0.03


def test_no_layer_keeps_the_product_within_its_mlp() -> None:
    """Kept of the MLP's width are the outputs of gate and up alone; and two layers are one graph."""
    from torch._dynamo.utils import counters

    model = make_model(tuned(Recipe.LORA, precision=Precision.FP32, lora=Lora(targets=SEVEN)))
    fuse(model)
    layers = layers_of(model.base_model.model)
    for layer in layers:
        layer.compile(backend="aot_eager", fullgraph=True)
    kept: list[torch.Tensor] = []
    counters.clear()
    ids = torch.randint(1024, (2, 32), generator=torch.Generator().manual_seed(2))
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        model(input_ids=ids, labels=ids)

    wide = [tensor for tensor in kept if tensor.shape == (2, 32, model.config.intermediate_size)]
    assert len(wide) == 2 * len(layers)
    assert counters["stats"]["unique_graphs"] <= 2  # the first layer's input needs no gradient


@pytest.mark.parametrize("targets", list(TARGETS.values()), ids=list(TARGETS))
def test_weights_that_stay_unpacked_are_unpacked_once(
    targets: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same numbers, to the bit: backward reads what it would have unpacked."""
    unpacked: list[torch.Size] = []

    def counted(out: torch.Tensor, weight: list[torch.Tensor]) -> None:
        unpacked.append(out.shape)
        unpack_into(out, weight)

    unpack_into = lora_linear_module._unpack_into
    monkeypatch.setattr(lora_linear_module, "_unpack_into", counted)
    seen = []
    for keep_unpacked in (False, True):
        unpacked.clear()
        model = make_model(tuned(Recipe.QLORA, lora=Lora(targets=targets)))
        for siblings in fuse(model):
            siblings.keep_unpacked = keep_unpacked
        seen.append((trained(model), len(unpacked)))
    ((loss, gradients), times), ((kept_loss, kept_gradients), kept_times) = seen

    assert kept_times == 2 * 7  # two layers of seven weights
    assert times > kept_times
    assert kept_loss == loss
    assert all(torch.equal(kept_gradients[name], gradient) for name, gradient in gradients.items())


def test_parameters_and_their_names_stay_and_siblings_share_one_block_of_memory() -> None:
    spec = tuned(Recipe.LORA, lora=Lora(targets=SEVEN))
    plain, fused = make_model(spec).state_dict(), make_model(spec)
    fuse(fused)
    attention = fused.base_model.model.model.layers[0].self_attn
    weights = [getattr(attention, name).base_layer.weight for name in ("q_proj", "k_proj", "v_proj")]

    assert list(fused.state_dict()) == list(plain)
    for name, value in fused.state_dict().items():
        assert torch.equal(value, plain[name])
    assert len({weight.untyped_storage().data_ptr() for weight in weights}) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"recipe": Recipe.LORA, "lora": Lora(dropout=0.1)},
        {"recipe": Recipe.QLORA, "preset": Preset.AS_USERS_RUN, "lora": Lora(targets=SEVEN)},  # wider adapters
        {"recipe": Recipe.FULL},
    ],
)
def test_what_is_not_fused_stays_with_peft(changes: dict[str, Any]) -> None:
    spec = make_spec(**{"preset": Preset.TUNED, "gradient_checkpointing": False} | changes)
    assert fuse(build(spec, CPU).model) == ()


@pytest.mark.parametrize(
    ("recipe", "keep_unpacked"), [(Recipe.LORA, False), (Recipe.QLORA, False), (Recipe.QLORA, True)]
)
def test_all_layers_but_the_first_share_one_graph(recipe: Recipe, keep_unpacked: bool) -> None:
    """Otherwise 32 layers would compile 32 times, or not at all. The first one's input needs no gradient."""
    from torch._dynamo.utils import counters

    model = make_model(tuned(recipe, lora=Lora(targets=SEVEN)))
    for siblings in fuse(model):
        siblings.keep_unpacked = keep_unpacked
    layers = model.base_model.model.model.layers
    layers.extend([layers[1]])
    torch.compiler.reset()
    counters.clear()
    for layer in layers:
        layer.compile(backend="aot_eager", dynamic=False)
    trained(model)

    assert counters["stats"]["unique_graphs"] == 2
    assert not counters["graph_break"]


def test_gpt2_layers_with_biases_and_turned_weights() -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel

    config: Any = GPT2Config
    torch.manual_seed(0)
    base = GPT2LMHeadModel(
        config(vocab_size=1024, n_embd=64, n_layer=2, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=0,
               resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    )  # fmt: skip
    nn.init.normal_(base.transformer.h[0].attn.c_attn.bias)
    model: Any = get_peft_model(base, LoraConfig(r=4, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, 0, 0.02)
    loss, gradients = trained(model)
    model.zero_grad()

    assert num_layers(fuse(model)) == 2 * 3
    fused_loss, fused_gradients = trained(model)
    assert fused_loss == pytest.approx(loss, rel=1e-6)
    assert largest_difference(fused_gradients, gradients) < 1e-5


def test_the_operation_keeps_torchs_rules() -> None:
    """Shapes as its stand-in for tracing says, no hidden aliasing."""
    x, a, b = torch.randn(2, 3, 8), torch.randn(4, 8), torch.randn(10, 2)
    weights = [torch.randn(6, 8), torch.randn(4, 8)]

    torch.library.opcheck(
        lora_linear, (x, weights, [6, 4], a, b, 0.5, False), test_utils=("test_schema", "test_faketensor")
    )


def test_by_hand() -> None:
    """x = (1, 2); W = (3, 4), A = (1, 1), B = (2), scale 0.5: 3 + 8 + 0.5 * 2 * (1 + 2) = 14."""
    x, weight = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]])
    out, down, kept = lora_linear(x, [weight], [1], torch.ones(1, 2), torch.tensor([[2.0]]), 0.5, True)

    assert (out.item(), down.item()) == (14, 3)
    assert kept.numel() == 0  # a weight that is not packed is there in backward anyway

"""`tuned` takes out of transformers' forward pass the questions about masks, and nothing else."""

from __future__ import annotations

import functools
import sys
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from bench_image.contract.options import Attention, Precision, Recipe
from bench_image.contract.work import Preset
from bench_image.kernels.fused_lora import fuse
from bench_image.model.architectures import layers_of
from bench_image.model.build import build
from bench_image.model.compile import MASKS, cache_own_operations, compile_layers, leave_masks_out
from tests.builders.distributed_runs import GPT2
from tests.builders.image_processes import make_spec

CPU = torch.device("cpu")
IDS = torch.randint(512, (2, 32), generator=torch.Generator().manual_seed(3))


def library_of(base: Any) -> Any:
    return sys.modules[type(getattr(base, base.base_model_prefix)).__module__]


@pytest.mark.parametrize("model", [{}, GPT2], ids=["llama", "gpt2"])
def test_the_loss_is_the_same_and_the_gpu_is_never_read(model: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    base: Any = build(make_spec(recipe=Recipe.FULL, gradient_checkpointing=False, **model), CPU).base
    before = base(input_ids=IDS, labels=IDS).loss
    question = Mock(return_value=None)
    monkeypatch.setattr(library_of(base), "create_causal_mask", question)
    leave_masks_out(base, IDS.shape[1])

    assert torch.equal(base(input_ids=IDS, labels=IDS).loss, before)
    question.assert_not_called()
    assert library_of(base).create_causal_mask is question  # other models of the process are left alone


def test_a_window_shorter_than_the_sequence_keeps_its_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    base: Any = build(make_spec(recipe=Recipe.FULL, gradient_checkpointing=False), CPU).base
    question = Mock(return_value=None)
    for name in MASKS:
        monkeypatch.setattr(library_of(base), name, question, raising=False)
    base.config.sliding_window = IDS.shape[1]
    leave_masks_out(base, IDS.shape[1])
    base(input_ids=IDS, labels=IDS)

    question.assert_called_once()


def test_a_model_without_masks_of_transformers_is_unchanged() -> None:
    leave_masks_out(torch.nn.Linear(2, 2), 32)


@pytest.mark.parametrize(
    ("changes", "compiled", "without_masks"),
    [
        ({"preset": "as_users_run"}, False, False),
        ({"preset": "as_users_run", "compile": True}, True, False),
        ({"preset": "tuned"}, True, True),
        ({"preset": "tuned", "compile": False}, False, False),
    ],
)
def test_compile_decides_beside_the_preset(changes: dict[str, Any], compiled: bool, without_masks: bool) -> None:
    """The model lies on the CPU: torch compiles a layer only when it runs."""
    spec = make_spec(
        recipe=Recipe.FULL, gradient_checkpointing=False, device="cuda", optimizer="adamw_torch", **changes
    )
    base: Any = build(spec, CPU).base

    assert all((layer._compiled_call_impl is not None) == compiled for layer in layers_of(base))
    assert ("forward" in vars(base)) == without_masks


@pytest.mark.parametrize("preset", list(Preset))
def test_eager_attention_is_as_causal_as_the_fused_one(preset: Preset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its mask it would see the tokens that it is to predict, and so `tuned` leaves the mask in."""
    monkeypatch.setattr("bench_image.model.compile.compiles_as_tuned", lambda spec: spec.work.preset is Preset.TUNED)
    fields = {"recipe": Recipe.FULL, "gradient_checkpointing": False, "precision": "fp32", "preset": preset}
    fused, eager = (build(make_spec(attention=attention, **fields), CPU).base for attention in (None, Attention.EAGER))

    assert eager.config._attn_implementation == "eager"
    assert float(eager(input_ids=IDS, labels=IDS).loss) == pytest.approx(
        float(fused(input_ids=IDS, labels=IDS).loss), abs=1e-5
    )


@pytest.mark.parametrize(
    ("recipe", "precision"),
    [(Recipe.LORA, Precision.BF16), (Recipe.QLORA, Precision.BF16), (Recipe.LORA, Precision.FP8)],
)
def test_torch_may_cache_a_layer_with_fused_adapters(recipe: Recipe, precision: Precision) -> None:
    """torch caches no graph with an autograd function, except where told to: then a warm start traces it again."""
    from torch._functorch import config
    from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache, check_cacheable

    spec = make_spec(recipe=recipe, preset=Preset.TUNED, precision=precision, gradient_checkpointing=False)
    base = build(spec, CPU).base
    assert fuse(base)
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _inputs: object) -> Any:
        graphs.append(graph)
        return graph.forward

    x = torch.randn(1, 32, spec.work.shape.hidden_size, dtype=torch.bfloat16)
    positions = base.model.rotary_emb(x, torch.arange(32)[None])
    torch.compile(layers_of(base)[0], backend=backend, fullgraph=True)(x, position_embeddings=positions)
    with config.patch(autograd_cache_allow_custom_autograd_functions=False):
        with pytest.raises(BypassAOTAutogradCache):
            check_cacheable(graphs[0])
        cache_own_operations()
        check_cacheable(graphs[0])


@pytest.mark.parametrize("recipe", [Recipe.FULL, Recipe.LORA])
def test_a_layer_compiled_for_zero3_saves_no_view_of_its_weights(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeepSpeed frees a weight after forward by giving the parameter other memory; a saved view would hold the old."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    built = build(make_spec(recipe=recipe, gradient_checkpointing=False, precision="fp32"), CPU)
    compile_layers(built.base, within_hooks=True)
    matrices = [weight for layer in layers_of(built.base) for weight in layer.parameters() if weight.dim() == 2]
    stride_of = {weight.untyped_storage().data_ptr(): weight.stride() for weight in matrices}
    saved: list[torch.Tensor] = []

    def remember(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
        built.model(input_ids=IDS, labels=IDS)
    strides = [(tensor.stride(), stride_of.get(tensor.untyped_storage().data_ptr())) for tensor in saved]
    of_weights = [(own, whole) for own, whole in strides if whole]

    assert len(of_weights) >= len(layers_of(built.base))
    assert all(own == whole for own, whole in of_weights)

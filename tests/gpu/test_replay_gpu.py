"""A step as one CUDA graph on a GPU: the losses of the same step launched kernel by kernel, and its memory."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from bench_image.contract.options import Optimizer, Precision, Recipe
from bench_image.contract.preset_switches import uses_cuda_graph
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Device, Lora, Preset
from bench_image.model.build import build
from bench_image.parallel.process_group import ProcessGroup
from bench_image.training.train_step import TrainStep

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]
CASES: dict[str, dict[str, Any]] = {
    "full": {"recipe": Recipe.FULL},
    "full, fp8": {"recipe": Recipe.FULL, "precision": Precision.FP8},
    "full, accumulating": {"recipe": Recipe.FULL, "gradient_accumulation_steps": 2},
    "lora": {"recipe": Recipe.LORA, "lora": Lora(targets=("q_proj", "v_proj"))},
    "lora, fp8": {"recipe": Recipe.LORA, "precision": Precision.FP8},
    "qlora, weights kept unpacked": {"recipe": Recipe.QLORA},
    "qlora, checkpointing": {"recipe": Recipe.QLORA, "gradient_checkpointing": True},
    "gpt2": {"recipe": Recipe.FULL, "model": "gpt2"},
    "gpt2, fp16": {"recipe": Recipe.FULL, "model": "gpt2", "precision": Precision.FP16},
    "encoder-decoder": {"recipe": Recipe.FULL, "model": "encoder-decoder"},
    "encoder-decoder, fp16": {"recipe": Recipe.FULL, "model": "encoder-decoder", "precision": Precision.FP16},
}


def spec_of(case: str) -> RunSpec:
    from tests.builders.image_processes import make_spec

    fields = {
        "device": Device.CUDA, "preset": Preset.TUNED, "optimizer": Optimizer.ADAMW_TORCH, "seq_length": 256,
        "gradient_checkpointing": False, "warmup_steps": 4,
    }  # fmt: skip
    return make_spec(**fields | CASES[case])


def losses(spec: RunSpec, monkeypatch: pytest.MonkeyPatch, replayed: bool, steps: int = 9) -> tuple[list[float], int]:
    """Of the first steps, the last one on the samples of the first; and the peak of bytes that torch allocated."""
    device = torch.device("cuda", 0)
    monkeypatch.setattr("bench_image.optimizer.adamw.LEARNING_RATE", 1e-3)
    uses_graph = uses_cuda_graph if replayed else lambda _: False
    monkeypatch.setattr("bench_image.training.train_step.uses_cuda_graph", uses_graph)
    torch.compiler.reset()
    gc.collect()  # models of earlier cases must not count
    step = TrainStep(spec, build(spec, device), ProcessGroup(device))
    seen = [step().item() for _ in range(3)]
    torch.cuda.reset_peak_memory_stats()
    seen += [step().item() for _ in range(steps - 3)]
    assert (step.cuda_graph is not None) is replayed
    return seen, step.cuda_graph.peak_bytes if step.cuda_graph else torch.cuda.max_memory_allocated()


@pytest.mark.parametrize("case", CASES)
def test_losses_and_memory_are_those_of_single_launches(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(case)
    assert uses_cuda_graph(spec)
    (launched, launched_bytes), (replayed, replayed_bytes) = (losses(spec, monkeypatch, on) for on in (False, True))

    assert launched[-1] < launched[0]
    assert replayed == pytest.approx(launched, abs=2e-3)
    assert replayed_bytes == pytest.approx(launched_bytes, rel=0.1, abs=80e6)  # a graph has a workspace of cuBLAS more


@pytest.mark.parametrize("case", CASES)
def test_each_layer_is_one_compiled_graph(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch cuts a layer silently where it cannot follow the code, and then compiles each of the pieces."""
    from torch._dynamo.utils import counters

    counters.clear()
    losses(spec_of(case), monkeypatch, replayed=False, steps=3)

    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] <= 3  # the first layer, the others, the loss

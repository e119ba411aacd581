"""Real weights: a checkpoint that transformers saved, read back into the benchmark's own model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from bench_image.contract.flops import lora_targets
from bench_image.contract.frozen import ContractError
from bench_image.contract.model_shapes import MODELS, DecoderShape, Gpt2Shape, ModelShape
from bench_image.contract.options import Precision, Recipe
from bench_image.contract.work import Lora
from bench_image.model import checkpoint
from bench_image.model.build import build
from tests.builders.image_processes import make_spec
from tests.image.contract.test_flops_against_transformers import TINY_GPT2, TINY_MIXTRAL, built_model

CPU = torch.device("cpu")
TINY = MODELS["tiny"]
IDS = torch.arange(40).reshape(2, 20)


def saved(shape: ModelShape, folder: Path, **settings: Any) -> Path:
    """A checkpoint with other weights than the benchmark would draw."""
    model = built_model(shape, "cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    model.save_pretrained(folder, **settings)
    return folder


def loss_of(**changes: Any) -> float:
    model = build(make_spec(recipe=Recipe.FULL, precision=Precision.FP32, **changes), CPU).model
    return float(model(input_ids=IDS, labels=IDS).loss)


@pytest.mark.parametrize("shape", [TINY, TINY_GPT2], ids=lambda shape: shape.family)
@pytest.mark.parametrize("settings", [{}, {"max_shard_size": "200KB"}], ids=["one-file", "sharded"])
def test_the_model_computes_what_transformers_computes(
    tmp_path: Path, shape: ModelShape, settings: dict[str, Any]
) -> None:
    folder = saved(shape, tmp_path, **settings)
    auto: Any = AutoModelForCausalLM
    theirs = float(auto.from_pretrained(folder)(input_ids=IDS, labels=IDS).loss)

    assert loss_of(dimensions=shape, weights=str(folder)) == pytest.approx(theirs, abs=1e-5)
    assert loss_of(dimensions=shape) != pytest.approx(theirs, abs=1e-3)


def test_adapters_are_drawn_beside_real_weights(tmp_path: Path) -> None:
    """lora_B is zero, so the loss is the base model's."""
    folder = saved(TINY, tmp_path)
    lora = Lora(targets=lora_targets(TINY, "all"))
    spec = make_spec(recipe=Recipe.LORA, lora=lora, precision=Precision.FP32, weights=str(folder))
    model = build(spec, CPU).model

    assert float(model(input_ids=IDS, labels=IDS).loss) == pytest.approx(loss_of(weights=str(folder)), abs=1e-5)


@pytest.mark.parametrize(
    ("shape", "difference"),
    [
        (TINY.model_copy(update={"num_layers": 3}), r"num_layers 2 \(model: 3\)"),
        (TINY.model_copy(update={"family": "llama"}), r"family mistral \(model: llama\)"),
    ],
)
def test_weights_of_another_model_are_refused(tmp_path: Path, shape: DecoderShape, difference: str) -> None:
    with pytest.raises(ContractError, match=difference):
        loss_of(model="x", dimensions=shape, weights=str(saved(TINY, tmp_path)))


def test_weights_that_are_not_there_are_refused(tmp_path: Path) -> None:
    (saved(TINY, tmp_path) / "model.safetensors").unlink()
    for folder, message in ((tmp_path / "absent", "there is no such folder"), (tmp_path, "only safetensors are read")):
        with pytest.raises(ContractError, match=message):
            loss_of(weights=str(folder))
    (tmp_path / "config.json").write_text("{}")  # what transformers raises is the weights' fault, and no GPU's
    with pytest.raises(ContractError, match="model 'tiny' cannot be built: ValueError: Unrecognized model"):
        loss_of(weights=str(tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *(
            (json.dumps({"weight_map": {"lm_head.weight": name}}), "only files beside the index are read")
            for name in ("../model.safetensors", "/etc/passwd", "a/b.safetensors", "", "..")
        ),
        *(
            (content, "no index of safetensors files")
            for content in ("", "[]", "{}", '{"weight_map": [1]}', '{"weight_map": {"a": 1}}', "[" * 5000)
        ),
    ],
)
def test_an_index_that_is_broken_or_leads_out_of_its_folder_is_refused(
    tmp_path: Path, content: str, message: str
) -> None:
    (tmp_path / checkpoint.INDEX).write_text(content)
    with pytest.raises(ContractError, match=message):
        checkpoint.files_of(tmp_path)


def test_mixtral_checkpoints_are_refused_with_the_reason() -> None:
    with pytest.raises(ContractError, match="store the weights in another layout"):
        loss_of(model="x", dimensions=TINY_MIXTRAL, weights="mistralai/Mixtral-8x7B-v0.1@abc1234")


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    shape = Gpt2Shape(family="gpt2", vocab_size=512, hidden_size=64, num_layers=2, num_heads=4)
    folder = saved(shape, tmp_path, max_shard_size="200KB")
    index = folder / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("h.1.mlp.c_fc.weight", "h.9.mlp.c_fc.weight"))
    with pytest.raises(ContractError, match=r"hold no tensor 'transformer\.h\.1\.mlp\.c_fc\.weight'"):
        loss_of(model="x", dimensions=shape, weights=str(folder))


def test_the_revision_of_a_hub_id_is_loaded_and_a_hub_that_cannot_be_reached_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []

    def download(repository: str, **wanted: object) -> str:
        calls.append((repository, wanted["revision"]))
        raise OSError("far enough")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with pytest.raises(ContractError, match="org/name@abc1234' cannot be downloaded from the hub \\(OSError\\)"):
        loss_of(weights="org/name@abc1234")
    assert calls == [("org/name", "abc1234")]

"""The shapes of the known models, and what no shape may be."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from bench_image.contract.frozen import ContractError
from bench_image.contract.model_shapes import MODELS, SAME_SHAPE, ModelShape, known_name, shape_of


def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ContractError,
        match=r"model 'mistral-8b' is not known: choose one of tiny, mistral-7b, mistral-7b-v0.3, llama2-7b",
    ):
        shape_of("mistral-8b")


def test_the_instruct_model_has_the_shape_of_its_base_model() -> None:
    """mistralai/Mistral-7B-Instruct-v0.3, config.json: vocabulary 32,768, hidden 4096, inner 14,336, 32 layers, 32
    heads, 8 of them for keys and values.
    """
    shape = shape_of(str(known_name("Mistral-7B-Instruct-v0.3")))
    assert shape.model_dump() == shape_of("mistral-7b-v0.3").model_dump()
    assert (shape.vocab_size, shape.hidden_size, shape.num_layers, shape.num_heads) == (32_768, 4096, 32, 32)
    assert known_name("my-own") == "my-own"
    assert known_name("My-Own") == "My-Own"
    assert set(SAME_SHAPE.values()) <= set(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_every_known_model_is_a_shape_that_survives_its_own_json(name: str) -> None:
    shapes: TypeAdapter[Any] = TypeAdapter(ModelShape)

    assert shapes.validate_json(MODELS[name].model_dump_json()) == MODELS[name]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_heads": 3}, "num_heads 3 must divide hidden_size 4096"),
        ({"num_kv_heads": 7}, "num_kv_heads 7 must divide num_heads 32"),
        ({"hidden_size": 0}, "greater than or equal to 1"),
        ({"num_experts_per_token": 9}, "num_experts_per_token 9 > num_experts 8"),
        ({"num_experts": None}, "valid integer"),
        ({"width": 8}, "Extra inputs are not permitted"),
    ],
)
def test_a_shape_that_cannot_be_built_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        type(MODELS["mixtral-8x7b"]).model_validate(MODELS["mixtral-8x7b"].model_dump() | wrong)


def test_the_tiers_have_the_width_and_depth_of_the_strategy_comparison() -> None:
    assert [(s.hidden_size, s.num_layers) for s in (MODELS["tier-a"], MODELS["tier-b"]) if s.family == "llama"] == [
        (1024, 16), (2048, 32),
    ]  # fmt: skip

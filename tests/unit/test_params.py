"""Params: what is refused says which value is wrong, what is allowed and what to do; the form holds every field."""

from __future__ import annotations

import re
from typing import Any

import jsonschema
import pytest

from bench_control.params import LOCAL_DEFAULTS, BenchmarkParams, ParamsError, form, parse_params
from bench_control.verdicts import ReferenceMode


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"model": "gpt9"}, ["model", "gpt9", "tiny", "mistral-7b"]),
        ({"nodes": []}, ["nodes", "zero nodes", "discover"]),
        ({"nodes": ["../../x"]}, ["../../x", "Kubernetes node name"]),
        ({"nodes": ["a", "a"]}, ["named twice"]),
        ({"micro_batch_size": 0}, ["micro_batch_size is 0", "1 to 65536"]),
        ({"seq_length": float("nan")}, ["seq_length", "finite", "8 to 1048576"]),
        ({"recipe": "qlorra"}, ["qlorra", "full, lora, qlora"]),
        ({"strategies": []}, ["strategies", "at least 1"]),
        ({"precision": "fp16"}, ["fp16", "qlora", "bf16"]),
        ({"max_measured_steps": 5}, ["max_measured_steps 5", "measured_steps 17"]),
        ({"reference": "fixed"}, ["fixed_samples_per_second"]),
        ({"drill_node": "d", "nodes": ["a", "b", "c"]}, ["drill_node 'd'", "a, b, c"]),
        ({"batch": 8}, ["batch is not a parameter", "micro_batch_size"]),
    ],
)
def test_wrong_input_is_refused_in_words(wrong: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ParamsError) as refusal:
        parse_params(wrong)

    assert all(word in str(refusal.value) for word in words), str(refusal.value)


def test_defaults_are_the_node_check_of_the_design() -> None:
    params = parse_params({})

    assert (params.micro_batch_size, params.seq_length, params.lora_rank) == (8, 512, 16)
    assert (params.optimizer, params.precision, params.gradient_checkpointing) == ("paged_adamw_8bit", "bf16", True)
    assert (params.warmup_steps, params.repeats * params.measured_steps) == (20, 51)
    assert params.tolerances.samples_per_second_pct == 5.0
    assert params.tolerances.memory_pct == 2.0
    assert params.tolerances.temperature_c == 10.0
    assert params.tolerances.reference is ReferenceMode.LEAVE_ONE_OUT_MEDIAN


def test_what_is_given_wins_over_the_defaults() -> None:
    params = parse_params({"rounds": 1}, LOCAL_DEFAULTS)

    assert params.rounds == 1
    assert params.model == LOCAL_DEFAULTS["model"]


@pytest.mark.parametrize("defaults", [{}, LOCAL_DEFAULTS])
def test_every_field_of_the_form_has_section_title_help_and_a_valid_default(defaults: dict[str, Any]) -> None:
    fields = form(defaults)

    assert list(fields) == list(BenchmarkParams.model_fields)
    for name, field in fields.items():
        assert all(field[key] for key in ("section", "title", "description_md")), name
        jsonschema.validate(field["default"], {k: v for k, v in field.items() if k != "default"})


def test_the_form_draws_dropdowns_and_refuses_what_the_parser_refuses() -> None:
    fields = form()

    assert fields["recipe"]["enum"] == ["full", "lora", "qlora"]
    assert "mistral-7b" in fields["model"]["enum"]
    assert fields["strategies"]["examples"] == ["single", "ddp"]
    assert (fields["micro_batch_size"]["minimum"], fields["micro_batch_size"]["maximum"]) == (1, 65536)
    assert not re.match(fields["nodes"]["items"]["pattern"], "../../x")

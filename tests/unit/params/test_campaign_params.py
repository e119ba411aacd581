"""Params: what is refused says which value is wrong, what is allowed and what to do; the form holds every field."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel

from bench_image.contract.spec import Measurement
from bench_image.contract.work import WorkSettings
from trainbench.core.verdicts import LevelSource, Metric
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import FIELDS, LOCAL_DEFAULTS, ONLY, applies_to, form, parse_params
from trainbench.params.refusals import ParamsError


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"nodes": []}, ["nodes", "zero nodes", "discover"]),
        ({"nodes": ["../../x"]}, ["../../x", "Kubernetes node name"]),
        ({"nodes": ["a", "a"]}, ["named twice"]),
        ({"seq_length": float("nan")}, ["seq_length", "finite"]),
        ({"micro_batch_size": "largest"}, ["micro_batch_size is 'largest'", "give a whole number", "'auto'"]),
        ({"gradient_checkpointing": "maybe"}, ["gradient_checkpointing is 'maybe'", "give true or false", "'auto'"]),
        ({"model": "a b"}, ["model is 'a b'", "the path of a config.json"]),
        ({"model": "mine", "dimensions": "{x"}, ["dimensions is '{x'", "not a JSON object"]),
        ({"model": "mine", "dimensions": [1]}, ["dimensions is [1]", "dictionary"]),
        ({"model": "mine", "dimensions": {"family": "gpt3"}}, ["dimensions", "'gpt3'", "'encoder-decoder'"]),
        (
            {"model": "mine", "dimensions": {"family": "gpt2", "hidden_size": 7, "num_layers": 1, "num_heads": 2}},
            ["dimensions.gpt2", "num_heads 2 must divide hidden_size 7"],
        ),
        (
            {"model": "mine", "dimensions": {"family": "gpt2", "hidden_size": 0, "num_layers": 1, "num_heads": 1}},
            ["dimensions.gpt2.hidden_size is 0", "give at least 1"],
        ),
        (
            {"model": "gpt2", "dimensions": {"family": "gpt2", "hidden_size": 8, "num_layers": 1, "num_heads": 1}},
            ["model 'gpt2' has dimensions of its own", "another name"],
        ),
        ({"max_measured_steps": 5}, ["max_measured_steps 5", "measured_steps 17"]),
        ({"also_red": ["samples_per_second"]}, ["also_red", "samples_per_second", "memory_gb", "temperature_c"]),
        ({"levels": "mine"}, ["levels is 'mine'", "'none', 'shipped' or 'own'"]),
        ({"drill_node": "d", "nodes": ["a", "b", "c"]}, ["drill_node 'd'", "a, b, c"]),
        ({"drill_node": "a", "noise_floor": True}, ["drill_node with noise_floor", "drop one"]),
        ({"micro_batchsize": 8}, ["micro_batchsize is not a parameter (did you mean 'micro_batch_size'"]),
        ({"strategies": ["fspd"]}, ["strategies is 'fspd' (did you mean 'fsdp'?)"]),
        ({"model": "mistral7b"}, ["model is 'mistral7b': not a known model (did you mean 'mistral-7b'"]),
        ({"models": ["lama2-7b"]}, ["'lama2-7b' is not known (did you mean 'llama2-7b'"]),
        ({"own_variants": {"mine": {"lora_rnk": 8}}}, ["'mine' changes lora_rnk (did you mean 'lora_rank'?)"]),
        ({"own_variants": {"fp16": {"lora_rank": 8}}}, ["'fp16' cannot be a name"]),
        ({"own_variants": {"mine": {}}}, ["'mine' changes nothing"]),
        ({"work": {"seq_length": 8}}, ["work is not a parameter", "seq_length"]),
    ],
)
def test_wrong_input_is_refused_with_a_sentence(wrong: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ParamsError) as refusal:
        parse_params(wrong)

    assert all(word in str(refusal.value) for word in words), str(refusal.value)


def test_defaults_are_the_node_check_of_the_design() -> None:
    params = parse_params({})

    assert (params.work.micro_batch_size, params.work.seq_length, params.work.lora.rank) == (8, 512, 16)
    assert (params.work.optimizer, params.work.precision, params.work.gradient_checkpointing) == (None, "bf16", None)
    assert (params.measurement.warmup_steps, params.measurement.repeats * params.measurement.measured_steps) == (20, 51)
    limits = params.tolerances
    assert (limits.samples_per_second_pct, limits.past_pct, limits.memory_pct, limits.temperature_c) == (5, 1.5, 2, 10)
    assert (params.levels, params.also_red) == (LevelSource.SHIPPED, ())


def test_the_limits_of_the_form_are_those_of_the_judgement() -> None:
    chosen = {
        "past_tolerance_pct": 3,
        "memory_tolerance_pct": 4,
        "temperature_tolerance_c": 5,
        "also_red": ["memory_gb"],
    }
    limits = parse_params(chosen).tolerances

    assert (limits.past_pct, limits.memory_pct, limits.temperature_c, limits.also_red) == (3, 4, 5, (Metric.MEMORY_GB,))


def test_parameters_of_0_1_0_are_read_without_the_two_that_are_gone() -> None:
    """A stored campaign has both; a person who gives one of them is told that there is none."""
    old = {"seq_length": 256, "reference": "fixed", "fixed_samples_per_second": 9.5}

    assert parse_params(old) == parse_params({"seq_length": 256})


@pytest.mark.parametrize("defaults", [{}, LOCAL_DEFAULTS])
def test_every_field_of_the_form_has_section_title_help_and_a_valid_default(defaults: dict[str, Any]) -> None:
    fields = form(defaults)

    assert set(fields) == set(FIELDS)
    for name, field in fields.items():
        assert all(field[key] for key in ("section", "title", "description_md")), name
        jsonschema.validate(field["default"], {k: v for k, v in field.items() if k != "default"})


@pytest.mark.parametrize("part", [WorkSettings, Measurement])
def test_each_setting_of_the_contract_is_a_field_of_the_form(part: type[BaseModel]) -> None:
    """With the section, title and help that the contract gives it, and no second declaration."""
    fields = form()

    for name, info in part.model_fields.items():
        assert (fields[name]["title"], fields[name]["description_md"]) == (info.title, info.description)


def test_parameters_are_written_as_the_form_shows_them_and_read_back() -> None:
    params = parse_params({"lora_rank": 4, "data_num_shards": 3, "double_quantisation": "off", "repeats": 2})
    written = params.model_dump(mode="json")

    assert written.keys() == FIELDS.keys()
    assert [written[name] for name in ("lora_rank", "data_num_shards", "double_quantisation", "repeats")] == [
        4,
        3,
        False,
        2,
    ]
    assert parse_params(written) == params


def test_a_changed_copy_is_checked_and_keeps_the_rest() -> None:
    params = parse_params({"lora_rank": 4, "recipe": "full"})

    assert params.changed(recipe="lora").model_dump() == params.model_dump() | {"recipe": "lora"}
    with pytest.raises(ParamsError, match="seq_length is 4"):
        params.changed(seq_length=4)


@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [
        ("micro_batch_size", ["auto", "8", "65536", 8], ["0", 0, "largest", "-1", "8.5", 65537, None]),
        ("gradient_checkpointing", ["on", "off", "auto", None], ["maybe", ""]),
        ("optimizer", ["adamw_torch", None], ["sgd", ""]),
        ("model", ["tiny", "mine-7b", "/m/config.json", "org/mine@1f"], ["", "a b"]),
        ("dimensions", [None, {"family": "gpt2"}], ["{}", 1, []]),
        ("data_folder", [None, "/scratch/data"], [""]),
        ("data_num_shards", [None, 4], [0, "4"]),
        ("lora_targets", ["attention", "all"], ["mlp"]),
    ],
)
def test_the_form_takes_what_it_should_and_nothing_else(name: str, allowed: list[Any], refused: list[Any]) -> None:
    schema = {k: v for k, v in form()[name].items() if k != "default"}

    for value in allowed:
        jsonschema.validate(value, schema)
    for value in refused:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(value, schema)


@pytest.mark.parametrize(
    "defaults", [{}, LOCAL_DEFAULTS, {"micro_batch_size": "auto", "gradient_checkpointing": "off"}]
)
def test_the_form_left_as_it_is_gives_the_defaults(defaults: dict[str, Any]) -> None:
    assert parse_params({name: field["default"] for name, field in form(defaults).items()}) == parse_params(defaults)


@pytest.mark.parametrize(
    ("given", "name", "parsed"),
    [
        ("auto", "micro_batch_size", "auto"),
        ("4", "micro_batch_size", 4),
        ("on", "gradient_checkpointing", True),
        ("off", "gradient_checkpointing", False),
        (True, "gradient_checkpointing", True),
        ("auto", "gradient_checkpointing", "auto"),
        ("", "gradient_checkpointing", None),
        ("", "optimizer", None),
        ("", "data_folder", None),
        ("", "dimensions", None),
    ],
)
def test_text_from_the_form_and_the_command_line_is_read(given: Any, name: str, parsed: Any) -> None:
    assert parse_params({name: given}).model_dump()[name] == parsed


@pytest.mark.parametrize("nothing", [None, {}, "", " ", "{}"])
def test_no_dimensions_are_those_of_the_model(nothing: object) -> None:
    assert parse_params({"dimensions": nothing}).work.dimensions is None


@pytest.mark.parametrize(("params", "rounds"), [({}, 5), ({"rounds": 1}, 5), ({"rounds": 8}, 8)])
def test_a_noise_floor_takes_five_rounds_or_more(params: dict[str, Any], rounds: int) -> None:
    assert parse_params({"noise_floor": "true", **params}).rounds == rounds
    assert parse_params(params).rounds == params.get("rounds", 1)


def test_the_limit_of_a_cpu_trial_is_wider_and_that_of_a_gpu_is_not() -> None:
    """A CPU's 15 % hold against its own past too; a GPU's 5 % and 1.5 % stay, also on one machine."""
    cpu = parse_params({}, LOCAL_DEFAULTS).tolerances
    gpu = parse_params({"device": "cuda"}, LOCAL_DEFAULTS).tolerances

    assert (cpu.samples_per_second_pct, cpu.past_pct) == (15.0, 15.0)
    assert (gpu.samples_per_second_pct, gpu.past_pct) == (5.0, 1.5)
    assert parse_params({"samples_per_second_tolerance_pct": 12}, LOCAL_DEFAULTS).tolerances.past_pct == 12.0


def test_a_gpu_chosen_in_a_trial_s_form_is_held_to_the_gpu_s_limit() -> None:
    """The form of a local trial begins with `cpu` and sends every field back: 15 % would hide a slow GPU."""
    sent = {name: field["default"] for name, field in form(LOCAL_DEFAULTS).items()}

    assert parse_params(sent).tolerances.samples_per_second_pct == 15.0
    assert parse_params(sent | {"device": "cuda"}).tolerances.samples_per_second_pct == 5.0


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("nodes", "nodes strategies configurations hardware interconnect noise"),
        ("variants", "configurations"),
        ("models", "hardware"),
        ("drill_node", "nodes noise"),
        ("min_gpu_use_pct", "nodes strategies configurations hardware interconnect noise"),
        ("rounds", "nodes configurations hardware noise"),
        ("reference", "nodes strategies configurations hardware interconnect noise"),  # of 0.1.0
    ],
)
def test_a_parameter_belongs_to_the_kinds_of_its_section_or_to_its_own(name: str, kinds: str) -> None:
    assert [kind for kind in CampaignKind if applies_to(name, kind)] == kinds.split()
    assert ONLY.keys() <= FIELDS.keys()


def test_the_instruct_model_is_the_same_work_as_its_base_model() -> None:
    params = parse_params({"model": "Mistral-7B-Instruct-v0.3", "models": ["Mistral-7B-Instruct-v0.3"]})
    assert params.work == parse_params({"model": "mistral-7b-v0.3"}).work
    assert params.models == ("mistral-7b-v0.3",)

"""Plan: which runs, in which order, under which readable ids, and what is skipped and why."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bench_image.contract.spec import IDENTIFIER
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import FIELDS, form, parse_params
from trainbench.planning.nodes import AbsentNode, Fleet, GpuNode, named_nodes
from trainbench.planning.plan import (
    Plan,
    PlanError,
    campaign_id,
    confirm_specs,
    identifier,
    make_plan,
    refuse_more_pods_than,
    unknown_gpus,
)
from trainbench.planning.planners import PLANNERS

NODES = ("node-1", "node-2", "node-3")


def plan(**params: Any) -> Plan:
    return make_plan(parse_params(params), Fleet(nodes=named_nodes(NODES)), "campaign-1")


MINE = {"family": "gpt2", "hidden_size": 64, "num_layers": 2, "num_heads": 4}
# Free text, and what is not the preset's own value.
OTHERS: dict[str, dict[str, Any]] = {
    "model": {"model": "tiny"},
    "dimensions": {"model": "mine", "dimensions": MINE},
    "weights": {"weights": "/checkpoint"},
    "data_folder": {"data_folder": "/data"},
    "gradient_checkpointing": {"gradient_checkpointing": "auto"},
    "attention": {"attention": "eager"},
}
NEEDS = {"data_num_samples": {"data_folder": "/data"}, "data_num_shards": {"data_folder": "/data"}}


def another(name: str) -> dict[str, Any]:
    """The field with a value that is not its default, by its schema."""
    schema = form()[name]
    default = schema["default"]
    if name in OTHERS:
        return OTHERS[name]
    if "enum" in schema:
        return {name: next(choice for choice in schema["enum"] if choice not in (default, None))}
    if schema["type"] == "boolean":
        return {name: not default}
    return {name: float(default) + 0.5 if schema["type"] == "number" else int(default or 1) + 1}


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, field in FIELDS.items()
        if field.path[0] in ("work", "measurement") and "own_job" not in field.path  # tests/unit/image/contract has it
    ],
)
def test_each_setting_of_the_form_reaches_the_spec_and_its_fingerprint(name: str) -> None:
    """A new one too: nothing copies them by name."""
    needs = NEEDS.get(name, {})
    (usual, *_), (changed, *_) = plan(**needs).specs, plan(**needs | another(name)).specs

    assert (changed.work, changed.measurement) != (usual.work, usual.measurement)
    assert changed.fingerprint != usual.fingerprint


def test_a_drill_slows_one_node_and_changes_neither_group_nor_fingerprint() -> None:
    drilled, plain = plan(drill_node="node-2", drill_slowdown_pct=20), plan()

    assert [spec.identity.node for spec in drilled.specs if spec.drill] == ["node-2"]
    assert drilled.specs[1].identity.group_id == plain.specs[1].identity.group_id


def test_suspects_and_controls_run_twice_more_round_by_round_with_the_same_work_and_fault() -> None:
    drilled = plan(rounds=2, drill_node="node-2", strategies=["single", "ddp"], gpus_per_node=2)
    again = confirm_specs(drilled, suspects=["node-2"], controls=["node-1"])

    assert [(spec.identity.round, spec.placement.strategy.value, spec.identity.node) for spec in again] == [
        (round_, strategy, node) for round_ in (3, 4) for strategy in ("single", "ddp") for node in ("node-1", "node-2")
    ]
    assert {spec.identity.node for spec in again if spec.drill} == {"node-2"}
    assert again[1].identity.run_id.endswith("-node-2-r3")
    assert {spec.fingerprint for spec in again} == {spec.fingerprint for spec in drilled.specs}


def test_a_gang_over_max_map_length_is_refused_before_anything_runs() -> None:
    """One mapped task has its 6 pods: a limit of 6 takes them, one of 5 does not. Other runs go in blocks."""
    nodes = [f"node-{number}" for number in range(6)]
    params = parse_params({"nodes": nodes, "world_sizes": [6], "strategies": ["ddp"], "gpus_per_node": 1})
    gang = make_plan(params, Fleet(), "campaign-1", CampaignKind.STRATEGIES)

    refuse_more_pods_than(6, gang)
    refuse_more_pods_than(5, plan(nodes=nodes, rounds=3, strategies=["single"]))
    with pytest.raises(PlanError) as refused:
        refuse_more_pods_than(5, gang)
    assert "6 pods of one gang are more than Airflow maps in one task: [core] max_map_length is 5" in str(refused.value)
    assert "Raise it to 6 or more (AIRFLOW__CORE__MAX_MAP_LENGTH" in str(refused.value)


def test_impossible_strategies_are_skipped_with_the_reason_on_every_node() -> None:
    """Two GPUs are unknown here; fp16 and zero2 do not go together anywhere."""
    ddp, zero2 = plan(strategies=["single", "ddp", "zero2"], precision="fp16").skipped

    assert (ddp.what, ddp.nodes, zero2.what, zero2.nodes) == ("strategy ddp", NODES, "strategy zero2", NODES)
    assert "at least 2 GPUs" in ddp.reason
    assert "fp16" in zero2.reason


def test_a_preset_brings_its_own_optimizer_and_checkpointing_unless_they_are_set() -> None:
    as_users_run, tuned = plan().specs[0], plan(preset="tuned").specs[0]
    spec = plan(preset="tuned", optimizer="adamw_8bit", gradient_checkpointing="off").specs[0]

    assert (as_users_run.work.optimizer, as_users_run.work.gradient_checkpointing) == ("paged_adamw_8bit", True)
    assert (tuned.work.optimizer, tuned.work.gradient_checkpointing) == ("adamw_torch", "auto")
    assert (spec.work.optimizer, spec.work.gradient_checkpointing) == ("adamw_8bit", False)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"precision": "fp16", "strategies": ("zero2",), "gpus_per_node": 2}, ["fp16", "zero2", "choose bf16"]),
        ({"model": "encoder-decoder"}, ["encoder-decoder", "choose full"]),
        ({"model": "gpt2", "seq_length": 2048}, ["seq_length 2048", "1024 positions of 'gpt2'"]),
    ],
)
def test_what_does_not_go_together_says_so(params: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(PlanError) as refusal:
        plan(**params)

    assert all(word in str(refusal.value) for word in words), str(refusal.value)


A10 = {"gpu_product": "NVIDIA-A10", "gpu_memory_bytes": 24 * 2**30}
H200 = {"gpu_product": "NVIDIA-H200", "gpu_memory_bytes": 140 * 2**30}
FULL_7B = {"recipe": "full", "optimizer": "adamw_torch", "micro_batch_size": 1}


def test_what_cannot_fit_is_skipped_there_with_need_and_memory() -> None:
    """Weights, gradients and AdamW states alone are 8 bytes for each of 7.24e9 parameters: 57.9 GB."""
    nodes = (GpuNode(name="a10-1", **A10), GpuNode(name="h200-1", **H200), GpuNode(name="a10-2", **A10))
    planned = make_plan(parse_params(FULL_7B), Fleet(nodes=nodes), "campaign-1")
    (skipped,) = planned.skipped

    assert [spec.identity.node for spec in planned.specs] == ["h200-1"]
    assert (skipped.what, skipped.nodes) == ("strategy single on a10-1 and a10-2", ("a10-1", "a10-2"))
    assert re.search(r"needs about (5[89]|6\d)\.\d GB of GPU memory, .*NVIDIA-A10.* has 25\.8 GB", skipped.reason)
    assert "force" in skipped.reason
    assert skipped.group_id == planned.specs[0].identity.group_id


def test_nothing_that_fits_is_an_error_with_the_figures() -> None:
    with pytest.raises(PlanError, match=r"strategy single: needs about \d+\.\d GB of GPU memory"):
        make_plan(parse_params(FULL_7B), Fleet(nodes=(GpuNode(name="a10-1", **A10),)), "campaign-1")


def test_what_the_program_may_choose_is_judged_by_the_choice_that_needs_least() -> None:
    settings = {"recipe": "lora", "micro_batch_size": "auto", "gradient_checkpointing": "auto"}

    assert make_plan(parse_params(settings), Fleet(nodes=(GpuNode(name="a10-1", **A10),)), "campaign-1").skipped == ()


def night(*gpus: int | None, **params: Any) -> Plan:
    """The default of the nightly check, on nodes with these numbers of allocatable GPUs: a, b, c ..."""
    nodes = tuple(GpuNode(name=name, num_gpus=number) for name, number in zip("abcdef", gpus, strict=False))
    return make_plan(PLANNERS[CampaignKind.NODES].params(params, locally=False), Fleet(nodes=nodes), "campaign-1")


def work_of(planned: Plan) -> list[tuple[str, str, int]]:
    return [(spec.identity.node, spec.placement.strategy.value, spec.placement.gpus_per_node) for spec in planned.specs]


def test_the_default_night_leaves_no_gpu_unmeasured() -> None:
    planned = night(8, 8)

    assert work_of(planned) == [("a", "independent", 8), ("b", "independent", 8), ("a", "ddp", 8), ("b", "ddp", 8)]
    spec = planned.specs[0]
    assert (spec.work.preset, spec.work.optimizer, spec.work.gradient_checkpointing) == ("tuned", "adamw_torch", "auto")
    assert (spec.work.model, spec.work.recipe, spec.work.micro_batch_size, spec.work.seq_length) == (
        "mistral-7b",
        "qlora",
        8,
        512,
    )
    assert spec.work.lora is not None
    assert (spec.work.lora.rank, spec.work.precision, spec.measurement.max_window_s) == (16, "bf16", 5.0)


def test_ddp_of_the_night_has_long_samples_so_that_the_host_does_not_set_its_pace() -> None:
    """Measured on two H200s: standard deviation 6 % at 512 tokens, 0.05 % at 1,024. GPT-2 has 1,024 positions."""
    tokens = {spec.placement.strategy.value: spec.work.seq_length for spec in night(2).specs}

    assert tokens == {"independent": 512, "ddp": 1024}
    assert {spec.work.seq_length for spec in night(2, model="gpt2", recipe="full").specs} == {512, 1024}
    assert {spec.work.seq_length for spec in night(2, multi_gpu_seq_length=None, seq_length=256).specs} == {256}


def test_nodes_of_4_and_of_8_gpus_are_one_group_by_gpu_and_two_by_interconnect() -> None:
    planned = night(4, 8)
    groups = {(spec.identity.node, spec.placement.strategy.value): spec.identity.group_id for spec in planned.specs}

    assert work_of(planned) == [("a", "independent", 4), ("b", "independent", 8), ("a", "ddp", 4), ("b", "ddp", 8)]
    assert groups["a", "independent"] == groups["b", "independent"]
    assert groups["a", "ddp"] != groups["b", "ddp"]
    assert groups["a", "independent"] == f"mistral-7b-qlora-independent-b8-s512-{planned.specs[0].fingerprint}"
    assert planned.nodes_by_group[groups["a", "ddp"]] == ("a",)
    assert planned.gpus_per_node == (4, 8)


def test_a_node_whose_gpus_nobody_counted_is_named() -> None:
    planned = night(None, 8)

    assert work_of(planned)[0] == ("a", "independent", 1)
    assert unknown_gpus(planned) == "how many GPUs a has is not known, so one is measured: set gpus_per_node"
    assert unknown_gpus(night(8)) is None
    assert unknown_gpus(night(None, gpus_per_node=8)) is None


def test_a_trial_without_gpus_is_one_process_for_each_node() -> None:
    params = PLANNERS[CampaignKind.NODES].params({}, locally=True)
    planned = make_plan(params, Fleet(nodes=named_nodes(NODES)), "campaign-1")

    assert {
        (spec.placement.strategy.value, spec.placement.gpus_per_node, spec.work.device.value) for spec in planned.specs
    } == {("independent", 1, "cpu")}
    assert (planned.gpus_per_node, planned.skipped, unknown_gpus(planned)) == ((), (), None)


def test_a_node_with_too_few_gpus_is_skipped_for_that_strategy_only() -> None:
    nodes = (GpuNode(name="big", num_gpus=8), GpuNode(name="small", num_gpus=1))
    planned = make_plan(
        parse_params({"strategies": ["single", "zero3"], "gpus_per_node": 4}), Fleet(nodes=nodes), "campaign-1"
    )
    (skipped,) = planned.skipped

    assert [(s.identity.node, s.placement.strategy.value) for s in planned.specs] == [
        ("big", "single"), ("small", "single"), ("big", "zero3"),
    ]  # fmt: skip
    assert skipped.what == "strategy zero3 on small"
    assert skipped.reason == "needs at least 2 GPUs per node, the node has 1"


def test_nothing_to_run_is_an_error_that_says_why() -> None:
    with pytest.raises(PlanError, match="ddp: needs at least 2 GPUs"):
        plan(strategies=["ddp"])
    with pytest.raises(PlanError, match="no nodes"):
        make_plan(parse_params({}), Fleet(), "campaign-1")
    with pytest.raises(PlanError, match="drill_node 'node-9' is not among the nodes"):
        plan(drill_node="node-9")


def test_quick_overrides_the_steps() -> None:
    spec = plan(quick=True).specs[0]

    assert (spec.measurement.warmup_steps, spec.measurement.measured_steps, spec.measurement.repeats) == (3, 5, 3)


@pytest.mark.parametrize("text", ["manual__2026-11-21T07:00:00+00:00", "Ü/../x", "a" * 500, "???", ""])
def test_identifiers_hold_nothing_that_a_path_could_misread(text: str) -> None:
    assert re.match(IDENTIFIER, identifier(f"dag-{text}", 60))
    assert len(identifier(text, 60)) <= 60


def test_long_names_stay_different() -> None:
    assert identifier("x" * 99 + "a", 60) != identifier("x" * 99 + "b", 60)
    assert campaign_id("node_consistency", "manual__1") == "node_consistency-manual__1"


def test_of_many_nodes_that_cannot_be_used_five_are_named() -> None:
    absent = tuple(AbsentNode(name=f"node-{number}", reason="cordoned", expected=False) for number in range(1, 8))
    with pytest.raises(PlanError) as refused:
        make_plan(parse_params({}), Fleet(absent=absent), "night")
    assert [f"node-{number}: cordoned" in str(refused.value) for number in range(1, 8)] == [True] * 5 + [False] * 2

"""Reading specs: what is refused, with the field and the allowed values."""

from __future__ import annotations

import json

import pytest

from bench_image.contract.frozen import ContractError
from bench_image.contract.options import Strategy
from bench_image.contract.parse import parse_spec
from tests.builders import make_spec
from tests.unit.image.contract.documents import Document, spec_document


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"micro_batch_size": 0}, "Input should be greater than or equal to 1 (got 0)"),
        ({"nodes": 0}, "nodes: Input should be greater than or equal to 1 (got 0)"),
        ({"repeats": 0}, "repeats: Input should be greater than or equal to 1 (got 0)"),
        ({"seq_length": 4}, "seq_length: Input should be greater than or equal to 8 (got 4)"),
        ({"node": "../../x"}, "node: String should match pattern"),
        ({"node": "node-1\n"}, "node: String should match pattern"),
        ({"node": "Node 1"}, "node: String should match pattern"),
        ({"node": ""}, "node: String should match pattern"),
        ({"run_id": "a/b"}, "run_id: String should match pattern"),
        ({"recipe": "dora"}, "recipe: Input should be 'full', 'lora' or 'qlora' (got 'dora')"),
        ({"precision": "int8"}, "precision: Input should be 'fp32', 'tf32', 'fp16', 'bf16' or 'fp8' (got 'int8')"),
        ({"batch_size": 8}, "batch_size: Extra inputs are not permitted (got 8)"),
        ({"schema_version": 3}, "schema_version: Input should be 1 (got 3)"),
        ({"micro_batch_size": "largest"}, "micro_batch_size"),
        ({"gradient_checkpointing": "maybe"}, "gradient_checkpointing"),
        ({"data": "disk"}, "data"),
        ({"data": {"folder": ""}}, "data.DiskData.folder: String should have at least 1 character"),
        ({"dimensions": {"family": "gpt3"}}, "dimensions: Input tag 'gpt3'"),
        ({"dimensions": {"family": "config", "config": {"auto_map": {}}}}, "it has no model_type"),
        ({"model": "encoder-decoder"}, "recipe 'qlora' with an encoder-decoder model"),
        ({"lora": None}, "recipe 'qlora' with lora=None: LoRA settings go with lora and qlora only"),
        ({"quantisation": None}, "recipe 'qlora' with quantisation=None: it goes with qlora only"),
        ({"recipe": "full"}, "recipe 'full' with lora="),
        ({"nodes": 2}, "strategy 'single' runs on one GPU, not 2: choose one of the others"),
        ({"strategy": "ddp"}, "strategy 'ddp' needs at least 2 GPUs in all, got 1: choose single"),
        (
            {"precision": "fp16", "strategy": "zero2", "gpus_per_node": 2},
            "precision 'fp16' with strategy 'zero2': DeepSpeed turns all weights into fp16",
        ),
        ({"strategy": "independent", "nodes": 2}, "strategy 'independent' runs on the GPUs of one node, not of 2"),
        ({"max_window_s": 0.05}, "max_window_s: Input should be greater than or equal to 0.1 (got 0.05)"),
        ({"max_window_s": 90_000}, "max_window_s: Input should be less than or equal to 86400 (got 90000)"),
        ({"measured_steps": 300}, "max_measured_steps 200 is below measured_steps 300: raise it"),
    ],
)
def test_a_wrong_spec_is_refused_with_the_field_and_what_is_allowed(changes: Document, message: str) -> None:
    with pytest.raises(ContractError) as refusal:
        parse_spec(json.dumps(spec_document(**changes)))

    assert str(refusal.value).startswith("the run spec is not valid: ")
    assert message in str(refusal.value)


@pytest.mark.parametrize("gpus", [1, 8])
def test_independent_ranks_are_as_many_as_the_node_has_gpus(gpus: int) -> None:
    spec = make_spec(strategy=Strategy.INDEPENDENT, gpus_per_node=gpus)

    assert parse_spec(spec.model_dump_json()) == spec
    assert (spec.of_one_rank.placement.strategy, spec.of_one_rank.placement.world_size) == (Strategy.SINGLE, 1)
    assert spec.of_one_rank.model_dump(exclude={"placement"}) == spec.model_dump(exclude={"placement"})


def test_the_rank_of_a_gang_does_not_work_by_itself() -> None:
    spec = make_spec(strategy=Strategy.DDP, gpus_per_node=4)

    assert spec.of_one_rank is spec


def test_independent_ranks_do_equal_work_however_many_they_are() -> None:
    one, eight = (make_spec(strategy=Strategy.INDEPENDENT, gpus_per_node=gpus) for gpus in (1, 8))

    assert one.fingerprint == eight.fingerprint
    assert one.fingerprint != make_spec(strategy=Strategy.SINGLE).fingerprint
    assert (
        make_spec(strategy=Strategy.DDP, gpus_per_node=2).fingerprint
        != make_spec(strategy=Strategy.DDP, gpus_per_node=4).fingerprint
    )


def test_a_refusal_names_five_fields_and_counts_the_rest() -> None:
    wrong = dict.fromkeys(("nodes", "gpus_per_node", "seq_length", "round", "repeats", "rank", "world"), 0)

    with pytest.raises(ContractError, match=r"; and 2 more$"):
        parse_spec(json.dumps(spec_document(**wrong)))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "not json", b"\xff\xfe"])
def test_a_spec_that_is_no_json_object_is_refused(text: str | bytes) -> None:
    with pytest.raises(ContractError, match="the run spec is not valid"):
        parse_spec(text)

"""Two spellings of one work are one work; a name with two meanings is refused."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.frozen import ContractError
from bench_image.contract.model_shapes import MODELS, Gpt2Shape
from bench_image.contract.parse import parse_spec
from bench_image.contract.spec import Drill
from bench_image.contract.weights import HubId, hub_id, normal_folder, normal_weights
from bench_image.contract.work import DiskData, Lora, Quantisation
from tests.builders import make_spec

COMMIT = "7231864981174d9bee8c7687c24c8344414eae6b"
MY_GPT2: dict[str, Any] = {
    "recipe": "full", "dimensions": Gpt2Shape(family="gpt2", hidden_size=64, num_layers=2, num_heads=4),
}  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other", "is_equal"),
    [
        ({"weights": "/data/a"}, {"weights": "/data/a/"}, True),
        ({"weights": "/data/a"}, {"weights": "//data/./b/../a"}, True),
        ({"weights": "./a"}, {"weights": "./a/"}, True),
        ({"data": DiskData(folder="/data/a")}, {"data": DiskData(folder="/data//a/")}, True),
        ({"model": "mistral-7b"}, {"model": "mine", "dimensions": MODELS["mistral-7b"]}, True),
        ({"model": "mine"} | MY_GPT2, {"model": "x"} | MY_GPT2, True),
        ({"weights": "/data/a"}, {"weights": "/data/b"}, False),
        ({"weights": f"org/name@{COMMIT}"}, {"weights": "org/name@0123456"}, False),
        ({"model": "mistral-7b"}, {"model": "mistral-7b", "dimensions": MODELS["llama2-7b"]}, False),
        ({"model": "x"} | MY_GPT2, {"model": "gpt2", "recipe": "full"}, False),
        ({"lora": Lora(rank=16)}, {"lora": Lora(rank=8)}, False),
        ({"quantisation": Quantisation(double=True)}, {"quantisation": Quantisation(double=False)}, False),
        # another node, another round or a drill belongs to the group of the first run
        ({"node": "node-1"}, {"node": "node-2", "round": 3, "drill": Drill(slowdown_pct=20)}, True),
    ],
)
def test_one_work_written_in_two_ways_is_one_work(one: dict[str, Any], other: dict[str, Any], is_equal: bool) -> None:
    """[J9]: each of the equal ones made two groups, which were never compared."""
    assert (make_spec(**one).fingerprint == make_spec(**other).fingerprint) is is_equal


@pytest.mark.parametrize(
    ("path", "normal"),
    [("/", "/"), ("//a", "/a"), ("/a/", "/a"), ("/a/../b", "/b"), ("a/", "a"), ("./a//b", "a/b"), ("../a", "../a")],
)
def test_a_folder_has_one_form(path: str, normal: str) -> None:
    assert normal_folder(path) == normal


@pytest.mark.parametrize(("weights", "normal"), [("./a/", "./a"), ("../a/", "../a"), (".", "."), ("random", "random")])
def test_weights_in_a_relative_folder_are_no_hub_id(weights: str, normal: str) -> None:
    assert normal_weights(weights) == normal
    assert not make_spec(weights=weights).work.needs_hub


@pytest.mark.parametrize(
    "weights", ["mistralai/Mistral-7B-v0.1", "gpt2", "org/name@", "org/name@main", "a/b/c@1", "a b"]
)
def test_a_hub_id_without_a_revision_that_stays_is_refused(weights: str) -> None:
    with pytest.raises(ContractError, match="from the hub need a revision that does not move: write ") as refusal:
        parse_spec(make_spec().model_dump_json().replace('"random"', f'"{weights}"'))
    assert "and the commit hash that the hub shows" in str(refusal.value)


def test_a_hub_id_is_a_repository_and_its_revision() -> None:
    assert hub_id(f"mistralai/Mistral-7B-v0.1@{COMMIT}") == HubId("mistralai/Mistral-7B-v0.1", COMMIT)
    assert hub_id("gpt2@v1.0") == HubId("gpt2", "v1.0")
    assert make_spec(weights="gpt2@v1.0").work.needs_hub

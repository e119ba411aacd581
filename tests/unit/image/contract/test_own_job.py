"""A command of the user's own: its placeholders, what makes runs comparable, and wrong log profiles."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from bench_image.contract.frozen import ContractError
from bench_image.contract.own_job import OwnJob, parse_profiles, shipped_profiles
from bench_image.contract.spec import Identity, Placement, RunSpec
from bench_image.contract.work import Work


def spec(**job: Any) -> RunSpec:
    return RunSpec(
        identity=Identity(campaign_id="c", run_id="r", group_id="g", node="node-1"),
        work=Work(
            model="train.py", recipe="full", gradient_checkpointing=False, own_job=OwnJob(**{"command": "a b"} | job)
        ),
        placement=Placement(strategy="own"),
    )


def test_placeholders_are_filled_in_and_no_shell_takes_part() -> None:
    job = OwnJob(command="torchrun --nproc-per-node {gpus} 'my train.py' --name={node}-x '{{gpus}} ${gpus} {}'")
    assert job.arguments(gpus=8, node="node-1", nodes=1, node_rank=0) == [
        "torchrun", "--nproc-per-node", "8", "my train.py", "--name=node-1-x", "{gpus} ${gpus} {}",
    ]  # fmt: skip
    assert job.name == "my-train.py"


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("train {gpu}", "{gpu} is not a placeholder: choose {gpus}, {node}, {nodes}, {node_rank}"),
        ("train 'x", "No closing quotation: close each quotation mark"),
        ("  ", "no command in it"),
    ],
)
def test_a_wrong_command_is_refused(command: str, sentence: str) -> None:
    with pytest.raises(ValidationError) as refused:
        OwnJob(command=command)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("field", "value", "is_other"),
    [
        ("command", "a c", True),
        ("environment", ("A=1",), True),
        ("version", "v2", True),
        ("image", "x@sha256:1", True),
        ("samples_per_step", 2, True),
        ("tokens_per_sample", 2, True),
        ("warmup_steps", 2, True),
        ("folder", "/elsewhere", False),
        ("profile", "nanogpt", False),
    ],
)
def test_runs_of_different_jobs_have_different_fingerprints(field: str, value: object, is_other: bool) -> None:
    """Where the command starts and how its log is read change nothing about the work."""
    assert (spec(**{field: value}).fingerprint != spec().fingerprint) == is_other


def test_only_a_command_has_the_strategy_own() -> None:
    with pytest.raises(ValidationError, match="goes with strategy 'own'"):
        RunSpec(**dict(spec()) | {"placement": Placement()})


PROFILE = '[[profile]]\nname = "mine"\nsource = "x"\nmarks = ["step"]\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("= 1", "f.toml: no TOML"),
        ("", "f.toml: no profile in it: write each as a table [[profile]]"),
        (PROFILE + "step = 'step (\\d+'", "f.toml: profile 'mine': step: not a regular expression"),
        (PROFILE + "step = 'step \\d+'", "f.toml: profile 'mine': step: 0 groups in parentheses: give one"),
        (PROFILE + "steps = 'x'", "f.toml: profile 'mine': steps: Extra inputs are not permitted"),
    ],
)
def test_a_wrong_profile_is_refused_with_its_file_and_field(text: str, sentence: str) -> None:
    with pytest.raises(ContractError) as refused:
        parse_profiles(text, "f.toml")
    assert str(refused.value).startswith(sentence)


def test_each_shipped_profile_says_where_its_format_is_documented() -> None:
    assert {profile.name for profile in shipped_profiles()} >= {"hf-trainer", "megatron-lm", "trainbench", "json-lines"}
    assert all("https://" in profile.source or "docs/" in profile.source for profile in shipped_profiles())

"""Campaign files: what they say, and one sentence with file and line for what they must not say."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from trainbench.core.verdicts import Level
from trainbench.settings.campaign_file import CampaignFileError, read_campaign_file, settings_for
from trainbench.settings.channels import Slack
from trainbench.settings.environment import SettingsError, read_settings

DOCS = Path(__file__).resolve().parents[3] / "docs"
EXAMPLES = sorted((DOCS / "examples" / "campaigns").glob("*.yaml"))
GOOD = """\
suite: node_consistency
description: The H100s
schedule: "0 2 * * *"
node_labels: pool=h100
parameters:
  rounds: 2
  strategies: [independent, ddp]
channels:
  - kind: slack
    connection: slack_gpu
job:
  command: torchrun --nproc-per-node {gpus} train.py
  environment: {A: 1}
"""
GOOD_VALUES = {
    "node_labels": "pool=h100",
    "rounds": 2,
    "strategies": ["independent", "ddp"],
    "command": "torchrun --nproc-per-node '{gpus}' train.py",
    "job_environment": ["A=1"],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "night.yaml"


def refusal(path: Path, text: str | bytes) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CampaignFileError) as error:
        read_campaign_file(path)
    sentence = str(error.value)
    assert sentence.startswith(str(path))
    assert "\n" not in sentence
    return sentence.removeprefix(str(path))


def test_a_file_says_parameters_schedule_and_channels(path: Path) -> None:
    path.write_text(GOOD)
    file = read_campaign_file(path)
    assert (file.name, file.suite, file.description) == ("night", "node_consistency", "The H100s")
    assert (file.schedule, file.values) == ("0 2 * * *", GOOD_VALUES)
    assert file.channels == (Slack(kind="slack", connection="slack_gpu", at_least=Level.ERROR),)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("suite: node_c", "suite: node_k", ", line 1: suite is 'node_konsistency' (did you mean 'node_consistency'?):"),
        ("node_labels:", "node_label:", ", line 4: node_label: no such field (did you mean 'node_labels'?): choose"),
        ("rounds: 2", "rounds: 99", ", line 6: rounds is 99: give at most 20"),
        ("rounds: 2", "round: 2", ", line 6: round (did you mean 'rounds'?) is not a parameter of node_con"),
        ("rounds: 2", "world_sizes: [1]", ", line 6: world_sizes is not a parameter of node_consistency"),
        ("rounds: 2", "rounds: 2\n  rounds: 3", ", line 7: the key 'rounds' stands twice"),
        ("rounds: 2", "nodes: [a]", ", line 6: nodes is not a parameter here: write it at the top of the file"),
        ("rounds: 2", "job_image: a", ", line 6: job_image is not a parameter here: write it below job, as image"),
        ("rounds: 2", "drill_node: a", ", line 5: drill_node with a command of yours"),
        ("[independent, ddp]", "independent", ", line 7: strategies is 'independent': give a list"),
        ("[independent,", "[indepent,", ", line 7: strategies is 'indepent' (did you mean 'independent'?)"),
        ("pool=h100", "[h100]", ", line 4: node_labels is ['h100']: give text"),
        ("pool=h100", "pool~h100", ", line 4: node_labels is 'pool~h100': no label selector: give one such as"),
        ('"0 2 * * *"', "0 0 30 2 *", ", line 3: schedule is '0 0 30 2 *': give a cron expression such as"),
        ('"0 2 * * *"', "0 2 * *", ", line 3: schedule is '0 2 * *': give a cron"),
        ('"0 2 * * *"', "off", ", line 3: schedule is False: give a cron"),
        ('"0 2 * * *"', "*/5 * * * *", ", line 3: while scanning an alias"),
        ("The H100s", "[H100]", ", line 2: description is ['H100']: give text"),
        ("kind: slack", "kind: slak", ", line 9: channel 1: Input tag 'slak' found using 'kind' does not match any of"),
        ("    connection", "    conection", ", line 9: channel 1: connection: Field required"),
        ("slack_gpu", "x\n    to: a", ", line 11: channel 1: to: no such field: choose from connection,"),
        ("  command", "  comand", ", line 12: comand: no such field (did you mean 'command'?): choose from command,"),
        ("command: torchrun", "version: torchrun", ", line 11: job has no command"),
        ("{gpus}", "{gpu}", ", line 12: command is 'torchrun --nproc-per-node {gpu} train.py': {gpu} is not"),
        ("{A: 1}", "{A: true}", ", line 13: environment is {'A': True}: A is True: put the text into quotation marks"),
        ("{A: 1}", "[A=1]", ", line 13: environment is ['A=1']: give a mapping"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_one_sentence_with_its_line(path: Path, old: str, new: str, sentence: str) -> None:
    assert old in GOOD
    assert refusal(path, GOOD.replace(old, new)).startswith(sentence)


def test_a_suite_that_runs_no_job_says_which_do(path: Path) -> None:
    sentence = refusal(path, "suite: config_diagnosis\njob: {command: train}\n")
    assert (
        sentence == ", line 2: config_diagnosis has no job of your own: only node_consistency and strategy_scaling have"
    )


def test_each_wrong_value_is_named_with_its_own_line(path: Path) -> None:
    """Also those of parameters, and of a list; all but the first pointed nowhere."""
    of_file = GOOD.replace("The H100s", "[H100]").replace('"0 2 * * *"', "daily").replace("pool=h100", "[h100]")
    assert begins(refusal(path, of_file)) == [
        "line 2: description is ['H100']:", "line 3: schedule is 'daily':", "line 4: node_labels is ['h100']:",
    ]  # fmt: skip
    lines = "rounds: 99,nods: [a],seed: -1,strategies:,- ddp,- dpd,- fdsp,lora_rank: x"
    of_parameters = GOOD.split("  rounds")[0] + "".join(f"  {line}\n" for line in lines.split(","))
    assert begins(refusal(path, of_parameters)) == [
        "line 6: rounds is 99:", "line 7: nods (did you mean 'nodes'?) is not a parameter of node_consistency:",
        "line 8: seed is -1:", "line 11: strategies is 'dpd':",
        "line 12: strategies is 'fdsp' (did you mean 'fsdp'?):", "line 13: lora_rank is 'x':",
    ]  # fmt: skip


def begins(sentence: str) -> list[str]:
    """Each part up to its second colon."""
    return [":".join(part.split(":")[:2]) + ":" for part in sentence.removeprefix(", ").split("; ")]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", ", line 1: the file is empty: begin it with a line such as suite: node_consistency"),
        ("- suite", ", line 1: the file is no mapping"),
        (b"\xff\xfe\x00", ": it is no text in UTF-8"),
        (b"a\x00b", ": unacceptable character #x0000"),
        ("#" * 64_001, ": it is larger than the 64,000 bytes allowed"),
        ("a: " + "[" * 20_000, ": its values lie more than 50 levels deep"),
        ("a: &a [*a]", ", line 1: its values lie more than 50 levels deep"),
        ("a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40)), ": it has"),
        # Merged, each level has three times the keys of the one before.
        ("a0: &a0 {k: x}\n" + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 3)}]}}\n" for i in range(1, 20)),
         ": it has more than 10,000 values"),
        ("a: b\n---\nc: d", ", line 2: expected a single document in the stream"),
        ("suite: !!python/name:os.system x", ", line 1: could not determine a constructor for the tag"),
        ("suite: node_consistency\nschedule: 2026-02-31", ": day is out of range for month"),
        ("suite: node_consistency\nparameters: {? [a] : b}", ", line 2: while constructing a mapping: found unhash"),
    ],
    ids=["empty", "list", "binary", "null", "long", "deep", "an alias of itself", "aliases", "merges", "two documents",
         "tag", "date", "a list as a key"],
)  # fmt: skip
def test_what_is_no_yaml_of_ours_ends_in_one_sentence(path: Path, text: str | bytes, sentence: str) -> None:
    assert refusal(path, text).startswith(sentence)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    fifo, folder = tmp_path / "fifo.yaml", tmp_path / "folder.yaml"
    os.mkfifo(fifo)
    folder.mkdir()
    for path, reason in ((fifo, "it is no regular file"), (folder, "Is a directory"), (tmp_path / "x", "No such file")):
        with pytest.raises(CampaignFileError, match=f"^{path} cannot be read: {reason}"):
            read_campaign_file(path)


def test_the_dag_of_a_file_has_its_channels_sizes_and_schedule(tmp_path: Path) -> None:
    """The settings' own schedule for it comes first; without channels in the file those of the settings stay."""
    (tmp_path / "sizes.yaml").write_text("suite: strategy_scaling\nparameters: {world_sizes: [8, 2]}\nchannels: []\n")
    (tmp_path / "night.yaml").write_text(GOOD.replace("channels:\n  - kind: slack\n    connection: slack_gpu\n", ""))
    environ = {
        "TRAINBENCH_CAMPAIGNS": str(tmp_path),
        "TRAINBENCH_DAG_PREFIX": "gpu_",
        "TRAINBENCH_LAUNCHER": "local",
        "TRAINBENCH_NOTIFY": '[{"kind": "slack", "connection": "all"}]',
        "TRAINBENCH_SCHEDULE_SIZES": "5 5 * * *",
    }
    settings = read_settings(environ)
    sizes, night = settings_for("gpu_sizes", settings), settings_for("gpu_night", settings)
    assert (sizes.world_sizes, sizes.notify, sizes.cron("sizes", None)) == ((2, 8), (), "5 5 * * *")
    assert (night.world_sizes, night.notify, night.cron("night", None)) == ((1, 2, 4), settings.notify, "0 2 * * *")
    assert settings_for("gpu_node_consistency", settings) is settings


def test_a_schedule_may_name_a_campaign_whose_name_is_close_to_a_dag_s(tmp_path: Path) -> None:
    environ = {"TRAINBENCH_SCHEDULE_NODE_CONSISTENCY_A": "none"}
    with pytest.raises(SettingsError, match="did you mean 'TRAINBENCH_SCHEDULE_NODE_CONSISTENCY'"):
        read_settings(environ)
    (tmp_path / "node_consistency_a.yaml").touch()
    assert read_settings({**environ, "TRAINBENCH_CAMPAIGNS": str(tmp_path)}).campaigns == tmp_path
    with pytest.raises(SettingsError, match="TRAINBENCH_CAMPAIGNS is 'here': give an absolute path"):
        read_settings({"TRAINBENCH_CAMPAIGNS": "here"})


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_each_example_is_right_for_the_reader_and_for_an_editor(path: Path) -> None:
    first, text = path.read_text().split("\n", 1)
    schema = Path(first.removeprefix("# yaml-language-server: $schema="))
    validator = Draft202012Validator(json.loads((path.parent / schema).read_text()))
    assert list(validator.iter_errors(yaml.safe_load(text))) == []
    assert read_campaign_file(path).description


def test_the_schema_takes_what_the_reader_takes_and_marks_a_wrong_field(path: Path) -> None:
    validator = Draft202012Validator(json.loads((DOCS / "schemas" / "campaign.json").read_text()))
    assert list(validator.iter_errors(yaml.safe_load(GOOD))) == []
    wrong = GOOD.replace("rounds: 2", "round: 2").replace("kind: slack", "kind: slak")
    assert {error.path[0] for error in validator.iter_errors(yaml.safe_load(wrong))} == {"parameters", "channels"}

"""`trainbench plan`: the runs, the manifests, and the parameters that it takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.builders.commands import document, trainbench
from trainbench.cli.app import ExitCode

pytestmark = pytest.mark.usefixtures("home")


def test_plan_lists_the_runs_and_starts_nothing(home: Path) -> None:
    result = trainbench("plan", "--nodes", "node-a,node-b", "--set", "rounds=1", "--set", "strategies=single,ddp")
    assert result.exit_code == ExitCode.OK
    assert "node-a" in result.stdout
    assert "node-b" in result.stdout
    assert "skipped strategy ddp: needs at least 2 GPUs per node" in result.stdout
    assert not (home / "trainbench").exists()


def test_cuda_starts_from_the_nightly_configuration() -> None:
    planned = document(
        trainbench("plan", "--json", "--device", "cuda", "--nodes", "node-1", "--set", "gpus_per_node=1")
    )
    (spec,) = planned["specs"]
    assert tuple(spec["work"][name] for name in ("model", "micro_batch_size", "seq_length")) == ("mistral-7b", 8, 512)
    assert (spec["placement"]["strategy"], spec["work"]["preset"]) == ("independent", "tuned")


def test_a_plan_says_how_many_gpus_each_run_takes() -> None:
    sets = ["--set", "strategies=independent,ddp", "--set", "gpus_per_node=4", "--set", "rounds=1"]
    printed = trainbench("plan", "--device", "cuda", "--nodes", "node-1,node-2", *sets).stdout
    rows = [re.split(r"\s{2,}", line.strip())[:4] for line in printed.splitlines() if re.match(r" (#|\d)  ", line)]
    assert rows[0] == ["#", "node", "strategy", "GPUs"]
    assert rows[1:3] == [["1", "node-1", "independent", "4"], ["2", "node-2", "independent", "4"]]
    assert rows[3] == ["3", "node-1", "ddp", "4"]


def test_plan_prints_manifests_that_kubectl_takes() -> None:
    pods = list(yaml.safe_load_all(trainbench("plan", "--manifests", "--set", "rounds=1").stdout))
    assert [pod["kind"] for pod in pods] == ["Pod"] * 4


def test_a_gang_over_nodes_is_pods_that_meet_by_the_service_without_airflow() -> None:
    """Two GPUs on each of two nodes: one gang of four, alone, since gangs that are applied together share nodes."""
    sets = ["--set", "strategies=ddp", "--set", "world_sizes=4"]
    study = ["--suite", "strategy_scaling", "--nodes", "a,b", "--gpu", "H200", "--gpus", "2"]
    pods = list(yaml.safe_load_all(trainbench("plan", "--manifests", *study, *sets).stdout))
    environments = [{each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]} for pod in pods]

    assert [pod["metadata"]["labels"]["trainbench.io/node"] for pod in pods] == ["a", "b"]
    assert [each["NODE_RANK"] for each in environments] == ["0", "1"]
    meeting = f"{pods[0]['spec']['hostname']}.{pods[0]['spec']['subdomain']}.trainbench.svc"
    assert {each["MASTER_ADDR"] for each in environments} == {meeting}
    sizes = {spec["placement"]["nodes"] for spec in document(trainbench("plan", "--json", *study))["specs"]}
    assert sizes == {1, 2}
    here = trainbench("run", *study[:4])
    assert here.exit_code == ExitCode.USAGE
    assert "`run` starts processes of this machine alone" in here.stderr


def test_plan_s_manifests_have_the_template_and_one_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = tmp_path / "template.yaml"
    monkeypatch.setenv("TRAINBENCH_POD_TEMPLATE", str(template))
    template.write_text("apiVersion: v1\nkind: Pod\nspec: {schedulerName: mine}")
    pods = list(yaml.safe_load_all(trainbench("plan", "--manifests", "--set", "rounds=1").stdout))
    assert [pod["spec"]["schedulerName"] for pod in pods] == ["mine"] * 4

    template.write_text("apiVersion: v1\nkind: Pod\nspec: {scheduler: mine}")
    refused = trainbench("plan", "--manifests")
    assert refused.exit_code != 0
    assert "spec.scheduler: unknown field" in refused.output


@pytest.mark.parametrize(
    ("gpus", "sizes"), [(1, [1]), (2, [1, 2, 2]), (6, [1, 2, 2, 4, 4, 6, 6]), (8, [1, 2, 2, 4, 4, 8, 8])]
)
def test_a_scaling_study_takes_one_to_all_gpus_of_the_machine(gpus: int, sizes: list[int]) -> None:
    sets = ["--set", "strategies=single,ddp,fsdp", "--gpu", "H200", "--gpus", str(gpus)]
    planned = document(trainbench("plan", "--json", "--suite", "strategy_scaling", *sets))
    assert [spec["placement"]["gpus_per_node"] for spec in planned["specs"]] == sizes
    assert {spec["placement"]["nodes"] for spec in planned["specs"]} == {1}
    assert bool(planned["skipped"]) == (gpus == 1)


def test_plan_estimates_duration_gpu_hours_and_cost_for_another_gpu() -> None:
    arguments = ["--gpu", "A100 80GB", "--gpus", "2", "--nodes", "box"]
    estimate = document(trainbench("plan", "--json", *arguments))["estimate"]
    kinds = {kind["work"]: kind["num_gpus"] for kind in estimate["kinds"]}
    assert kinds == {"mistral-7b qlora independent": 2, "mistral-7b qlora ddp": 2}
    printed = " ".join(trainbench("plan", *arguments).stdout.split())
    assert re.search(r"2 runs: about \d+ min \d\d s \(at most 1 h 00 min", printed)
    assert re.search(r"GPU-hours, \$[\d.]+ on demand, \$[\d.]+ on spot", printed)


def test_a_history_that_cannot_be_read_leaves_the_formula(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "broken.sqlite").write_text("no database")
    monkeypatch.setenv("TRAINBENCH_HISTORY_URL", f"sqlite:///{home}/broken.sqlite")
    planned = trainbench("plan", "--gpu", "H200")
    assert planned.exit_code == ExitCode.OK
    assert "file is not a database" in planned.stderr
    assert "durations are computed by the formula" in planned.stderr
    assert "By formula: 25 s to start" in " ".join(planned.stdout.split())


def test_plan_says_what_does_not_fit_the_gpu() -> None:
    sets = ["--set", "model=llama2-13b", "--set", "recipe=full", "--set", "strategies=single"]
    refused = trainbench("plan", "--gpu", "A100 40GB", *sets)
    assert refused.exit_code == ExitCode.USAGE
    assert "needs about" in refused.stderr
    assert "a GPU of the node (A100 40GB) has 42.9 GB" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--gpu", "H10O"], "GPU 'H10O' is not known (did you mean"),
        (["--gpus", "2"], "give --gpu as well"),
        (["--suite", "strategy_scalin"], "'strategy_scalin' is not one of 'node_consistency', 'strategy_scaling'"),
        (["--suite", "strategy_scaling", "--nodes", "a,b", "--gpu", "H200", "--manifests"], "this plan has 5 runs"),
        (["--gpu", "H200", "--device", "cpu"], "--gpu 'H200' is planned on --device cuda, not cpu"),
        (["--nodes", "a", "--nodes", "b"], "Invalid value for '--nodes': it is given twice"),
        (["--set", "nodes=a,b", "--nodes", "c"], "--nodes and --set nodes=... give two values"),
        (["--set", "device=cpu", "--device", "cuda"], "--device and --set device=... give two values"),
        (["--set", "rounds=2", "--set", "rounds=3"], "--set gives 'rounds' twice"),
        (["--set", "\udcff=1"], "is not a parameter"),
    ],
)
def test_a_wrong_gpu_or_suite_is_refused_with_what_is_close(arguments: list[str], sentence: str) -> None:
    refused = trainbench("plan", *arguments)
    assert refused.exit_code == ExitCode.USAGE
    assert sentence in refused.stderr


def test_a_search_for_bad_links_says_what_it_takes_and_does_not_run_on_one_machine() -> None:
    asked = ("--suite", "interconnect", "--nodes", "a,b,c,d")
    told = " ".join(trainbench("plan", *asked).stdout.split())
    assert "2 groups: 3 runs in 2 rounds where all are well; at most 13 runs in 5 rounds and 25 min" in told
    refused = trainbench("run", *asked)
    assert refused.exit_code == ExitCode.USAGE
    assert "interconnect needs several nodes: start its DAG" in refused.stderr

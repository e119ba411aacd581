"""The supervisor's child processes, their environment, and the line it leaves for Kubernetes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench_image.contract.frozen import ContractError
from bench_image.contract.options import Recipe
from bench_image.contract.result import Phase, RunResult, Status, failed_result
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Lora
from bench_image.parallel.visible_gpus import rank_environments
from bench_image.process import supervisor as supervise
from bench_image.process.exit_codes import ProcessExits
from bench_image.process.supervisor import children_of, command, rank_environment, write_termination_message
from tests.builders import error_of
from tests.builders.image_processes import environment, make_spec
from tests.image.process.test_merge import make_report
from tests.unit.image.fake_nvml import nvml_of


def test_one_rank_is_started_directly() -> None:
    assert command(make_spec(), {}) == [sys.executable, "-m", "bench_image.process.worker"]


def test_ranks_of_one_node_meet_on_the_loopback() -> None:
    torchrun = command(make_spec(strategy="ddp"), {})

    assert torchrun[2:] == [
        "bench_image.process.torchrun", "--nproc-per-node=2", "--max-restarts=0", "--standalone",
        "--local-addr=127.0.0.1", "-m", "bench_image.process.worker",
    ]  # fmt: skip


def test_ranks_of_several_nodes_meet_where_the_environment_says() -> None:
    spec = make_spec(strategy="ddp", nodes=2, gpus_per_node=4)
    torchrun = command(spec, {"NODE_RANK": "1", "MASTER_ADDR": "pod-0.gang", "MASTER_PORT": "29500"})

    assert torchrun[3:-2] == [
        "--nproc-per-node=4", "--max-restarts=0", "--nnodes=2", "--node-rank=1", "--master-addr=pod-0.gang",
        "--master-port=29500",
    ]  # fmt: skip
    with pytest.raises(ContractError, match="MASTER_ADDR, MASTER_PORT not set"):
        command(spec, {"NODE_RANK": "1"})


def test_what_no_rank_could_run_is_refused_before_anything_starts() -> None:
    with pytest.raises(ContractError, match="gpt-17"):
        command(make_spec(model="gpt-17"), {})
    with pytest.raises(ContractError, match="elbow_proj"):
        command(make_spec(recipe=Recipe.LORA, lora=Lora(targets=("elbow_proj",))), {})


def test_the_users_environment_wins_over_ours(tmp_path: Path) -> None:
    """Ours has one thread on the CPU: threads that spin do not count as work there."""
    given = {"HF_HUB_OFFLINE": "0", "OMP_NUM_THREADS": "7"}
    seen = rank_environment(make_spec(strategy="ddp"), tmp_path, given, started=1.5)

    assert seen.items() >= (given | {"TRAINBENCH_STARTED_AT": "1.5"}).items()
    assert rank_environment(make_spec(), tmp_path, {}, 1.5)["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in rank_environment(make_spec(device="cuda"), tmp_path, {}, 1.5)


Supervised = Callable[..., RunResult]


@pytest.fixture
def supervised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Supervised:
    """A run of a minute whose ranks leave these files and codes."""

    def run(spec: RunSpec, codes: dict[int, int], **files: str) -> RunResult:
        def run_all(*_: object, **__: object) -> ProcessExits:
            for name, text in files.items():
                (tmp_path / f"{name.replace('_', '-')}.json").write_text(text)
            return ProcessExits(codes)

        monkeypatch.setattr(supervise, "run_all", run_all)
        monkeypatch.setattr(supervise, "process_start", lambda: time.time() - 60)
        return supervise.supervise(spec, tmp_path, {})

    return run


def test_a_report_that_cannot_be_is_its_own_ranks_failure(supervised: Supervised) -> None:
    """Rank 1 wrote figures that break the contract: rank 0 was never asked."""
    sound = make_report(gpu_uuid="GPU-a").model_dump_json()
    spec = make_spec(recipe=Recipe.FULL, strategy="independent")
    result = supervised(spec, {0: 0, 1: 0}, rank_0=sound, rank_1='{"rank": -1}')

    assert [rank.status for rank in result.ranks] == [Status.OK, Status.ERROR]
    assert result.ranks[0].performance is not None


def test_torchrun_tells_which_rank_a_signal_ended(supervised: Supervised) -> None:
    error = error_of(supervised(make_spec(strategy="ddp"), {0: 1}, rank_exits='{"1": -9}'))

    assert (error.kind, error.rank) == ("SIGKILL", 1)


def test_independent_ranks_are_started_one_by_one_each_with_its_own_gpu(tmp_path: Path) -> None:
    spec = make_spec(strategy="independent", gpus_per_node=3, device="cuda")
    children = children_of(spec, tmp_path, {"CUDA_VISIBLE_DEVICES": "5,6"}, 1.5)

    assert {tuple(child.arguments) for child in children} == {(sys.executable, "-m", "bench_image.process.worker")}
    assert [
        [child.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES")]
        for child in children
    ] == [["0", "0", "1", "5"], ["1", "0", "1", "6"], ["2", "0", "1", "-1"]]


def test_gpus_are_given_out_by_uuid_so_that_a_lost_one_has_a_name() -> None:
    spec = make_spec(strategy="independent", device="cuda")
    seen = rank_environments(spec, {}, nvml_of(2))

    assert [one["CUDA_VISIBLE_DEVICES"] for one in seen] == [one["TRAINBENCH_GPU_UUID"] for one in seen]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in seen] == ["GPU-a", "GPU-b"]


def test_one_independent_rank_takes_the_gpu_that_is_there() -> None:
    (seen,) = rank_environments(make_spec(strategy="independent", device="cuda", gpus_per_node=1), {})

    assert seen == {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}


def test_figures_of_the_ranks_that_cannot_be_still_make_a_result(supervised: Supervised) -> None:
    """A report that breaks the contract would have ended the pod without one."""
    result = supervised(make_spec(), {0: 0}, rank_0='{"rank": -1}')

    assert result.status is Status.ERROR
    assert (error_of(result).kind, error_of(result).phase) == ("broken_figures", Phase.REPORT)
    assert error_of(result).message.startswith("the ranks' figures break the contract: phase: Field required; ")


def test_kubernetes_gets_one_line(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    result = failed_result(
        make_spec(), status=Status.OOM, kind="OutOfMemoryError", message="CUDA out of\nmemory",
        phase=Phase.WARMUP, at=datetime(2026, 11, 21, tzinfo=UTC),
    )  # fmt: skip
    write_termination_message(result, log)
    assert not log.exists()  # only where Kubernetes has made the file

    log.touch()
    write_termination_message(result, log)
    assert log.read_text() == "oom: OutOfMemoryError: CUDA out of memory\n"


def test_the_supervisor_needs_no_training_stack() -> None:
    heavy = "{'torch', 'transformers', 'peft', 'bitsandbytes'} & set(sys.modules)"
    code = f"import sys, bench_image.__main__, bench_image.process.supervisor; print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"

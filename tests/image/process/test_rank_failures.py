"""Faults of one rank among several: the others do not wait for ever, and the result names the cause."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bench_image.contract.options import Recipe, Strategy
from bench_image.contract.result import Phase, RunResult, Status
from bench_image.contract.spec import RunSpec
from bench_image.process.exit_codes import ProcessExits, read_exit_codes
from bench_image.process.merge import merge
from bench_image.process.rank_report import read_reports
from tests.builders import error_of
from tests.builders.image_processes import environment, finish, make_spec, run_rank, start
from tests.builders.ports import free_port
from tests.builders.warm_processes import run_warm

NOW = datetime(2026, 11, 21, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


def run_ranks(spec: RunSpec, folder: Path, prelude: str) -> RunResult:
    """Two ranks under torchrun that first run a few lines of Python; fails if they take longer than half an hour."""
    program = folder / "broken_rank.py"
    program.write_text(f"{prelude}\nimport os\nfrom bench_image.process.worker import main\nos._exit(main())")
    meeting = ["--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2", "--max-restarts=0"]
    run_warm(
        ["bench_image.process.torchrun", *meeting, str(program)],
        environment(
            TRAINBENCH_SPEC=spec.model_dump_json(), TRAINBENCH_OUTPUT_DIR=str(folder), OMP_NUM_THREADS="1",
            HF_HUB_OFFLINE="1", DS_ACCELERATOR="cpu",
        ),
    )  # fmt: skip
    return merge(spec, read_reports(folder), ProcessExits(read_exit_codes(folder)), NOW, LATER)


FAULT = """
import os, torch
from bench_image.optimizer.step import OptimizerStep
honest = OptimizerStep.__init__
def init(self, *arguments, **settings):
    honest(self, *arguments, **settings)
    update, self.steps = self.update, 0
    def failing():
        self.steps += 1
        if os.environ["RANK"] == "1" and self.steps == 2:
            {fault}
        update()
    self.update = failing
OptimizerStep.__init__ = init
"""


@pytest.mark.parametrize(
    ("strategy", "fault", "status", "kind"),
    [
        (Strategy.FSDP, "raise torch.OutOfMemoryError('CUDA out of memory')", Status.OOM, "OutOfMemoryError"),
        (Strategy.DDP, "os.kill(os.getpid(), 9)", Status.ERROR, "SIGKILL"),
    ],
)
def test_one_rank_that_fails_ends_the_gang_and_is_the_cause(
    tmp_path: Path, strategy: Strategy, fault: str, status: Status, kind: str
) -> None:
    result = run_ranks(make_spec(recipe=Recipe.FULL, strategy=strategy), tmp_path, FAULT.format(fault=fault))

    error = error_of(result)
    assert (result.status, error.kind, error.rank, error.phase) == (status, kind, 1, Phase.WARMUP)


WITHOUT_DEEPSPEED = """
import importlib.machinery as machinery
honest = machinery.PathFinder.find_spec
machinery.PathFinder.find_spec = lambda name, *where: None if name == "deepspeed" else honest(name, *where)
"""


def test_an_absent_deepspeed_is_named_with_the_strategy(tmp_path: Path) -> None:
    error = run_rank(make_spec(recipe=Recipe.FULL, strategy=Strategy.ZERO2), tmp_path, WITHOUT_DEEPSPEED).error

    assert error is not None
    assert (error.kind, error.phase) == ("ModuleNotFoundError", Phase.IMPORT)
    assert error.message.startswith("strategy 'zero2' needs the package deepspeed")


@pytest.mark.parametrize(("node_rank", "address"), [("0", "127.0.0.1"), ("1", "127.0.0.1"), ("1", "r0.gang.invalid")])
def test_a_node_that_never_comes_is_a_timeout_that_says_so(tmp_path: Path, node_rank: str, address: str) -> None:
    """Nor does one whose name the cluster's DNS does not tell."""
    spec = make_spec(recipe=Recipe.FULL, strategy=Strategy.DDP, nodes=2, gpus_per_node=1, timeout_s=8)
    meeting = {"NODE_RANK": node_rank, "MASTER_ADDR": address, "MASTER_PORT": str(free_port())}
    result = finish(start(spec, tmp_path, **meeting), tmp_path)

    assert result.status is Status.TIMEOUT
    assert "2 nodes met within timeout_s 8" in error_of(result).message


def test_a_rank_does_not_wait_for_ever_for_one_that_is_missing(tmp_path: Path) -> None:
    """Half of timeout_s: the error comes before the supervisor's deadline."""
    spec = make_spec(recipe=Recipe.FULL, strategy=Strategy.DDP, timeout_s=20)
    run_warm(
        ["bench_image.process.worker"],
        environment(
            TRAINBENCH_SPEC=spec.model_dump_json(), TRAINBENCH_OUTPUT_DIR=str(tmp_path), RANK="0", LOCAL_RANK="0",
            WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), HF_HUB_OFFLINE="1",
        ),
    )  # fmt: skip
    (report,) = read_reports(tmp_path)

    assert report.error is not None
    assert (report.status, report.error.phase) == (Status.ERROR, Phase.BUILD)
    assert "1/2 clients joined" in report.error.message

"""Each fault of a run ends in bounded time with a result that names it, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
import torch

from bench_image.__main__ import main
from bench_image.contract.options import Recipe, Strategy
from bench_image.contract.parse import parse_result
from bench_image.contract.result import Phase, Status
from bench_image.contract.result_lines import ResultReader
from bench_image.contract.spec import RunSpec
from bench_image.parallel.process_group import ProcessGroup
from bench_image.process import children
from bench_image.process.children import Child, run_all
from bench_image.process.exit_codes import EXIT_CODES, ProcessExits
from bench_image.process.merge import merge
from bench_image.process.phases import profile, trace
from bench_image.process.rank_report import Journal, read_reports
from tests.builders import error_of
from tests.builders.image_processes import ENDLESS, descendants, finish, make_spec, run_rank, start, wait_for

NOW = datetime(2026, 11, 21, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


@pytest.mark.parametrize(
    ("strategy", "num_processes"),
    [(Strategy.SINGLE, 1), (Strategy.INDEPENDENT, 2), (Strategy.DDP, 3)],  # of the last torchrun and two ranks
)
def test_sigterm_gives_an_incomplete_result(tmp_path: Path, strategy: Strategy, num_processes: int) -> None:
    spec = make_spec(recipe=Recipe.FULL, strategy=strategy, **ENDLESS)
    process = start(spec, tmp_path)
    wait_for(Phase.MEASURE, process, spec, tmp_path)
    family = descendants(process)
    process.send_signal(signal.SIGTERM)
    result = finish(process, tmp_path)

    assert (result.status, process.returncode) == (Status.INCOMPLETE, EXIT_CODES[Status.INCOMPLETE])
    assert (error_of(result).kind, error_of(result).phase) == ("SIGTERM", Phase.MEASURE)
    assert result.startup.build_s is not None  # what was known is kept
    assert len(family) == num_processes
    assert not any(member.is_running() for member in family)


def test_a_killed_rank_is_named_with_its_signal(tmp_path: Path) -> None:
    spec = make_spec(recipe=Recipe.FULL, **ENDLESS)
    process = start(spec, tmp_path)
    wait_for(Phase.MEASURE, process, spec, tmp_path)
    (rank,) = descendants(process)
    rank.kill()
    result = finish(process, tmp_path)

    assert (result.status, process.returncode) == (Status.ERROR, EXIT_CODES[Status.ERROR])
    error = error_of(result)
    assert (error.kind, error.rank, error.phase) == ("SIGKILL", 0, Phase.MEASURE)
    assert "out-of-memory killer" in error.message


def test_ranks_follow_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    spec = make_spec(recipe=Recipe.FULL, strategy=Strategy.DDP, **ENDLESS)
    process = start(spec, tmp_path)
    wait_for(Phase.MEASURE, process, spec, tmp_path)
    family = descendants(process)
    process.kill()
    process.communicate()

    gone, alive = psutil.wait_procs(family, timeout=1200)
    assert (len(gone), alive) == (3, [])  # torchrun and two ranks


def test_a_process_deaf_to_sigterm_cannot_hold_up_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a rank deep in a compiler, where Python's signal handlers do not run."""
    monkeypatch.setattr(children, "GRACE_S", 0.1)
    deaf = Child(["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"], os.environ)

    assert run_all([deaf], timeout_s=0.5) == ProcessExits({0: -9}, timed_out=True, cut_off=frozenset({0}))


OUT_OF_MEMORY = """
import bench_image.training.train_step as train_step
import torch
honest, calls = train_step.TrainStep.__call__, 0
def step(self):
    global calls
    calls += 1
    if calls > 7:
        torch.empty(2**60, dtype=torch.uint8)
    return honest(self)
train_step.TrainStep.__call__ = step
"""


def test_out_of_memory_while_training_keeps_what_was_measured(tmp_path: Path) -> None:
    """Two warm-up steps, windows of four: the second step of the second one allocates what no machine has."""
    spec = make_spec(recipe=Recipe.FULL, max_measured_steps=4)
    result = merge(spec, [run_rank(spec, tmp_path, OUT_OF_MEMORY)], ProcessExits({0: 1}), NOW, LATER)

    assert result.status is Status.OOM
    assert (error_of(result).phase, error_of(result).rank) == (Phase.MEASURE, 0)
    assert len(result.performance.windows) == 1


class TrainStepOf:
    def __init__(self, spec: RunSpec) -> None:
        self.spec, self.num_steps = spec, 0

    def __call__(self) -> None:
        self.num_steps += 1


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("LOCAL_RANK", "0")
    return Journal(tmp_path, now=0.0)


def test_a_profiler_that_fails_does_not_lose_what_was_measured(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("CUPTI is not allowed here")

    monkeypatch.setattr("bench_image.training.comm_profile._profiled", refuse)
    group = ProcessGroup(torch.device("cpu"))
    group.world_size = 2
    profile(journal, group, step=lambda: None, step_s=1.0)  # type: ignore[arg-type]

    assert journal.report.communication is None
    assert journal.report.missing["communication"] == "the steps could not be profiled: CUPTI is not allowed here"


def test_a_trace_that_cannot_be_written_does_not_lose_what_was_measured(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAINBENCH_TRACES", "/proc/none")
    step = TrainStepOf(make_spec())
    trace(journal, ProcessGroup(torch.device("cpu")), step)  # type: ignore[arg-type]

    assert step.num_steps == 3  # other ranks wait for each
    assert "rank 0: no trace: FileNotFoundError: " in capsys.readouterr().err


def test_a_rank_that_ends_itself_is_not_overwritten_by_its_main_thread(journal: Journal, tmp_path: Path) -> None:
    """Both write where another rank has ended: the file was cut, and a hang became `broken_figures`."""
    thread = threading.Thread(target=journal.write, args=(Status.ERROR, None))
    with journal.lock:
        thread.start()
        thread.join(0.2)
        assert list(tmp_path.iterdir()) == []
    thread.join()
    assert [report.status for report in read_reports(tmp_path)] == [Status.ERROR]


# --- the program itself

Program = Callable[..., tuple[object, str, str]]


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    """`python -m bench_image` with these arguments and variables, in this process: status, stdout, stderr."""

    def run(*arguments: str, **env: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["bench_image", *arguments])
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        try:
            status: object = main()
        except SystemExit as end:
            status = end.code
        return status, *capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{}", "identity"),
        ("nonsense", "JSON"),
        (make_spec(strategy=Strategy.ZERO2).model_dump_json().replace('"bf16"', '"fp16"'), "fp16"),
    ],
)
def test_a_bad_spec_is_one_line_and_no_result(tmp_path: Path, program: Program, text: str, complaint: str) -> None:
    status, out, errors = program("--output", str(tmp_path), TRAINBENCH_SPEC=text)

    assert (status, out) == (2, "")
    assert complaint in errors
    assert len(errors.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_absent_spec_is_reported(tmp_path: Path, program: Program) -> None:
    assert "there is no run spec: set TRAINBENCH_SPEC" in program("--output", str(tmp_path))[2]
    assert "cannot be read" in program("--spec", str(tmp_path / "absent.json"))[2]


def test_a_folder_that_cannot_be_written_to_leaves_the_result_on_stdout(tmp_path: Path, program: Program) -> None:
    (tmp_path / "taken").write_text("a file where the folder should be")
    status, out, errors = program("--output", str(tmp_path / "taken"), TRAINBENCH_SPEC=make_spec().model_dump_json())

    assert (status, parse_result(out).status) == (EXIT_CODES[Status.ERROR], Status.ERROR)
    assert "the result cannot be written" in errors


UNKNOWN = make_spec(model="gpt-17").model_dump_json()


def test_in_a_pod_the_result_leaves_as_lines_of_the_log(tmp_path: Path, program: Program) -> None:
    _, out, _ = program("--output", str(tmp_path), TRAINBENCH_SPEC=UNKNOWN, TRAINBENCH_POD="tb-1")

    assert all(line.startswith("trainbench-result ") for line in out.splitlines())
    assert ResultReader(out.splitlines()).text() == (tmp_path / "result.json").read_text()


def test_an_unknown_model_is_a_result_that_names_the_known_ones(tmp_path: Path, program: Program) -> None:
    status, out, _ = program("--output", str(tmp_path), TRAINBENCH_SPEC=UNKNOWN)

    assert status == EXIT_CODES[Status.ERROR]
    assert error_of(parse_result(out)).message.startswith("model 'gpt-17' is not known: choose one of tiny, mistral-7b")


def test_help_explains_the_exit_statuses(program: Program) -> None:
    _, text, _ = program("--help")

    assert "TRAINBENCH_SPEC" in text
    assert "0 ok, 1 error, 3 oom, 4 invalid_loss, 5 timeout, 6 incomplete" in " ".join(text.split())

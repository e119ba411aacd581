"""Each fault of a run ends in bounded time with a result that names it, and leaves no process behind."""

from __future__ import annotations

import signal
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
import torch

from bench_image.contract.options import Recipe, Strategy
from bench_image.contract.parse import parse_result
from bench_image.contract.result import Phase, Status
from bench_image.contract.result_lines import ResultReader
from bench_image.contract.spec import RunSpec
from bench_image.parallel.process_group import ProcessGroup
from bench_image.process.exit_codes import EXIT_CODES, ProcessExits
from bench_image.process.merge import merge
from bench_image.process.phases import profile
from bench_image.process.rank_report import Journal, read_reports
from tests.builders.image_processes import (
    ENDLESS,
    ROOT,
    descendants,
    environment,
    finish,
    make_spec,
    rank_process,
    run_rank,
    start,
    start_anew,
    wait_for,
)
from tests.builders.warm_processes import run_warm

NOW = datetime(2026, 11, 21, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


@pytest.mark.parametrize("strategy", [Strategy.SINGLE, Strategy.ZERO3])
def test_sigterm_gives_an_incomplete_result(tmp_path: Path, strategy: Strategy) -> None:
    spec = make_spec(recipe=Recipe.FULL, strategy=strategy, **ENDLESS)
    process = start(spec, tmp_path)
    wait_for(Phase.MEASURE, process, spec, tmp_path)
    family = descendants(process)
    process.send_signal(signal.SIGTERM)
    result = finish(process, tmp_path)

    assert (result.status, process.returncode) == (Status.INCOMPLETE, EXIT_CODES[Status.INCOMPLETE])
    assert result.error is not None
    assert (result.error.kind, result.error.phase) == ("SIGTERM", Phase.MEASURE)
    assert result.startup.build_s is not None  # what was known is kept
    assert not any(member.is_running() for member in family)


def test_a_run_past_its_time_is_stopped(tmp_path: Path) -> None:
    result = finish(start(make_spec(recipe=Recipe.FULL, timeout_s=6, **ENDLESS), tmp_path), tmp_path)

    assert result.status is Status.TIMEOUT
    assert result.error is not None
    assert "timeout_s 6" in result.error.message


@pytest.mark.parametrize(("strategy", "victim"), [(Strategy.SINGLE, 0), (Strategy.DDP, 1)])
def test_a_killed_rank_is_named_with_its_signal(tmp_path: Path, strategy: Strategy, victim: int) -> None:
    spec = make_spec(recipe=Recipe.FULL, strategy=strategy, **ENDLESS)
    process = (start if strategy is Strategy.SINGLE else start_anew)(spec, tmp_path)
    wait_for(Phase.MEASURE, process, spec, tmp_path)
    family = descendants(process)
    (family[0] if strategy is Strategy.SINGLE else rank_process(process, victim)).kill()
    result = finish(process, tmp_path)

    assert (result.status, process.returncode) == (Status.ERROR, EXIT_CODES[Status.ERROR])
    assert result.error is not None
    assert (result.error.kind, result.error.rank, result.error.phase) == ("SIGKILL", victim, Phase.MEASURE)
    assert "out-of-memory killer" in result.error.message
    assert not any(member.is_running() for member in family)


def test_ranks_follow_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    spec = make_spec(recipe=Recipe.FULL, strategy=Strategy.DDP, **ENDLESS)
    process = start(spec, tmp_path)
    wait_for(Phase.MEASURE, process, spec, tmp_path)
    family = descendants(process)
    process.kill()
    process.communicate()

    gone, alive = psutil.wait_procs(family, timeout=1200)
    assert (len(gone), alive) == (3, [])  # torchrun and two ranks


NAN_WEIGHTS = """
import bench_image.model.build as build_module
honest = build_module.build
def build(*arguments):
    built = honest(*arguments)
    built.trainable[0].data.fill_(float("nan"))
    return built
build_module.build = build
"""


def test_a_loss_that_is_not_a_number_is_a_status_with_all_figures(tmp_path: Path) -> None:
    """The weights are really NaN, so the model computes a NaN."""
    spec = make_spec(recipe=Recipe.FULL)
    result = merge(spec, [run_rank(spec, tmp_path, NAN_WEIGHTS)], ProcessExits({0: 0}), NOW, LATER)

    assert result.status is Status.INVALID_LOSS
    assert result.error is not None
    assert result.error.message == "loss of step 1 in window 1 is NaN or infinite"
    assert result.performance.samples_per_second is not None
    assert result.performance.mean_loss is None
    assert result.missing["performance.mean_loss"] == "the loss is not finite"


TOO_LARGE = """
import bench_image.model.build as build_module
import torch
def build(*arguments):
    torch.empty(2**60, dtype=torch.uint8)
build_module.build = build
"""


def test_running_out_of_memory_is_a_status_with_its_phase(tmp_path: Path) -> None:
    """The allocation is really too large for any machine."""
    spec = make_spec(recipe=Recipe.FULL)
    result = merge(spec, [run_rank(spec, tmp_path, TOO_LARGE)], ProcessExits({0: 1}), NOW, LATER)

    assert result.status is Status.OOM
    assert result.error is not None
    assert (result.error.phase, result.error.rank) == (Phase.BUILD, 0)


OUT_OF_MEMORY_AFTER = """
import bench_image.training.train_step as train_step
import torch
honest, calls = train_step.TrainStep.__call__, 0
def step(self):
    global calls
    calls += 1
    if calls > {steps}:
        torch.empty(2**60, dtype=torch.uint8)
    return honest(self)
train_step.TrainStep.__call__ = step
"""


@pytest.mark.parametrize(
    ("steps", "phase", "windows"), [(1, Phase.WARMUP, 0), (2 + 4 + 1, Phase.MEASURE, 1)], ids=["warm-up", "window 2"]
)
def test_out_of_memory_while_training_keeps_what_was_measured(
    tmp_path: Path, steps: int, phase: Phase, windows: int
) -> None:
    """Two warm-up steps, windows of four: the allocation fails really, at a step that the test chooses."""
    spec = make_spec(recipe=Recipe.FULL, max_measured_steps=4)
    report = run_rank(spec, tmp_path, OUT_OF_MEMORY_AFTER.format(steps=steps))
    result = merge(spec, [report], ProcessExits({0: 1}), NOW, LATER)

    assert result.status is Status.OOM
    assert result.error is not None
    assert result.error.phase is phase
    assert len(result.performance.windows) == windows


def test_a_profiler_that_fails_does_not_lose_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("CUPTI is not allowed here")

    monkeypatch.setattr("bench_image.training.comm_profile._profiled", refuse)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("LOCAL_RANK", "0")
    journal, group = Journal(tmp_path, now=0.0), ProcessGroup(torch.device("cpu"))
    group.world_size = 2
    profile(journal, group, step=lambda: None, step_s=1.0)  # type: ignore[arg-type]

    assert journal.report.communication is None
    assert journal.report.missing["communication"] == "the steps could not be profiled: CUPTI is not allowed here"


def test_a_rank_that_ends_itself_is_not_overwritten_by_its_main_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both write where another rank has ended: the file was cut, and a hang became `broken_figures`."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("LOCAL_RANK", "0")
    journal = Journal(tmp_path, now=0.0)
    main = threading.Thread(target=journal.write, args=(Status.ERROR, None))
    with journal.lock:
        main.start()
        main.join(0.2)
        assert list(tmp_path.iterdir()) == []
    main.join()
    assert [report.status for report in read_reports(tmp_path)] == [Status.ERROR]


DEAF = """
import os, signal
if "RANK" in os.environ:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
"""


def test_a_rank_deaf_to_sigterm_cannot_hold_up_the_result(tmp_path: Path) -> None:
    """As deep in a compiler, where Python's signal handlers do not run: the signal is really blocked."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(DEAF)
    spec = make_spec(recipe=Recipe.FULL, **ENDLESS)
    process = start_anew(spec, tmp_path / "out", PYTHONPATH=f"{tmp_path / 'site'}:{ROOT}")
    wait_for(Phase.MEASURE, process, spec, tmp_path / "out")
    family = descendants(process)
    process.send_signal(signal.SIGTERM)
    result = finish(process, tmp_path / "out")

    assert result.status is Status.INCOMPLETE
    assert result.error is not None
    assert (result.error.kind, result.error.phase) == ("SIGTERM", Phase.MEASURE)
    assert not any(member.is_running() for member in family)


BROKEN_IMPORT = """
import sys
transformers = [name for name in sys.modules if name.startswith("transformers.")]
sys.modules.update(dict.fromkeys(["transformers", *transformers]))
"""


def test_a_broken_library_is_an_error_of_the_import_phase(tmp_path: Path) -> None:
    spec = make_spec(recipe=Recipe.FULL)
    result = merge(spec, [run_rank(spec, tmp_path, BROKEN_IMPORT)], ProcessExits({0: 1}), NOW, LATER)

    assert result.error is not None
    assert (result.status, result.error.kind, result.error.phase) == (Status.ERROR, "ModuleNotFoundError", Phase.IMPORT)


def run_program(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return run_warm(["bench_image", *arguments], environment(**env))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{}", "identity"),
        ("nonsense", "JSON"),
        (make_spec(strategy=Strategy.ZERO2).model_dump_json().replace('"bf16"', '"fp16"'), "fp16"),
    ],
)
def test_a_bad_spec_is_one_line_and_no_result(tmp_path: Path, text: str, complaint: str) -> None:
    done = run_program("--output", str(tmp_path), TRAINBENCH_SPEC=text)

    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_absent_spec_is_reported(tmp_path: Path) -> None:
    assert "there is no run spec: set TRAINBENCH_SPEC" in run_program("--output", str(tmp_path)).stderr
    assert "cannot be read" in run_program("--spec", str(tmp_path / "absent.json")).stderr


def test_a_folder_that_cannot_be_written_to_leaves_the_result_on_stdout(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where the folder should be")
    done = run_program("--output", str(tmp_path / "taken"), TRAINBENCH_SPEC=make_spec().model_dump_json())
    result = parse_result(done.stdout)

    assert (done.returncode, result.status) == (EXIT_CODES[Status.ERROR], Status.ERROR)
    assert "the result cannot be written" in done.stderr


def test_in_a_pod_the_result_leaves_as_lines_of_the_log(tmp_path: Path) -> None:
    spec = make_spec(model="gpt-17").model_dump_json()
    done = run_program("--output", str(tmp_path), TRAINBENCH_SPEC=spec, TRAINBENCH_POD="tb-1")
    lines = done.stdout.splitlines()

    assert all(line.startswith("trainbench-result ") for line in lines)
    assert ResultReader(lines).text() == (tmp_path / "result.json").read_text()


def test_an_unknown_model_is_a_result_that_names_the_known_ones(tmp_path: Path) -> None:
    spec: RunSpec = make_spec(model="gpt-17")
    process = start(spec, tmp_path)
    result = finish(process, tmp_path)

    assert process.returncode == EXIT_CODES[Status.ERROR]
    assert result.error is not None
    assert result.error.message.startswith("model 'gpt-17' is not known: choose one of tiny, mistral-7b")


def test_help_explains_the_exit_statuses() -> None:
    text = run_program("--help").stdout

    assert "TRAINBENCH_SPEC" in text
    assert "0 ok, 1 error, 3 oom, 4 invalid_loss, 5 timeout, 6 incomplete" in " ".join(text.split())

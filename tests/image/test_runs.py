"""Whole runs of the tiny model on the CPU: every recipe, alone and with a peer."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from bench_image.contract.flops import num_lora_parameters, num_parameters
from bench_image.contract.model_shapes import shape_of
from bench_image.contract.options import Precision, Recipe, Strategy
from bench_image.contract.pod_io import TRACES_ENV
from bench_image.contract.result import RunResult, Status
from bench_image.contract.result_sections import Clock
from bench_image.contract.spec import Drill, RunSpec
from bench_image.process.rank_report import read_reports
from tests.builders.image_processes import finish, make_spec, start, start_anew

# Each recipe alone, and the two strategies that shard weights: test_equal_work.py trains every recipe under every
# strategy, test_seq2seq.py has whole runs of DDP, and ZeRO-2 starts and ends as ZeRO-3 does.
CELLS = [(recipe, Strategy.SINGLE) for recipe in Recipe] + [
    (Recipe.QLORA, Strategy.FSDP),
    (Recipe.FULL, Strategy.ZERO3),
]
DRILL = Drill(slowdown_pct=50)
Finished = Callable[[Recipe, Strategy], tuple[RunSpec, RunResult, Path]]


def equal_work(recipe: Recipe, strategy: Strategy) -> RunSpec:
    """Four samples per step: two ranks with two each, or one that accumulates twice two."""
    accumulation = 2 if strategy is Strategy.SINGLE else 1
    changes = {
        Recipe.FULL: {"precision": Precision.FP32},
        Recipe.LORA: {"precision": Precision.FP16, "drill": DRILL},  # it has no peer to compare with
        Recipe.QLORA: {"precision": Precision.BF16},
    }[recipe]
    return make_spec(recipe=recipe, strategy=strategy, gradient_accumulation_steps=accumulation, **changes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    done: dict[tuple[Recipe, Strategy], tuple[RunSpec, RunResult, Path]] = {}

    def get(recipe: Recipe, strategy: Strategy) -> tuple[RunSpec, RunResult, Path]:
        if (recipe, strategy) not in done:
            spec, folder = equal_work(recipe, strategy), tmp_path_factory.mktemp(f"{recipe}-{strategy}")
            # One as a pod starts it; the others spare the imports.
            begin = start_anew if (recipe, strategy) == CELLS[0] else start
            traces = {TRACES_ENV: str(folder / "traces")} if recipe is Recipe.FULL else {}
            done[recipe, strategy] = spec, finish(begin(spec, folder, **traces), folder), folder
        return done[recipe, strategy]

    return get


@pytest.mark.parametrize(("recipe", "strategy"), CELLS)
def test_a_run_ends_ok_and_knows_what_it_did(finished: Finished, recipe: Recipe, strategy: Strategy) -> None:
    spec, result, _ = finished(recipe, strategy)

    assert (result.status, result.error) == (Status.OK, None)
    assert result.spec == spec
    assert [rank.status for rank in result.ranks] == [Status.OK] * spec.placement.world_size
    num_profiled = result.communication.profiled_steps or 0  # none of one rank
    assert [sum(own_s > 0 for own_s in rank.own_steps_s) for rank in result.ranks] == [num_profiled] * len(result.ranks)
    assert len(result.performance.windows) == spec.measurement.repeats
    shape = shape_of(spec.work.model)
    adapters = num_lora_parameters(shape, spec.work.lora) if spec.work.lora else 0
    assert result.parameters.total == num_parameters(shape) + adapters
    assert result.parameters.trainable == (adapters or num_parameters(shape))
    assert result.memory.kind == "process_rss"
    assert result.startup.import_s is not None
    assert result.startup.import_s > 0


@pytest.mark.parametrize(("recipe", "strategy"), CELLS)
def test_throughput_is_all_tokens_over_the_time_of_the_steps(
    finished: Finished, recipe: Recipe, strategy: Strategy
) -> None:
    """Steps x 4 samples x 32 tokens, from the ranks' own files; on the CPU its own time counts."""
    _, result, folder = finished(recipe, strategy)
    windows = read_reports(folder)[0].windows
    steps = sum(len(window.step_times_s) for window in windows)
    cpu_s = sum(sum(window.step_times_s) for window in windows)

    assert (result.performance.measured_steps, result.performance.clock) == (steps, Clock.PROCESS_CPU)
    assert result.performance.tokens_per_second == pytest.approx(steps * 4 * 32 / cpu_s)
    assert result.performance.samples_per_second == pytest.approx(steps * 4 / cpu_s)


@pytest.mark.parametrize(("recipe", "strategy"), CELLS[len(Recipe) :])
def test_equal_work_gives_equal_losses(finished: Finished, recipe: Recipe, strategy: Strategy) -> None:
    """Two ranks train on the samples, from the weights, and with the mean gradients of one rank that accumulates."""
    one, two = (finished(recipe, each)[2] for each in (Strategy.SINGLE, strategy))
    losses_of_one, losses_of_two = (
        [loss for window in read_reports(folder)[0].windows for loss in window.losses] for folder in (one, two)
    )
    common = min(len(losses_of_one), len(losses_of_two), 4)  # the first window; both measure 4 steps at least

    tolerance = 1e-4 if recipe is Recipe.FULL else 5e-3  # fp32 and bf16
    assert losses_of_one[:common] == pytest.approx(losses_of_two[:common], abs=tolerance)


@pytest.mark.parametrize("strategy", [Strategy.SINGLE, Strategy.ZERO3])
def test_each_rank_keeps_a_trace_of_three_steps_where_it_has_a_folder(finished: Finished, strategy: Strategy) -> None:
    spec, result, folder = finished(Recipe.FULL, strategy)
    traces = {path.name: json.loads(gzip.decompress(path.read_bytes())) for path in (folder / "traces").iterdir()}
    names = {file: [event.get("name", "") for event in trace["traceEvents"]] for file, trace in traces.items()}

    assert sorted(traces) == [f"{spec.identity.run_id}.rank-{rank}.json.gz" for rank in range(len(result.ranks))]
    assert {sum(name.startswith("Optimizer.step#") for name in each) for each in names.values()} == {3}
    assert all("aten::mm" in each for each in names.values())


def test_full_training_learns_its_data(finished: Finished) -> None:
    performance = finished(Recipe.FULL, Strategy.SINGLE)[1].performance

    assert performance.first_loss is not None
    assert performance.last_loss is not None
    assert performance.last_loss < performance.first_loss


def test_a_drill_is_marked_and_still_a_complete_run(finished: Finished) -> None:
    result = finished(Recipe.LORA, Strategy.SINGLE)[1]

    assert result.status is Status.OK
    assert result.spec.drill == DRILL


def test_no_process_outlives_a_run(finished: Finished) -> None:
    finished(Recipe.QLORA, Strategy.FSDP)

    commands = [" ".join(process.cmdline()) for process in psutil.Process().children(recursive=True)]
    fork_server = "multiprocessing.forkserver"  # of the tests themselves: builders.image_processes
    assert [command for command in commands if "bench_image" in command and fork_server not in command] == []

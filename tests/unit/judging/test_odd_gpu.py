"""Which of several GPUs is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bench_image.contract.result import RunResult
from tests.builders import make_result
from trainbench.core.verdicts import Metric
from trainbench.judging.odd_gpu import odd_gpu

RATE = Metric.SAMPLES_PER_SECOND


def ddp(node: str = "node-1", rate: float = 40.0, gpus: int = 4, **fields: Any) -> RunResult:
    return make_result(node, rate, strategy="ddp", gpus_per_node=gpus, **fields)


def with_gpus(result: RunResult, **values: Sequence[float | None]) -> RunResult:
    """`values`: a field of the GPUs' telemetry -> its value on each GPU."""
    gpus = tuple(
        gpu.model_copy(update={name: figures[i] for name, figures in values.items()})
        for i, gpu in enumerate(result.telemetry.gpus)
    )
    return result.model_copy(update={"telemetry": result.telemetry.model_copy(update={"gpus": gpus})})


def with_ranks(result: RunResult, name: str, values: Sequence[float]) -> RunResult:
    ranks = tuple(rank.model_copy(update={name: value}) for rank, value in zip(result.ranks, values, strict=True))
    return result.model_copy(update={"ranks": ranks})


def test_the_lowest_clock_is_named_with_index_uuid_and_figures() -> None:
    actual = odd_gpu([with_gpus(ddp(), sm_clock_mean_mhz=(1920, 1905, 1410, 1915))], RATE)
    assert actual
    assert actual.gpu == "GPU 2 (GPU-node-1-2)"
    assert actual.text == "lowest clock GPU 2 (GPU-node-1-2): 1,410 MHz, the others 1,915 MHz"


def test_a_rank_whose_own_steps_take_longer_says_more_than_the_clock() -> None:
    slow = with_ranks(with_gpus(ddp(), sm_clock_mean_mhz=(1800, 1920, 1920, 1920)), "step_time_median_s", (1, 1, 1, 2))
    actual = odd_gpu([slow], RATE)
    assert actual
    assert actual.text == "slowest GPU 3 (GPU-node-1-3): 2,000 ms per step, the others 1,000 ms per step"


@pytest.mark.parametrize(
    ("metric", "sentence"),
    [
        (Metric.TEMPERATURE_C, "hottest GPU 1 (GPU-node-1-1): 81 °C, the other 62 °C"),
        (Metric.MEMORY_GB, "most memory GPU 0 (GPU-node-1-0): 9.000 GB, the other 7.100 GB"),
    ],
)
def test_hottest_and_fullest(metric: Metric, sentence: str) -> None:
    result = with_gpus(ddp(gpus=2), temperature_mean_c=(62.0, 81.0))
    actual = odd_gpu([with_ranks(result, "peak_allocated_bytes", (9e9, 7.1e9))], metric)
    assert actual
    assert actual.text == sentence


@pytest.mark.parametrize(
    "result",
    [
        make_result(),  # one GPU
        ddp(),  # all alike
        with_gpus(ddp(), sm_clock_mean_mhz=(1920, 1905, 1890, 1915)),  # within 2 %
        with_gpus(ddp(), sm_clock_mean_mhz=(None, None, None, 1410)),  # nothing to compare it with
        ddp().model_copy(update={"context": None, "ranks": ()}),
    ],
)
def test_where_none_stands_out_none_is_named(result: RunResult) -> None:
    assert odd_gpu([result], RATE) is None


@pytest.mark.parametrize(("mhz", "gpu"), [(975, "GPU 3 (GPU-node-1-3)"), (980, "GPU 3 (GPU-node-1-3)"), (981, None)])
def test_a_gpu_is_named_from_two_percent_on(mhz: float, gpu: str | None) -> None:
    """975 of 1,000 MHz is 2.5 % less, 980 exactly 2 %, 981 is 1.9 %."""
    actual = odd_gpu([with_gpus(ddp(), sm_clock_mean_mhz=(1000, 1000, 1000, mhz))], RATE)
    assert (actual.gpu if actual else None) == gpu


def test_over_several_runs_the_median_counts() -> None:
    """GPU 0 was very low once (its mean is 1,480), GPU 1 in two of three runs (mean 1,643)."""
    clocks = ((600, 1920, 1920, 1920), (1920, 1500, 1920, 1920), (1920, 1510, 1920, 1920))
    runs = [with_gpus(ddp(round=r), sm_clock_mean_mhz=mhz) for r, mhz in enumerate(clocks, 1)]
    actual = odd_gpu(runs, RATE)
    assert actual
    assert actual.gpu.startswith("GPU 1 ")

"""Whether others used a run's GPUs: by processes where NVML lists them, by memory in any case."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import make_cpu_result, make_failed, make_result
from tests.unit.published.measured import run
from trainbench.results.readings import SharedGpu, shared_by, shared_gpus


@pytest.mark.parametrize("result", [make_result(), make_cpu_result(), make_failed()])
def test_a_gpu_of_its_own_a_cpu_and_a_run_without_figures_are_shared_with_nobody(result: Any) -> None:
    assert shared_by(result) is None


@pytest.mark.parametrize(
    ("fields", "shared"),
    [
        ({"num_other_processes": 2}, SharedGpu(2, 0.0, (0,))),
        ({"events": {"other_processes_at_start": 1}}, SharedGpu(1, 0.0, (0,))),
        # In a container nobody is listed; memory in use tells.
        (
            {"events": {"other_processes_at_start": None, "other_memory_at_start_gb": 40.5}},
            SharedGpu(0, 40.5, (0,)),
        ),
        ({"events": {"other_memory_at_end_gb": 1.1}}, SharedGpu(0, 1.1, (0,))),
    ],
)
def test_a_process_or_memory_of_others_makes_a_run_shared(fields: dict[str, Any], shared: SharedGpu) -> None:
    assert shared_by(make_result(**fields)) == shared


def test_up_to_one_gigabyte_is_the_driver_s_or_an_idle_context() -> None:
    """An older driver counts its own reserve, 0.645 GB of an H200."""
    assert shared_by(make_result(events={"other_memory_at_start_gb": 1.0, "other_memory_at_end_gb": 0.645})) is None


def test_only_the_shared_gpus_are_named() -> None:
    result = make_result(strategy="ddp", gpus_per_node=3)
    gpus = tuple(gpu.model_copy(update={"other_memory_at_start_gb": 20.0 * gpu.index}) for gpu in result.telemetry.gpus)
    shared = shared_by(result.model_copy(update={"telemetry": result.telemetry.model_copy(update={"gpus": gpus})}))

    assert shared == SharedGpu(0, 40.0, (1, 2))
    assert shared.sentence == "40.0 GB in use beside the run on GPUs 1 and 2"
    assert shared_gpus([gpu.model_copy(update={"index": 0}) for gpu in gpus]) == SharedGpu(0, 40.0, (0,))


def test_a_measured_run_beside_a_neighbour_is_shared_and_one_alone_is_not() -> None:
    """The neighbour holds 40e9 bytes, its matrices and its context."""
    alone, beside = (run(f"probes-h200-2026-11-23/{name}") for name in ("quiet", "neighbour"))

    assert shared_by(alone) is None
    shared = shared_by(beside)
    assert shared is not None
    assert shared.sentence == "1 other process, 41.3 GB in use beside the run on GPU 0"

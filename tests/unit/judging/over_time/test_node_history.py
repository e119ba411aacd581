"""Several rounds of a night as one point of a node's past."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from tests.builders import STARTED_AT, make_cpu_result, make_result
from trainbench.judging.over_time.node_history import join_records, records_of


def test_the_rounds_of_a_night_are_one_point_of_their_medians_with_the_last_set_up() -> None:
    """9.0, 9.6 and 10.5 samples/s, mean 9.7; 60, 61 and 65 degrees, mean 62."""
    rounds = [(1, 9.0, 60.0, "driver-1"), (2, 9.6, 61.0, "driver-1"), (3, 10.5, 65.0, "driver-2")]
    results = [make_result("node-1", rate, round=r, temperature_c=c, driver=driver) for r, rate, c, driver in rounds]
    points = [point for result in results for point in records_of([result], STARTED_AT)]
    single = [replace(point, at=STARTED_AT + timedelta(minutes=i)) for i, point in enumerate(points)]
    (point,) = join_records(single)

    assert (point.samples_per_second, point.temperature_c) == (9.6, 61.0)
    assert (point.at, point.setup.driver) == (STARTED_AT, "driver-2")


def test_a_run_on_the_cpu_has_no_gpu_s_name() -> None:
    (point,) = records_of([make_cpu_result()], STARTED_AT)
    assert point.gpu_name is None


def test_a_node_with_two_kinds_of_gpu_goes_by_its_first() -> None:
    result = make_result("node-1")
    assert result.context is not None
    first, *_ = result.context.gpus
    second = first.model_copy(update={"index": 1, "name": "NVIDIA L4", "uuid": "GPU-l4"})
    mixed = result.model_copy(update={"context": result.context.model_copy(update={"gpus": (first, second)})})
    (point,) = records_of([mixed], STARTED_AT)

    assert point.gpu_name == first.name != "NVIDIA L4"

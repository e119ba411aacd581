"""A campaign as the rows of its runs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import select

from tests.builders import make_cpu_result, make_failed, make_independent, make_result
from tests.builders.recorded_nights import DAY_1, make_night, past, stored
from trainbench.history.history import History
from trainbench.history.tables import runs, works

pytestmark = pytest.mark.both_databases


def test_a_run_is_recorded_with_what_the_dashboard_shows(history: History) -> None:
    """It took 55 s of one GPU at $0.60 an hour."""
    history.record(make_night(1, make_result("node-1", 9.5, memory_gb=7.1, temperature_c=60.0)))
    (row,) = stored(history, runs)
    expected = {
        "campaign_id": "night-1", "suite": "node_consistency", "node": "node-1", "gpu_name": "NVIDIA H200",
        "driver": "580.65.06", "torch": "2.13.0", "status": "ok", "state": "well", "why": "well",
        "samples_per_second": 9.5, "peak_memory_gb": 7.1, "temperature_mean_c": 60.0,
        "run_usd": pytest.approx(55 / 3600 * 0.60), "is_drill": False, "is_baseline": True,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    assert row["started_at"] == DAY_1 + timedelta(minutes=31)


def test_a_failed_run_and_a_run_on_cpu_leave_unknown_numbers_null(history: History) -> None:
    history.record(make_night(1, make_failed("node-1"), make_cpu_result("node-2")))
    failed, on_cpu = stored(history, runs)
    assert (failed["status"], failed["samples_per_second"], failed["is_baseline"]) == ("oom", None, False)
    assert (on_cpu["gpu_name"], on_cpu["temperature_mean_c"], on_cpu["is_baseline"]) == (None, None, True)


def test_of_a_run_that_came_back_twice_the_later_one_is_recorded(history: History) -> None:
    campaign = make_night(1, make_result(samples_per_s=2.0), make_result(samples_per_s=1.0))
    late = campaign.results[0].finished_at + timedelta(minutes=5)
    twice = (campaign.results[0].model_copy(update={"finished_at": late}), campaign.results[1])
    history.record(campaign.model_copy(update={"results": twice}))
    assert [row["samples_per_second"] for row in stored(history, runs)] == [2.0]


def test_an_imported_run_is_no_run_of_ours(history: History) -> None:
    history.record(make_night(1, make_result()).model_copy(update={"campaign_id": "imported-x-12345678"}))
    (row,) = stored(history, runs)
    assert (row["node"].endswith("/node-1"), row["is_baseline"], row["gpu_uuids"]) == (True, False, None)


def test_a_run_keeps_what_it_was_paid_for(history: History) -> None:
    """A gang of two nodes with one GPU each, $0.60 per GPU-hour; each GPU took 27,000 J."""
    gang = make_result("node-1", strategy="ddp", nodes=2, gpus_per_node=1, peers=("node-2",))
    history.record(make_night(1, gang))
    names = ("peers", "world_size", "micro_batch_size", "seq_length", "usd_per_gpu_hour", "energy_per_sample_j")
    with history.engine.begin() as connection:
        (row,) = connection.execute(select(*(runs.c[name] for name in names))).all()

    assert tuple(row)[:4] == ("node-2", 2, 8, 512)
    assert row.usd_per_gpu_hour == 0.60
    assert row.energy_per_sample_j == 67.0


def test_the_sum_of_a_node_s_gpus_is_what_was_paid_for_and_its_slowest_gpu_is_its_past(history: History) -> None:
    """GPUs at 10 and 9: 19 samples/s were paid for; the node is compared with 9."""
    history.record(make_night(1, make_independent("node-1", (10.0, 9.0))))
    with history.engine.begin() as connection:
        (row,) = connection.execute(select(runs.c.samples_per_second, runs.c.judged_samples_per_second)).all()
        (work,) = connection.execute(select(works.c.samples_per_second)).scalars().all()

    assert tuple(row) == (19.0, 9.0)
    assert work == 19.0
    later = make_independent("node-1", (10.0, 9.5)).model_copy(update={"started_at": DAY_1 + timedelta(days=3)})
    assert past(history, later) == [9.0]

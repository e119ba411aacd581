from __future__ import annotations

import csv
import io
from collections.abc import Callable

from bench_control.metrics import metrics_csv
from tests import campaigns
from tests.builders import make_cpu_result, make_failed, make_result

GUIDE_COLUMNS = (
    "strategy,world_size,rank,seq_len,tier,steps,per_device_batch,grad_accum,tokens_per_sec,mean_step_time_sec,"
    "mean_loss,peak_vram_gb,h2d_gbps_per_gpu,scaling_efficiency_pct"
)


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_columns_that_existing_scripts_read_come_first_in_their_order() -> None:
    assert metrics_csv(campaigns.healthy()).startswith(GUIDE_COLUMNS + ",")
    assert metrics_csv(campaigns.make_campaign([])) == GUIDE_COLUMNS + "\n"


def test_one_row_for_each_run_with_full_precision() -> None:
    """10 samples/s of 512 tokens: 5,120 tokens/s and 0.8 s for a step of 8."""
    (row,) = rows(metrics_csv(campaigns.make_campaign([make_result("node-1", 10.0, memory_gb=13.96808448)])))
    assert (row["strategy"], row["world_size"], row["rank"], row["steps"]) == ("single", "1", "0", "150")
    assert (row["tokens_per_sec"], row["mean_step_time_sec"], row["peak_vram_gb"]) == ("5120.0", "0.8", "13.96808448")
    assert row["tier"] == ""
    assert row["scaling_efficiency_pct"] == ""
    assert row["is_drill"] == "false"
    assert row["startup_s"] == "30.0"


def test_scaling_efficiency_names_its_base() -> None:
    single, two, four = rows(metrics_csv(campaigns.scaling()))
    assert [r["scaling_efficiency_pct"] for r in (single, two, four)] == ["", "90.0", "80.0"]
    assert [r["scaling_base_world_size"] for r in (single, two, four)] == ["", "1", "1"]


def test_tier_models_fill_the_tier() -> None:
    (row,) = rows(metrics_csv(campaigns.make_campaign([make_result(model="tier-b")])))
    assert row["tier"] == "B"


def test_the_memory_of_a_cpu_run_is_not_called_vram() -> None:
    (row,) = rows(metrics_csv(campaigns.make_campaign([make_cpu_result(memory_gb=0.6)])))
    assert (row["peak_vram_gb"], row["peak_memory_gb"], row["memory_kind"]) == ("", "0.6", "process_rss")


def test_a_failed_run_is_a_row_with_empty_cells() -> None:
    (row,) = rows(metrics_csv(campaigns.make_campaign([make_failed("node-1")])))
    assert (row["status"], row["tokens_per_sec"], row["samples_per_second"]) == ("oom", "", "")
    assert row["error"].startswith("OutOfMemoryError: CUDA out of memory")


def test_text_cannot_become_a_spreadsheet_formula_or_a_second_row() -> None:
    hostile = make_failed("node-1", kind='=cmd|"calc"', message="a\nb,c")
    (row,) = rows(metrics_csv(campaigns.make_campaign([hostile])))
    assert row["error"] == '\'=cmd|"calc": a b,c'


def test_the_file(golden: Callable[[str, str], None]) -> None:
    golden("metrics-scaling.csv", metrics_csv(campaigns.scaling()))

"""A run's tables: each GPU by itself where the run had several."""

from __future__ import annotations

from tests.builders import make_cpu_result, make_result
from trainbench.core.tables import csv_text
from trainbench.pages.render.listings import gpu_table, run_figures


def test_each_gpu_has_a_row_with_its_own_figures() -> None:
    """Two GPUs of 640 W; the second is 20 degrees hotter, which the run's figure, that of the hottest, hides."""
    run = make_result(strategy="ddp", gpus_per_node=2, temperature_c=60.0)
    cool, hot = run.telemetry.gpus
    hot = hot.model_copy(update={"temperature_mean_c": 80.0})
    table = gpu_table(run.model_copy(update={"telemetry": run.telemetry.model_copy(update={"gpus": (cool, hot)})}))

    place = table.names.index("temperature mean")
    assert [row.texts[place] for row in table.rows] == ["60 °C", "80 °C"]
    assert [row.texts[table.names.index("power W")] for row in table.rows] == ["640.0", "640.0"]
    assert "J per sample" not in table.names  # of all GPUs together
    assert csv_text(table).splitlines()[0].startswith("GPU,UUID,")


def test_a_run_of_one_gpu_has_no_table_of_gpus() -> None:
    assert "gpus" not in {table.name for table in run_figures(make_result())}
    assert "gpus" not in {table.name for table in run_figures(make_cpu_result())}
    assert run_figures(make_result(strategy="ddp", gpus_per_node=2))[0].name == "gpus"


def test_what_no_figure_of_the_catalogue_says_is_told_too() -> None:
    run = make_result(strategy="ddp", gpus_per_node=2, events={"ecc_corrected_in_run": 3})
    told = {row.texts[0]: row.texts[1] for table in run_figures(run)[1:] for row in table.rows}

    assert (told["profiled steps"], told["corrected memory errors (ECC)"]) == ("3", "6")
    assert (told["compute capability"], told["highest SM clock"]) == ("9.0", "1980 MHz")
    alone = {row.texts[0] for table in run_figures(make_result()) for row in table.rows}
    assert "median step of each rank" not in alone

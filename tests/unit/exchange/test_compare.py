"""Results of different machines side by side: what is a row, what may be ranked, what it costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders import make_cpu_result, make_failed, make_result, spoilt
from tests.builders.commands import document as document_of
from tests.builders.commands import trainbench, write
from tests.unit.exchange.test_foreign_files import BENCH_FILE, OLD, changed
from tests.unit.reporting.test_html import Page

pytestmark = pytest.mark.usefixtures("own_folder")


def write_bench(path: Path, document: dict[str, Any]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return str(path)


def rows(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
    done = trainbench("compare", *arguments, "--json")
    assert done.exit_code == code, done.stderr
    document: list[dict[str, Any]] = document_of(done)["rows"]
    return document


def test_runs_of_equal_work_are_one_row_with_their_median(own_folder: Path) -> None:
    """Three runs of 9.0, 9.5 and 9.9 samples/s on three nodes: median 9.5, half of the range 0.45 / 9.5 = 4.74 %.
    At $6.84 per GPU-hour: 6.84 / (9.5 * 3600) * 1000 = $0.20 per 1K samples.
    """
    write(own_folder / "h200", *(make_result(f"node-{i}", rate) for i, rate in ((1, 9.0), (2, 9.5), (3, 9.9))))
    (row,) = rows("h200", "--cost", "6.84")
    assert (row["name"], row["num_runs"], row["nodes"], row["samples_per_second"]) == ("h200", 3, 3, 9.5)
    assert row["apart_pct"] == pytest.approx(100 * 0.45 / 9.5)
    assert row["usd_per_1000_samples"] == pytest.approx(0.20)


def test_on_a_cpu_the_size_counts_processes(own_folder: Path) -> None:
    gang = make_cpu_result(samples_per_s=30.0, strategy="ddp", gpus_per_node=2)
    write(own_folder / "cpu", gang)
    write(own_folder / "gpus", make_result(samples_per_s=9.0, strategy="ddp", gpus_per_node=2))
    assert "size 2 processes" in trainbench("compare", "cpu").stdout
    assert "size 2 GPUs" in trainbench("compare", "gpus").stdout


def test_relative_to_the_first(own_folder: Path) -> None:
    """10 samples/s at $2 and 25 samples/s at $4: 2.5 times as fast, and 4 / 25 against 2 / 10 = 0.8 of the cost."""
    write(own_folder / "a10", make_result(samples_per_s=10.0, gpu_name="NVIDIA A10"))
    write(own_folder / "h200", make_result(samples_per_s=25.0))
    first, second = rows("a10", "h200", "--cost", "2", "4")
    assert (first["relative_rate"], first["is_baseline"]) == (1.0, True)
    assert (second["relative_rate"], second["relative_usd"]) == (2.5, pytest.approx(0.8))
    first, second = rows("--cost", "4", "h200", "--cost", "2", "a10")
    assert (first["is_baseline"], second["relative_rate"]) == (True, 0.4)


def test_rows_that_ran_under_different_pod_templates_are_ranked_with_a_note(own_folder: Path) -> None:
    write(own_folder / "before", make_result(samples_per_s=10.0))
    write(own_folder / "after", make_result(samples_per_s=8.0, pod_template="3f2a91c04b7d"))
    first, second = rows("before", "after")

    assert (first["pod_template"], second["pod_template"], second["relative_rate"]) == ("none", "3f2a91c04b7d", 0.8)
    note = "The pod template differs, which may change the speed: row 1 none and row 2 3f2a91c04b7d."
    assert note in " ".join(trainbench("compare", "before", "after").stdout.split())
    assert "pod template" not in trainbench("compare", "before", "before").stdout


def test_the_price_table_or_what_was_stored_is_the_default(own_folder: Path) -> None:
    write(own_folder / "known", make_result())
    write(own_folder / "unknown", make_result(gpu_name="Mystery 9000"))
    known, unknown = rows("known", "unknown")
    assert known["usd_per_gpu_hour"] > 0
    assert "H200" in known["price_source"]
    assert (unknown["usd_per_gpu_hour"], unknown["usd_per_1000_samples"]) == (None, None)


def test_unequal_work_is_named_and_not_ranked(own_folder: Path) -> None:
    write(own_folder / "short", make_result(samples_per_s=20.0))
    write(own_folder / "long", make_result(samples_per_s=9.0, seq_length=1024))
    done = trainbench("compare", "short", "long")
    assert done.exit_code == 0
    assert "seq_length 512 vs 1024" in done.stdout
    assert "2 different jobs: rows of different jobs are not ranked" in done.stdout
    assert {row["relative_rate"] for row in rows("short", "long")} == {1.0}
    assert "Fastest" not in done.stdout


SMALL = {"family": "encoder-decoder", "hidden_size": 128}


def test_two_sizes_of_one_model_are_named_by_their_size_and_what_differs(own_folder: Path) -> None:
    """At equal vocabulary, width 256 instead of 128 has more parameters; the other dimensions are the same."""
    for width in (128, 256):
        run = make_result(
            model="encoder-decoder",
            recipe="full",
            optimizer="adamw_torch",
            lora=None,
            quantisation=None,
            dimensions=SMALL | {"hidden_size": width},
        )
        write(own_folder / str(width), run)
    text = " ".join(trainbench("compare", "128", "256").stdout.split())
    titles = [row["num_parameters"] for row in rows("128", "256")]
    assert titles[0] < titles[1]
    assert f"{titles[0] / 1e6:.2f} M parameters: speed" in text
    assert f"{titles[1] / 1e6:.2f} M parameters: speed" in text
    assert "it differs in: dimensions.hidden_size 128 vs 256." in text


def test_without_a_price_there_is_no_table_of_cost(own_folder: Path) -> None:
    write(own_folder / "unknown", make_result(gpu_name="Mystery 9000"))
    done = trainbench("compare", "unknown", "--html", "page.html")
    assert ": cost" not in done.stdout
    assert "Price of row 1: none is known for Mystery 9000, give --cost." in " ".join(done.stdout.split())
    assert ": cost" not in (own_folder / "page.html").read_text()
    assert ": cost" in trainbench("compare", "unknown", "--cost", "2").stdout


def test_published_results_are_compared_as_they_are_and_as_imported(own_folder: Path) -> None:
    write(own_folder / "mine", make_result())
    assert trainbench("export", "mine", "--output", "published").exit_code == 0
    (file,) = (own_folder / "published").glob("*.json")
    imported = trainbench("import", str(file)).stdout.strip()
    assert [row["samples_per_second"] for row in rows("mine", str(file))] == [9.5, 9.5]
    assert [row["samples_per_second"] for row in (*rows("published"), *rows(imported))] == [9.5, 9.5]


def test_machines_of_other_sizes_compare_at_an_equal_global_batch(own_folder: Path) -> None:
    """8 GPUs with 4 samples each and 4 GPUs with 8 each: 32 in all. 8 GPUs with 8 each share the batch per GPU. But
    4 GPUs with 2 each share neither with the first.
    """
    batches = {"a": (8, 4), "b": (4, 8), "c": (4, 4), "d": (4, 2)}
    for name, (gpus, batch) in batches.items():
        write(own_folder / name, make_result(strategy="fsdp", gpus_per_node=gpus, micro_batch_size=batch))
    done = trainbench("compare", *batches)
    assert [row["is_ranked"] for row in rows(*batches)] == [True, True, True, False]
    assert "row 4 (batch 4 x 8 ranks vs 2 x 4 ranks)" in " ".join(done.stdout.split())


def test_another_batch_has_a_relative_speed_and_no_rank(own_folder: Path) -> None:
    """20 samples/s against 8 are 2.50 times, of other work: no row is called fastest."""
    write(own_folder / "a", make_result(samples_per_s=8.0, micro_batch_size=4))
    write(own_folder / "b", make_result(samples_per_s=20.0, micro_batch_size=8))
    done = trainbench("compare", "a", "b")
    assert [row["relative_rate"] for row in rows("a", "b")] == [1.0, 2.5]
    assert "2.50x, other batch" in " ".join(done.stdout.split())
    assert "Fastest" not in done.stdout


def test_rates_within_the_uncertainty_rank_equal(own_folder: Path) -> None:
    """9.50 and 9.55 differ by 0.5 %; their runs range over 9.4 to 9.6, which is ±1.05 % of each median."""
    write(own_folder / "a", *(make_result(f"node-{i}", rate) for i, rate in enumerate((9.4, 9.5, 9.6), 1)))
    write(own_folder / "b", *(make_result(f"node-{i}", rate) for i, rate in enumerate((9.45, 9.55, 9.65), 1)))
    text = " ".join(trainbench("compare", "a", "b").stdout.split())
    assert "are too close to rank; they differ by 0.5 %, within their joint uncertainty of 2.1 %" in text


def test_bench_files_of_both_programs_in_one_folder(own_folder: Path) -> None:
    """The older program's: 30 s per epoch on 8 GPUs at $3 = 3 * 8 * 30 / 3600 = $0.20 per epoch; 4,200 MB = 4.2 GB;
    epochs of 121,000 and 129,000 samples/s: half of the range is 4,000 of 125,000, 3.2 %.
    """
    write_bench(own_folder / "results" / "bench_H100_8gpu_1.json", OLD)
    slower = changed(OLD, "summary.avg_throughput_samples_per_s", 50_000.0)
    write_bench(own_folder / "results" / "bench_H200_8gpu_2.json", changed(slower, "metadata.gpu_name", "NVIDIA H200"))
    (own_folder / "results" / "bench_X_2gpu_3.json").write_bytes(BENCH_FILE.read_bytes())

    h100, h200, own = rows("results", "--cost", "3.00", "5.50", "8.00")
    assert (h100["usd_per_epoch"], h100["peak_memory_gb"]) == (pytest.approx(0.20), 4.2)
    assert (h100["apart_pct"], h100["apart_from"]) == (pytest.approx(3.2), "half of the range of 2 epochs")
    assert h200["relative_rate"] == 0.4
    assert (own["epoch_s"], own["relative_rate"], own["job_number"]) == (1.5, 1.0, 2)
    assert "measured by trainbench vs benchmark.py" in trainbench("compare", "results").stdout.replace("\n", " ")


def test_the_prices_must_be_as_many_as_the_rows(own_folder: Path) -> None:
    write(own_folder / "a", make_result())
    write(own_folder / "b", make_result(gpu_name="NVIDIA A10"))
    done = trainbench("compare", "a", "b", "--cost", "3")
    assert done.exit_code == 2
    assert "--cost has 1 price for 2 rows: 1 a (NVIDIA H200) and 2 b (NVIDIA A10)" in done.stderr


@pytest.mark.parametrize("price", ["0", "nan", "1e400"])
def test_a_price_is_a_number_above_0(own_folder: Path, price: str) -> None:
    write(own_folder / "a", make_result())
    done = trainbench("compare", "a", f"--cost={price}")
    assert done.exit_code == 2
    assert "it must be a number above 0, in $ per GPU-hour" in done.stderr


def test_a_cell_that_is_no_figure_is_reported(own_folder: Path) -> None:
    """One OOM, one drill, one file that is there twice, one of schema version 1, one that cannot be read."""
    write(own_folder / "r", make_result(), make_failed("node-2"), make_result("node-3", drill={"slowdown_pct": 20}))
    again = own_folder / "r" / "copy" / "result.json"
    again.parent.mkdir()
    again.write_text(make_result().model_dump_json())
    broken = own_folder / "r" / "broken" / "result.json"
    broken.parent.mkdir()
    broken.write_text('{"schema_version": 1, "spec"')

    done = trainbench("compare", "r")
    output = " ".join(done.stdout.split())
    assert done.exit_code == 1
    assert f"{broken} is left out: no JSON (truncated?)" in done.stderr
    assert "Failed, so no row: 1 run, 1 oom (single on 1)." in output
    assert "1 drill left out" in output
    assert "1 file of runs that were read before, counted once" in output


def test_nothing_to_compare(own_folder: Path) -> None:
    (own_folder / "empty").mkdir()
    write(own_folder / "failed", make_failed())
    assert "holds neither result.json nor bench_*.json" in trainbench("compare", "empty").stderr
    assert "neither a file, nor a folder, nor a campaign" in trainbench("compare", "nowhere").stderr
    done = trainbench("compare", "failed")
    assert done.exit_code == 3
    assert "no file holds a measured run" in done.stderr


def test_the_page(own_folder: Path) -> None:
    """Links to the raw files, nothing that runs or loads, hostile names as text."""
    hostile = changed(OLD, "metadata.gpu_name", "<script>alert(1)</script>")
    write_bench(own_folder / "results" / "bench_<b>x & y_8gpu.json", hostile)
    write(own_folder / "h200", make_result(samples_per_s=20.0))
    write(own_folder / "a10", make_result(gpu_name="NVIDIA A10"))
    done = trainbench("compare", "h200", "a10", "results", "--html", "out/page.html")
    assert done.exit_code == 0, done.stderr
    text = (own_folder / "out" / "page.html").read_text()
    page = Page(text)
    assert page.tags.isdisjoint({"script", "b", "link", "iframe"})
    assert "&lt;script&gt;alert(1)" in text
    links = set(page.links)
    assert {"../h200/0/result.json", "../results/bench_%3Cb%3Ex%20%26%20y_8gpu.json"} <= links
    assert page.loads == []


def test_a_page_that_cannot_be_written_is_one_sentence(own_folder: Path) -> None:
    write(own_folder / "a", make_result())
    (own_folder / "file").write_text("")
    done = trainbench("compare", "a", "--html", "file/page.html")
    assert done.exit_code == 2
    assert "cannot be written" in done.stderr


def test_terminal_escapes_in_a_name_are_not_shown(own_folder: Path) -> None:
    write_bench(own_folder / "bench_1.json", changed(OLD, "metadata.gpu_name", "H100\x1b[2J\x07\nrow 2"))
    done = trainbench("compare", "bench_1.json")
    assert done.exit_code == 0
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout


def test_a_run_that_failed_with_a_rate_is_no_row(own_folder: Path) -> None:
    write(own_folder / "r", make_result(samples_per_s=10.0), spoilt(make_result("node-2", 40.0)))
    done = trainbench("compare", "r")
    assert "Failed, so no row: 1 run, 1 invalid_loss (single on 1)." in " ".join(done.stdout.split())
    (row,) = rows("r")
    assert (row["samples_per_second"], row["num_runs"]) == (10.0, 1)


def test_sources_of_one_name_stay_apart(own_folder: Path) -> None:
    """The same campaign's results before and after: two rows, not the median of both."""
    write(own_folder / "before" / "results", make_result(samples_per_s=10.0))
    write(own_folder / "after" / "results", make_result(samples_per_s=20.0))
    table_rows = rows("before/results", "after/results")
    assert [(row["name"], row["samples_per_second"]) for row in table_rows] == [
        ("before/results", 10.0),
        ("after/results", 20.0),
    ]

    files = [f"{when}/results/0/result.json" for when in ("before", "after")]
    assert [row["relative_rate"] for row in rows(*files)] == [1.0, 2.0]

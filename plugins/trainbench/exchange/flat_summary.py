"""metrics.csv and reports of flat result.json files, as another program's comparison of strategies writes them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from upath import UPath

from bench_image.contract.pod_io import RESULT_FILE
from trainbench.core.csv_cells import Cell, lines
from trainbench.core.grouping import grouped
from trainbench.core.markdown import bullets
from trainbench.exchange.compare import compare, comparison_html, summary, tables_of_jobs
from trainbench.exchange.result_files import (
    MAX_FILE_BYTES,
    BenchFileError,
    FlatResult,
    Gathered,
    is_flat,
    parse_flat,
)
from trainbench.prices.price_tables import Price
from trainbench.reporting.data_files import FLAT_ROW
from trainbench.reporting.document import Section, markdown
from trainbench.reporting.pictures import drawing, png
from trainbench.reporting.plots import STYLES, Facet, Points, draw_facets, linear
from trainbench.results.store_files import read_bounded

# File -> title, label and column of metrics.csv.
PLOTS = {
    "tokens_per_sec_vs_gpu": ("Throughput", "tokens/s, all GPUs", "tokens_per_sec"),
    "step_time_vs_gpu": ("Step time", "mean step time (s)", "mean_step_time_sec"),
    "scaling_efficiency": ("Scaling efficiency", "% of the throughput per GPU on the fewest", "scaling_efficiency_pct"),
    "gbps_vs_gpu": ("Host-to-device copy", "GB/s per GPU", "h2d_gbps_per_gpu"),
}


def flat_summary(folder: Path, prices: Sequence[Price]) -> Mapping[str, str | bytes] | None:
    """File name -> content; None unless each result.json below `folder` is flat. Raises BenchFileError, StoreError."""
    root, documents = UPath(folder.resolve()), {}
    for path in sorted(root.rglob(RESULT_FILE), key=str):
        content = read_bounded(path, MAX_FILE_BYTES, root)
        if not is_flat(content):
            return None
        try:
            documents[path] = parse_flat(content)
        except BenchFileError as error:
            raise BenchFileError(f"{path}: {error}") from None
    if not documents:
        return None
    # The folder of a file names its run.
    jobs = compare([each.row(path.parent.name, str(path)) for path, each in documents.items()], prices)
    rows = tuple(row.measured for job in jobs for row in job.rows)
    sections = [
        Section(speed.title, [speed, *([cost] if cost else [])], f"job-{number}")
        for number, (speed, cost) in enumerate(tables_of_jobs(jobs), 1)
    ]
    links = {str(number): f"../{path.relative_to(root)}" for number, path in enumerate(documents, 1)}
    head = (f"# Runs of {folder.resolve().name}", bullets(summary(jobs)).rstrip("\n"))
    metrics = _metrics([*documents.values()])
    return {
        "metrics.csv": lines([FLAT_ROW, *([row[name] for name in FLAT_ROW] for row in metrics)]),
        **_plots(metrics),
        "BENCHMARK_REPORT.md": "\n\n".join(filter(None, [*head, *markdown(sections, links)])) + "\n",
        "report.html": comparison_html(jobs, Gathered(rows, (), ()), folder.resolve() / "summary"),
    }


def _metrics(documents: Sequence[FlatResult]) -> Sequence[Mapping[str, Cell]]:
    """The files' own values, with 100 x tokens/s per GPU / that of the fewest GPUs of equal work and strategy."""
    of_work = grouped(((each.strategy, *each.work), each) for each in documents)
    fewest = {key: min(each, key=lambda one: one.world_size) for key, each in of_work.items()}
    made = []
    for each in documents:
        base = fewest[(each.strategy, *each.work)]
        per_gpu, of_base = each.tokens_per_sec / each.world_size, base.tokens_per_sec / base.world_size
        made.append(each.model_dump() | {"scaling_efficiency_pct": 100 * per_gpu / of_base})
    return made


def _plots(metrics: Sequence[Mapping[str, Any]]) -> Mapping[str, bytes]:
    """Of the strategies that we know; a column without values has none."""
    drawn = {}
    for file, (title, label, column) in PLOTS.items():
        known = [row for row in metrics if row["strategy"] in STYLES and row[column] is not None]
        facets = []
        for work, of_work in grouped((_work(row), row) for row in known).items():
            values = grouped(((row["strategy"], row["world_size"]), row[column]) for row in of_work)
            points: Points = {}
            for (strategy, size), of_size in values.items():
                points.setdefault(strategy, {})[size] = (statistics.median(of_size), 0.0)
            facets.append(Facet(work, points, ideal=linear(points) if column == "tokens_per_sec" else {}))
        if facets:
            with drawing():
                drawn[f"plots/{file}.png"] = png(draw_facets(facets, title, label))
    return drawn


def _work(row: Mapping[str, Any]) -> str:
    batch = f"batch {row['per_device_batch']} x {row['seq_len']} tokens"
    return f"tier {row['tier']}, {batch}, accumulation {row['grad_accum']}"

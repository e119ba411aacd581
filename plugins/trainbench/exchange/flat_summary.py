"""metrics.csv and reports of flat result.json files, as another program's comparison of strategies writes them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from upath import UPath

from bench_image.contract.pod_io import RESULT_FILE
from trainbench.core.csv_cells import Cell, lines
from trainbench.core.grouping import grouped
from trainbench.core.markdown import bullets
from trainbench.exchange.compare import compare, comparison_html, sections, summary
from trainbench.exchange.result_files import FlatResult, Gathered, ResultFile, contents_of
from trainbench.prices.price_tables import Price
from trainbench.reporting.data_files import FLAT_ROW
from trainbench.reporting.document import markdown
from trainbench.reporting.pictures import drawing, png
from trainbench.reporting.plots import STYLES, Facet, Points, draw_facets, linear
from trainbench.results.store_files import BrokenFile

# File -> title, label and column of metrics.csv.
PLOTS = {
    "tokens_per_sec_vs_gpu": ("Throughput", "tokens/s, all GPUs", "tokens_per_sec"),
    "step_time_vs_gpu": ("Step time", "mean step time (s)", "mean_step_time_sec"),
    "scaling_efficiency": ("Scaling efficiency", "% of the throughput per GPU on the fewest", "scaling_efficiency_pct"),
    "gbps_vs_gpu": ("Host-to-device copy", "GB/s per GPU", "h2d_gbps_per_gpu"),
}


WORK = "tier {tier}, batch {per_device_batch} x {seq_len} tokens, accumulation {grad_accum}"


class FlatSummary(NamedTuple):
    """`files`: name -> content. `broken`: files that are in none of them."""

    files: Mapping[str, str | bytes]
    broken: tuple[BrokenFile, ...]


def flat_summary(folder: Path, prices: Sequence[Price]) -> FlatSummary | None:
    """None where a result.json below `folder` is of ours, or none is flat; that is decided by all that can be read."""
    root = UPath(folder.resolve())
    paths = sorted(root.rglob(RESULT_FILE), key=str)
    found, broken = contents_of([ResultFile(str(folder), path, root) for path in paths])
    documents = {file.path: content for file, content in found if isinstance(content, FlatResult)}
    if not documents or len(documents) < len(found):
        return None
    # The folder of a file names its run.
    jobs = compare([each.row(path.parent.name, str(path)) for path, each in documents.items()], prices)
    rows = tuple(row for job in jobs for row in job)
    links = {str(number): f"../{path.relative_to(root)}" for number, path in enumerate(documents, 1)}
    head = (f"# Runs of {folder.resolve().name}", bullets(summary(jobs)).rstrip("\n"))
    left_out = [f"{file.address} is left out: {file.reason}" for file in broken]
    tail = ("## Files that were left out", bullets(left_out).rstrip("\n")) if left_out else ()
    metrics = _metrics([*documents.values()])
    files: dict[str, str | bytes] = {
        "metrics.csv": lines([FLAT_ROW, *([row[name] for name in FLAT_ROW] for row in metrics)]),
        **_plots(metrics),
        "BENCHMARK_REPORT.md": "\n\n".join(filter(None, [*head, *markdown(sections(jobs), links), *tail])) + "\n",
        "report.html": comparison_html(jobs, Gathered(rows, (), broken), folder.resolve() / "summary"),
    }
    return FlatSummary(files, broken)


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
        for work, of_work in grouped((WORK.format_map(row), row) for row in known).items():
            values = grouped(((row["strategy"], row["world_size"]), row[column]) for row in of_work)
            points: Points = {}
            for (strategy, size), of_size in values.items():
                points.setdefault(strategy, {})[size] = (statistics.median(of_size), 0.0)
            facets.append(Facet(work, points, ideal=linear(points) if column == "tokens_per_sec" else {}))
        if facets:
            with drawing():
                drawn[f"plots/{file}.png"] = png(draw_facets(facets, title, label))
    return drawn

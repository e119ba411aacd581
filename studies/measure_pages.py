"""How long the pages' reads take over a long history, and a chart: records made-up nights, then times all.

    PYTHONPATH=.:plugins python studies/measure_pages.py sqlite:////tmp/pages.sqlite OUTPUT.json
    PYTHONPATH=.:plugins python studies/measure_pages.py postgresql+psycopg://USER@HOST/EMPTY OUTPUT.json --nights 200

The database must be new: `--keep` takes one that this command has filled before. Each night is a campaign of every node
with every strategy, recorded as a DAG run would; the 1 M runs of the defaults take an hour.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import func, select, text

from bench_image.contract.result import RunResult
from tests.builders import make_result
from tests.builders.nights import ENDED_AT, night
from tests.builders.three_nights import node_of, overview_of
from trainbench.core.verdicts import Why
from trainbench.history.database import HistoryError
from trainbench.history.history import History, open_history
from trainbench.history.tables import acknowledgements, campaigns, node_verdicts, notices, runs, works
from trainbench.pages.reads.comparisons import costs, strategies
from trainbench.pages.reads.filters import Filters
from trainbench.pages.reads.fleet import heat_map
from trainbench.pages.reads.notices import closed_notices, open_notices
from trainbench.pages.reads.queries import Pages, choices
from trainbench.pages.reads.run_list import run_page, runs_csv, runs_page
from trainbench.pages.render import charts
from trainbench.results.campaign import Campaign

STRATEGIES = ("single", "ddp", "fsdp", "zero2", "zero3")
GPUS = ("NVIDIA H200", "NVIDIA A100-SXM4-80GB")  # two nodes of three have the first
TODAY = ENDED_AT.date()
RED_SHARE = 0.001  # of all verdicts
SEEN, HIDDEN = "node_consistency", "somebody_elses"
HIDDEN_EVERY = 20  # nights: then the campaign belongs to a DAG that the reader may not see
NEW_DRIVER_AFTER = (60, 140)  # nights
FIGURES = ("cold_ms", "best_ms", "median_ms", "worst_ms", "cpu_ms")
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("output", type=Path)
    parser.add_argument("--nights", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--times", type=int, default=10, help="how often each read is repeated, after a first time")
    parser.add_argument("--keep", action="store_true", help="the database is filled already")
    options = parser.parse_args()
    try:
        history = open_history(options.url)
    except HistoryError as error:
        parser.error(str(error))
    document: dict[str, Any] = {"machine": machine(history), "nodes": options.nodes, "nights": options.nights}
    if not options.keep:
        document["fill_s"] = fill(history, options.nodes, options.nights)
    document["rows"] = count_rows(history)
    document["reads"] = [timed(history, name, read, options.times) for name, read in reads(history, options.nights - 1)]
    document["record_s"] = time_record(history, options.nodes, options.nights)
    document["load_average_at_the_end"] = os.getloadavg()
    for figure in FIGURES:
        document[f"largest_{figure}"] = max(read[figure] for read in document["reads"])
        print(f"largest {figure}: {document[f'largest_{figure}']:.0f}")
    options.output.write_text(json.dumps(document, indent=1) + "\n")


def machine(history: History) -> Row:
    with history.engine.connect() as connection:
        version = connection.execute(text("SELECT sqlite_version()" if is_sqlite(history) else "SHOW server_version"))
        return {
            "database": f"{history.engine.dialect.name} {version.scalar()}",
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "sqlalchemy": sqlalchemy.__version__,
        }


def one_night(number: int, ago: int, results: Sequence[RunResult]) -> Campaign:
    """The runs of all nodes and strategies, with rates of that night, `ago` days before TODAY. Few nodes are red."""
    chance = random.Random(number)  # noqa: S311 - figures for a benchmark
    driver = f"580.65.{sum(number >= after for after in NEW_DRIVER_AFTER)}"
    names = sorted({run.spec.identity.node for run in results})
    return night(
        1 - ago,
        [_of_night(run, driver, GPUS[number % 3 == 2], chance) for run in results],
        {name: Why.SLOW for name in names if chance.random() < RED_SHARE},
        reference=9.5,
        expected={name: {"past": 9.5, "level": 9.6} for name in names},
        gpu_name=GPUS[number % 3 == 2],
        campaign_id=f"{SEEN}-{number}",
        suite=HIDDEN if number % HIDDEN_EVERY == 1 else SEEN,
    )


def _of_night(run: RunResult, driver: str, gpu_name: str, chance: random.Random) -> RunResult:
    assert run.context
    gpus = tuple(gpu.model_copy(update={"name": gpu_name}) for gpu in run.context.gpus)
    context = run.context.model_copy(update={"driver": driver, "gpus": gpus})
    performance = run.performance.model_copy(update={"samples_per_second": 9.5 * (1 + chance.gauss(0, 0.01))})
    return run.model_copy(update={"context": context, "performance": performance})


def runs_of_a_night(num_nodes: int) -> list[RunResult]:
    return [
        make_result(f"gpu-{i}", 9.5, strategy=strategy, gpus_per_node=1 if strategy == "single" else 2)
        for strategy in STRATEGIES
        for i in range(num_nodes)
    ]


def fill(history: History, num_nodes: int, num_nights: int) -> float:
    """Returns seconds."""
    began, results = time.perf_counter(), runs_of_a_night(num_nodes)
    for number in range(num_nights):
        history.record(one_night(number, num_nights - 1 - number, results))
        print(f"\r{number + 1} of {num_nights} nights", end="", file=sys.stderr)
    if not is_sqlite(history):  # what the database's own upkeep does within minutes
        with history.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
    return round(time.perf_counter() - began, 1)


def reads(history: History, last: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """`last`: the number of the last night."""
    pages = Pages(history.engine, {SEEN})
    since = TODAY - timedelta(days=29)
    run_id = make_result("gpu-0", 9.5, strategy="single", gpus_per_node=1).spec.identity.run_id
    narrowed = {
        "all time": Filters(),
        "30 days": Filters(since=since),
        "30 days, one GPU": Filters(since=since, gpu_name=GPUS[1]),
        "30 days, one strategy": Filters(since=since, strategy="zero3"),
        "all time, everything chosen": Filters(
            gpu_name=GPUS[0], model="mistral-7b", recipe="qlora", strategy="ddp", since=date(2026, 1, 1)
        ),
        "a model that was never run": Filters(model="llama2-7b"),
    }
    yield "choices", lambda: pages.read(choices, Filters())
    yield "run", lambda: pages.read(run_page, Filters(), f"{SEEN}-{last}", run_id)
    for name, filters in narrowed.items():
        for what, read in _narrowed(pages, filters).items():
            yield f"{what}, {name}", read


def _narrowed(pages: Pages, filters: Filters) -> dict[str, Callable[[], Any]]:
    return {
        "overview": lambda: overview_of(pages, filters, TODAY),
        "heat map": lambda: pages.read(heat_map, filters, TODAY),
        "heat map, 92 days, last page": lambda: pages.read(heat_map, filters, TODAY, 92, 10_000),
        "open notices": lambda: pages.read(open_notices, filters),
        "closed notices": lambda: pages.read(closed_notices, filters),
        "node": lambda: node_of(pages, "gpu-7", filters),
        "a node with its first chart": lambda: _with_chart(pages, filters),
        "strategies": lambda: pages.read(strategies, filters),
        "costs": lambda: pages.read(costs, filters),
        "runs": lambda: pages.read(runs_page, filters),
        "runs, last page": lambda: pages.read(runs_page, filters, 10_000_000),
        "first 500 lines of the CSV": lambda: _first_lines(pages, filters),
    }


def _with_chart(pages: Pages, filters: Filters) -> Any:
    node = node_of(pages, "gpu-7", filters)
    return charts.node_chart(node.series[0], node.events) if node and node.series else None


def _first_lines(pages: Pages, filters: Filters) -> list[str]:
    with pages.reading(filters) as here:
        return list(islice(runs_csv(*here), 2))


def timed(history: History, name: str, read: Callable[[], Any], times: int) -> Row:
    """`cold`: of SQLite the file is out of the machine's memory; of PostgreSQL it is the first time. `cpu`: of this
    process alone, which holds SQLite; on a busy machine it is the better measure.
    """
    forget(history)
    cold_ms, _ = _ms(read)
    warm = [_ms(read) for _ in range(times)]
    warm_ms = [wall_ms for wall_ms, _ in warm]
    row: Row = {"read": name, "cold_ms": cold_ms, "best_ms": min(warm_ms)}
    row |= {"median_ms": round(statistics.median(warm_ms), 1), "worst_ms": max(warm_ms)}
    row["cpu_ms"] = round(statistics.median(cpu_ms for _, cpu_ms in warm), 1)
    figures = (f"{row[figure]:8.1f}" for figure in FIGURES)
    print(f"{name:60} {' '.join(figures)}", flush=True)
    return row


def _ms(read: Callable[[], Any]) -> tuple[float, float]:
    """By the clock, and of this process's CPU time."""
    began, cpu_began = time.perf_counter(), time.process_time()
    read()
    return round(1000 * (time.perf_counter() - began), 1), round(1000 * (time.process_time() - cpu_began), 1)


def forget(history: History) -> None:
    """Every read opens a connection of its own, so SQLite's cache is empty; the machine's is emptied of the file."""
    if not is_sqlite(history) or not hasattr(os, "posix_fadvise"):
        return
    with Path(str(history.engine.url.database)).open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def time_record(history: History, num_nodes: int, number: int) -> Row:
    """One more night, recorded; then again, which replaces it."""
    fresh = one_night(number, -1, runs_of_a_night(num_nodes))
    return {
        "num_runs": len(fresh.results),
        "first": _ms(lambda: history.record(fresh))[0] / 1000,
        "again": _ms(lambda: history.record(fresh))[0] / 1000,
    }


def count_rows(history: History) -> dict[str, int]:
    with history.engine.connect() as connection:
        tables = (runs, campaigns, works, node_verdicts, notices, acknowledgements)
        return {t.name: connection.execute(select(func.count()).select_from(t)).scalar_one() for t in tables}


def is_sqlite(history: History) -> bool:
    return history.engine.dialect.name == "sqlite"


if __name__ == "__main__":
    main()

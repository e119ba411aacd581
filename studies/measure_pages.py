"""How long the pages' reads take over a long history, and a chart: fills a database by the real tables, then times all.

    PYTHONPATH=.:plugins python studies/measure_pages.py sqlite:////tmp/pages.sqlite OUTPUT.json
    PYTHONPATH=.:plugins python studies/measure_pages.py postgresql+psycopg://USER@HOST/EMPTY OUTPUT.json --nights 200

The database must be new: `--keep` takes one that this command has filled before. Each night is a campaign of every node
with every strategy; one real campaign is made, and its rows are repeated with other times, figures and states.
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
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import func, insert, select, text

from bench_image.contract.result import RunResult
from tests.builders import make_result
from tests.builders.campaigns import make_campaign
from tests.builders.verdicts import make_comparison, make_finding, make_group, make_node
from trainbench.core.verdicts import Metric, NodeVerdict, State, Why
from trainbench.history.database import HistoryError
from trainbench.history.history import History, open_history
from trainbench.history.summaries import KNOWN_NODE, WorkSummary, known_nodes, rows, summarise, with_known_gpus
from trainbench.history.tables import acknowledgements, campaigns, node_verdicts, notices, runs, works
from trainbench.pages.reads.filters import Filters
from trainbench.pages.reads.queries import Pages
from trainbench.pages.reads.rows import RunSort
from trainbench.pages.render import charts
from trainbench.results.campaign import Campaign

STRATEGIES = ("single", "ddp", "fsdp", "zero2", "zero3")
GPUS = ("NVIDIA H200", "NVIDIA A100-SXM4-80GB")  # two nodes of three have the first
LAST_NIGHT = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)
TODAY = LAST_NIGHT.date()
RED_SHARE = 0.001  # of all verdicts
SEEN, HIDDEN = "node_consistency", "somebody_elses"
HIDDEN_EVERY = 20  # nights: then the campaign belongs to a DAG that the reader may not see
NEW_DRIVER_AFTER = (60, 140)  # nights
FIGURES = ("cold_ms", "best_ms", "median_ms", "worst_ms", "cpu_ms")
Row = dict[str, Any]
RED: Row = {"state": "red", "why": "slow", "node_state": "red", "node_why": "slow", "is_red": True, "reason": "slow"}


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
    night = one_night(options.nodes)
    if not options.keep:
        document["fill_s"] = fill(history, night, options.nights)
    document["rows"] = count_rows(history)
    document["reads"] = [timed(history, name, read, options.times) for name, read in reads(history, night)]
    document["record_s"] = time_record(history, night)
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


def one_night(num_nodes: int) -> Campaign:
    """Every node well, beside peers, past and level."""
    results: list[RunResult] = []
    groups = []
    for strategy in STRATEGIES:
        gpus_per_node = 1 if strategy == "single" else 2
        made = [
            make_result(f"gpu-{i}", 9.5, strategy=strategy, gpus_per_node=gpus_per_node, gpu_name=GPUS[i % 3 == 2])
            for i in range(num_nodes)
        ]
        results += made
        group_id = made[0].spec.identity.group_id
        for gpu in GPUS:
            members = [run for run in made if run.context and run.context.gpus[0].name == gpu]
            nodes = [_verdict(run, gpu) for run in members]
            groups.append(make_group(nodes, group_id, gpu_name=gpu))
    return make_campaign(results, groups, usd_per_gpu_hour=3.0, suite=SEEN)


def _verdict(run: RunResult, gpu: str) -> NodeVerdict:
    made = make_node(
        run.spec.identity.node, 9.5, peers=9.5, past=9.5, level=9.6, gpu_name=gpu, num_runs=1, memory_gb=7.1,
        temperature_c=60.0,
    )  # fmt: skip
    others = (
        make_comparison(7.1, 7.1, metric=Metric.MEMORY_GB),
        make_comparison(60.0, 60.0, metric=Metric.TEMPERATURE_C),
    )
    return made.model_copy(update={"comparisons": (*made.comparisons, *others)})


def fill(history: History, night: Campaign, num_nights: int) -> float:
    """Returns seconds."""
    began = time.perf_counter()
    template = with_known_gpus(rows(night))
    summary = summarise(night, template)
    chance = random.Random(1)  # noqa: S311 - figures for a benchmark
    work_id = 0
    for number in range(num_nights):
        at = LAST_NIGHT - timedelta(days=num_nights - 1 - number)
        campaign = {"campaign_id": f"{SEEN}-scheduled-{at:%Y-%m-%dt%H-%M-%S}", "suite": SEEN}
        if number % HIDDEN_EVERY == 1:
            campaign["suite"] = HIDDEN
        driver = f"580.65.{sum(number >= after for after in NEW_DRIVER_AFTER)}"
        number_of = {run_id: work_id + i for i, work in enumerate(summary, start=1) for run_id in work.run_ids}
        of_night = [
            _run(dict(row), at, driver, chance) | campaign | {"work_id": number_of[row["run_id"]]} for row in template
        ]
        made, verdicts = _works(summary, campaign, at, work_id, chance)
        work_id += len(made)
        red = {verdict["node"]: (verdict, of) for verdict, of in verdicts if verdict["is_red"]}
        opened = [_notice(verdict, of, campaign, at, number == num_nights - 1) for verdict, of in red.values()]
        with history.engine.execution_options(is_write=True).begin() as connection:
            connection.execute(insert(runs), of_night)
            connection.execute(insert(campaigns).values(_campaign(campaign, at, len(of_night), len(opened))))
            connection.execute(insert(works), made)
            connection.execute(insert(node_verdicts), [verdict for verdict, _ in verdicts])
            connection.execute(
                KNOWN_NODE, [row | {"suite": campaign["suite"]} for work in summary for row in known_nodes(work)]
            )
            if opened:
                connection.execute(insert(notices), opened)
        print(f"\r{number + 1} of {num_nights} nights", end="", file=sys.stderr)
    _finish_filling(history)
    return round(time.perf_counter() - began, 1)


def _finish_filling(history: History) -> None:
    """The numbers of the rows given here are taken; and what the database's own upkeep does within minutes."""
    with history.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if is_sqlite(history):
            return
        connection.execute(text("SELECT setval(pg_get_serial_sequence('works', 'id'), (SELECT MAX(id) FROM works))"))
        connection.execute(text("VACUUM ANALYZE"))


def _run(row: Row, at: datetime, driver: str, chance: random.Random) -> Row:
    started_at = at + timedelta(seconds=chance.randrange(3600))
    rate = 9.5 * (1 + chance.gauss(0, 0.01))
    return {
        **row,
        "driver": driver,
        "started_at": started_at,
        "finished_at": started_at + timedelta(seconds=55),
        "samples_per_second": rate,
        "judged_samples_per_second": rate,
        "tokens_per_second": rate * 512,
        "run_usd": chance.uniform(0.04, 0.06),
    }


def _works(
    summary: tuple[WorkSummary, ...], campaign: Row, at: datetime, last_id: int, chance: random.Random
) -> tuple[list[Row], list[tuple[Row, Row]]]:
    """Rows of `works`; and rows of `node_verdicts`, each with its work's."""
    made: list[Row] = []
    verdicts: list[tuple[Row, Row]] = []
    ended_at = at + timedelta(hours=1)
    for number, work in enumerate(summary, start=last_id + 1):
        of = {**work.values, **campaign, "id": number, "at": ended_at, "day": ended_at.date().isoformat()}
        made.append(of)
        for row in work.verdicts.values():
            red = RED if chance.random() < RED_SHARE else {}
            deviation = -8.0 if red else chance.gauss(0, 1)
            verdicts.append(({**row, "work_id": number, "deviation_pct": deviation, **red}, of))
    return made, verdicts


def _campaign(campaign: Row, at: datetime, num_runs: int, num_red: int) -> Row:
    figures = {"num_runs": num_runs, "num_failed": 0, "num_nodes": num_runs // len(STRATEGIES), "num_red": num_red}
    times = {"started_at": at, "finished_at": at + timedelta(hours=1)}
    return {**campaign, **times, **figures, "title": "a night", "campaign_kind": "nodes", "is_drill": False}


def _notice(verdict: Row, work: Row, campaign: Row, at: datetime, is_last: bool) -> Row:
    """Open on the last night, else closed by the next."""
    opened_at = at + timedelta(hours=1)
    finding = make_finding(verdict["node"], cause="The GPU slows itself down because it is hot")
    return {
        **{name: work[name] for name in ("group_id", "gpu_name", "model", "recipe", "strategy")},
        "node": verdict["node"],
        "category": "",
        "campaign_id": campaign["campaign_id"],
        "dag_id": campaign["suite"],
        "state": State.RED.value,
        "why": Why.SLOW.value,
        "reason": "slow",
        "metric": Metric.SAMPLES_PER_SECOND.value,
        "against": "peers",
        "deviation": -8.0,
        "finding": finding.model_dump_json(),
        "is_drill": False,
        "opened_at": opened_at,
        "closed_at": None if is_last else opened_at + timedelta(days=1),
    }


def reads(history: History, night: Campaign) -> Iterator[tuple[str, Callable[[], Any]]]:
    pages = Pages(history.engine, {SEEN})
    since = TODAY - timedelta(days=29)
    run_id = night.results[0].spec.identity.run_id
    campaign_id = f"{SEEN}-scheduled-{LAST_NIGHT:%Y-%m-%dt%H-%M-%S}"
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
    yield "choices", pages.choices
    yield "run", lambda: pages.run(campaign_id, run_id)
    for name, filters in narrowed.items():
        for what, read in _narrowed(pages, filters).items():
            yield f"{what}, {name}", read


def _narrowed(pages: Pages, filters: Filters) -> dict[str, Callable[[], Any]]:
    return {
        "overview": lambda: pages.overview(filters, TODAY),
        "heat map": lambda: pages.heat_map(filters, TODAY),
        "heat map, 92 days, last page": lambda: pages.heat_map(filters, TODAY, 92, 10_000),
        "open notices": lambda: pages.open_notices(filters),
        "closed notices": lambda: pages.closed_notices(filters),
        "node": lambda: pages.node("gpu-7", filters),
        "a node with its first chart": lambda: _with_chart(pages, filters),
        "strategies": lambda: pages.strategies(filters),
        "costs": lambda: pages.costs(filters),
        "runs": lambda: pages.runs(filters),
        "runs, last page": lambda: pages.runs(filters, 10_000_000),
        "runs, slowest": lambda: pages.runs(filters, 1, RunSort.SLOWEST),
        "runs, dearest, page 100": lambda: pages.runs(filters, 100, RunSort.DEAREST),
        "first 500 lines of the CSV": lambda: _first_lines(pages, filters),
    }


def _with_chart(pages: Pages, filters: Filters) -> Any:
    node = pages.node("gpu-7", filters)
    return charts.node_chart(node.series[0], node.events) if node and node.series else None


def _first_lines(pages: Pages, filters: Filters) -> list[str]:
    return list(islice(pages.runs_csv(filters), 2))


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


def time_record(history: History, night: Campaign) -> Row:
    """One more night, recorded as a DAG run would; then again, which replaces it."""
    at = LAST_NIGHT + timedelta(days=1)
    fresh = night.model_copy(
        update={
            "campaign_id": "one-more-night",
            "started_at": at,
            "finished_at": at + timedelta(hours=1),
        }
    )
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

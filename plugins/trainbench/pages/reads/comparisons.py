"""Strategies compared over many campaigns, and the cost of campaigns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta

from sqlalchemy import Connection, select

from trainbench.core.grouping import grouped
from trainbench.figure_catalogue.run_figures import STORED
from trainbench.history.spending import IMPORTED, MONTH, Spend, spend, unpriced
from trainbench.history.tables import runs, works
from trainbench.judging.noise import Run, chance_of_median
from trainbench.pages.reads.filters import Scope
from trainbench.pages.reads.rows import Costs, Strategies, StrategyRow

MAX_WORKS = 20_000
_SAME = (
    "gpu_name", "model", "recipe", "preset", "work_key", "micro_batch_size", "seq_length", "world_size", "strategy",
)  # fmt: skip
_SUMS = ("num_runs", "num_failed")


def strategies(connection: Connection, scope: Scope) -> Strategies:
    """Rows of strategies with runs; equal work together, by GPUs, then the fastest first."""
    same = (IMPORTED.label("is_imported"), *(works.c[name] for name in _SAME))
    columns = [*same, *(works.c[name] for name in ("id", "at", *_SUMS, *(each.name for each in STORED)))]
    query = select(*columns).where(scope.works, works.c.num_runs > 0)
    rows = connection.execute(query.order_by(works.c.at.desc()).limit(MAX_WORKS)).all()
    made = []
    by_strategy = grouped((tuple(row[: len(same)]), row) for row in rows)
    of_one = _rates(connection, [of[0].id for of in by_strategy.values() if len(of) == 1])
    for key, of in by_strategy.items():
        rates = [row.tokens_per_second for row in of if row.tokens_per_second] if len(of) > 1 else of_one.get(of[0].id)
        figures = {each.name: each.combined(getattr(row, each.name) for row in of) for each in STORED}
        sums = {name: sum(getattr(row, name) for row in of) for name in _SUMS}
        about = dict(zip(("is_imported", *_SAME), key, strict=True))
        made.append(StrategyRow(**about, **sums, **figures, num_campaigns=len(of), at=of[0].at))
        made[-1].noise = chance_of_median([Run(0, rate, ()) for rate in rates]) if rates else 0.0
    made.sort(key=lambda row: (_work(row), -(row.tokens_per_second or 0.0), row.strategy))
    return Strategies(rows=tuple(made), is_cut=len(rows) == MAX_WORKS)


def _rates(connection: Connection, work_ids: Sequence[int]) -> Mapping[int, Sequence[float]]:
    """Work -> tokens/s of its runs; of each strategy's only campaign, where campaigns cannot tell the noise."""
    is_measured = runs.c.tokens_per_second.is_not(None) & runs.c.is_drill.is_(False)
    query = select(runs.c.work_id, runs.c.tokens_per_second).where(runs.c.work_id.in_(work_ids), is_measured)
    return grouped((row[0], row[1]) for row in connection.execute(query))


def _work(row: StrategyRow) -> tuple[str, ...]:
    """Sort key: the work, then its size; unknown values come last."""
    names = ("model", "recipe", "gpu_name", "preset", "work_key")
    return *(getattr(row, name) or "\uffff" for name in names), f"{row.world_size or 0:06d}"


def costs(connection: Connection, scope: Scope) -> Costs:
    """The costs of all runs here."""
    ours, names = scope.works & ~IMPORTED, (works.c.model, works.c.recipe, works.c.strategy, works.c.gpu_name)
    return Costs(
        total=spent(connection, scope),
        imported=spend(connection, scope.works & IMPORTED)[0],
        months=tuple(sorted(spend(connection, ours, MONTH), key=lambda row: row.what, reverse=True)),
        dags=spend(connection, ours, works.c.suite),
        works=spend(connection, ours, *names),
        unpriced=unpriced(connection, ours),
    )


def two_months(connection: Connection, scope: Scope, today: date) -> tuple[Spend, Spend]:
    """This month so far, and the last one up to the same day, whatever days the page shows."""
    first = today.replace(day=1)
    end = first - timedelta(days=1)
    ours = scope.works_of_any_time & ~IMPORTED
    this, last = (
        spend(connection, ours & works.c.day.between(str(begin), str(until)))[0]
        for begin, until in ((first, today), (end.replace(day=1), end.replace(day=min(today.day, end.day))))
    )
    return this, last


def spent(connection: Connection, scope: Scope) -> Spend:
    """The sums over all runs of the scope."""
    return spend(connection, scope.works & ~IMPORTED)[0]

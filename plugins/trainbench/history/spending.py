"""What benchmarking cost, summed over the recorded works: drills, re-runs and failed runs cost money, too."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, case, func, select

from bench_image.contract.frozen import Frozen
from bench_image.contract.result import Status
from trainbench.core.formats import count
from trainbench.history.tables import runs, works
from trainbench.results.campaign import IMPORTED_SUITE

MAX_ROWS = 500
MONTH = func.substr(works.c.day, 1, 7)  # of the campaign's end in UTC, as 2026-11
IMPORTED = works.c.suite == IMPORTED_SUITE  # others measured it and paid for it


class Spend(Frozen):
    """The cost of a month as 2026-11, a DAG, or a work. `usd`, `gpu_hours`: sums of the known ones; None: none is."""

    what: str
    usd: float | None
    gpu_hours: float | None
    num_runs: int
    num_unknown: int  # runs without a known cost


class Unpriced(Frozen):
    """Runs without a known cost. `gpu_name`: None where none was reported, as on the CPU."""

    is_failed: bool
    gpu_name: str | None
    num_runs: int

    @property
    def text(self) -> str:
        why = "failed" if self.is_failed else f"on {self.gpu_name or 'the CPU'}, which has no price"
        return f"{count(self.num_runs, 'run')} {why}"


def spend(connection: Connection, which: ColumnElement[bool], *by: ColumnElement[Any]) -> tuple[Spend, ...]:
    """A row for each value of `by`, the most expensive first, then the longest; works without runs are left out.
    Without `by` there is one row.
    """
    usd, hours = (func.sum(works.c[name]) for name in ("run_usd", "gpu_hours"))
    numbers = [func.coalesce(func.sum(works.c[name]), 0) for name in ("num_runs", "num_unpriced")]
    order = [func.coalesce(amount, -1).desc() for amount in (usd, hours)]
    query = select(usd, hours, *numbers, *by).where(which, works.c.num_runs > 0).group_by(*by).order_by(*order, *by)
    return tuple(
        Spend(what=" ".join(filter(None, names)), usd=usd, gpu_hours=hours, num_runs=num_runs, num_unknown=num_unknown)
        for usd, hours, num_runs, num_unknown, *names in connection.execute(query.limit(MAX_ROWS))
    )


def unpriced(connection: Connection, which: ColumnElement[bool]) -> tuple[Unpriced, ...]:
    """The runs without a known cost: the failed ones, then the others by kind of GPU."""
    of_works = runs.c.work_id.in_(select(works.c.id).where(which, works.c.num_unpriced > 0))
    is_ok = runs.c.status == Status.OK
    kind = case((is_ok, 0), else_=1), case((is_ok, runs.c.gpu_name), else_=None)
    query = select(*kind, func.count()).where(of_works, runs.c.run_usd.is_(None))
    rows = connection.execute(query.group_by(*kind).order_by(kind[0].desc(), kind[1]))
    return tuple(Unpriced(is_failed=bool(failed), gpu_name=gpu, num_runs=number) for failed, gpu, number in rows)

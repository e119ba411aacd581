"""Runs, months and node histories as pandas DataFrames, for notebooks; units end the columns' names.

    from trainbench import frames
    frames.runs()                  one row for each run of every published campaign, as in metrics.csv
    frames.months(12)              cost of benchmarking by month and DAG
    frames.node_history("node-3")  one row for each run of a node that the history has, oldest first

Times are in UTC, an unknown number is NaN. `store`: folder or URL; by default the installation's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from trainbench.core import csv_cells
from trainbench.core.user_error import UserError
from trainbench.cost.monthly_cost import by_month
from trainbench.figure_catalogue.run_figures import RUN_FIGURES, SCALING_EFFICIENCY_PCT, STORED
from trainbench.history import tables
from trainbench.history.database import transaction
from trainbench.history.history import History, open_history
from trainbench.params.cost_params import months_until
from trainbench.reporting.data_files import metric_rows
from trainbench.results.artefacts import open_store
from trainbench.results.campaign import IMPORTED
from trainbench.settings.environment import read_settings

if TYPE_CHECKING:
    from pandas import DataFrame

FIGURES = [each.csv or each.name for each in (*RUN_FIGURES, SCALING_EFFICIENCY_PCT)]
TIMES = ("started_at", "finished_at")
SUFFIXES = (".csv", ".parquet")
MONTH_COLUMNS = ("month", "suite", "num_runs", "num_unknown", "gpu_hours", "run_usd")


def runs(*campaign_ids: str, store: str | None = None) -> DataFrame:
    """One row for each run of these campaigns, else of every published one; an imported campaign must be named. Raises
    StoreError.
    """
    opened = open_store(store)
    own = (name for name in opened.campaign_ids() if not name.startswith(IMPORTED))
    names = campaign_ids or tuple(name for name in own if opened.has_verdict(name))
    rows = [row for name in names for row in metric_rows(opened.read_campaign(name))]
    return _frame(rows, FIGURES)


def months(number: int = 12, until: str | None = None, store: str | None = None) -> DataFrame:
    """Runs, GPU-hours and cost of so many months, by DAG; `num_unknown` runs have no known cost. `until`: the last
    month, as 2026-11; by default this one. Raises HistoryError.
    """
    names = months_until(until or f"{datetime.now(UTC):%Y-%m}", number)
    rows = [
        dict(
            zip(MONTH_COLUMNS, (of.month, dag.what, dag.num_runs, dag.num_unknown, dag.gpu_hours, dag.usd), strict=True)
        )
        for of in by_month(_history(store), names)
        for dag in of.by_dag
    ]
    return _frame(rows, ("gpu_hours", "run_usd"), MONTH_COLUMNS)


def node_history(*nodes: str, store: str | None = None) -> DataFrame:
    """One row for each run here of these nodes, else of every node, oldest first; a gang's row names its first node,
    and the others in `peers`. Raises HistoryError.
    """
    table, names = tables.runs, ("campaign_id", "run_id", "suite", *tables.OF_RUN)
    columns = (table.c[name] for name in names)
    query = select(*columns).where(tables.OURS).order_by(table.c.started_at, table.c.run_id)
    if nodes:
        query = query.where(table.c.node.in_(nodes))
    with transaction(_history(store).engine) as connection:
        rows: Sequence[Any] = connection.execute(query).mappings().all()
    return _frame(rows, [each.name for each in STORED], names)


def write(frame: DataFrame, path: Path) -> None:
    """Write CSV or Parquet, by the file's suffix. Raises UserError for another one, or where pyarrow is missing."""
    if path.suffix not in SUFFIXES:
        raise UserError(f"{path} ends in '{path.suffix}': choose one of {', '.join(SUFFIXES)}")
    try:
        if path.suffix == ".csv":
            path.write_text(csv_text(frame), encoding="utf-8")
        else:
            frame.to_parquet(path, engine="pyarrow", index=False)
    except ImportError:
        raise UserError("Parquet files need pyarrow: pip install 'trainbench[parquet]', or write .csv") from None
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None


def csv_text(frame: DataFrame) -> str:
    """The frame as CSV: full precision, an unknown number empty, no cell that a spreadsheet would run."""
    return csv_cells.lines([frame.columns, *(row.values() for row in records(frame))])


def records(frame: DataFrame) -> list[dict[str, csv_cells.Cell]]:
    """The rows with plain values: None for an unknown number, times as ISO 8601."""
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [
        {str(name): value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
        for row in rows
    ]


def _history(store: str | None) -> History:
    return open_history(read_settings().history_url, open_store(store))


def _frame(
    rows: Sequence[Mapping[str, Any]], numbers: Sequence[str], columns: Sequence[str] | None = None
) -> DataFrame:
    """`numbers`: columns of floats, also where every value is unknown. `columns`: all of them, in their order."""
    import pandas as pd

    plain = [{name: value.value if isinstance(value, Enum) else value for name, value in row.items()} for row in rows]
    frame = pd.DataFrame(plain, columns=list(columns) if columns else None)
    for name in frame.columns.intersection(list(numbers)):
        frame[name] = frame[name].astype(float)
    for name in frame.columns.intersection(list(TIMES)):
        frame[name] = pd.to_datetime(frame[name], utc=True, format="ISO8601")
    for name in frame.columns:  # a Parquet column has one type; "auto" stands beside numbers
        known = frame[name].dropna()
        if pd.api.types.is_object_dtype(known) and known.map(type).nunique() > 1:
            frame[name] = known.astype(str).reindex(frame.index)
    return frame

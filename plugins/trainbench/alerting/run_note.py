"""Writes the verdict as the DAG run's note. It is an Airflow listener, because a task cannot write a note.

The scheduler calls it for every DAG run of the installation that ends, so it may neither be slow nor fail: it reads one
XCom of the run, that of the task `alert`, opens no history, and only logs errors.
"""

from __future__ import annotations

import logging
from typing import Any

from pluggy import HookimplMarker

log = logging.getLogger(__name__)
hookimpl = HookimplMarker("airflow")  # a copy of airflow.listeners' marker, whose import would load all of Airflow
KEY, FIELD = "run_note", "trainbench"  # of the XCom
HEAD = "**Benchmark.**"
RULE = "\n\n---\n\n"
MAX_CHARS = 1000  # of Airflow's column: the scheduler would fail to write a longer text


@hookimpl
def on_dag_run_success(dag_run: Any, msg: str) -> None:
    write_note(dag_run)


@hookimpl
def on_dag_run_failed(dag_run: Any, msg: str) -> None:
    write_note(dag_run)


def write_note(dag_run: Any) -> None:
    """Write the note of a DAG run that ended. Never raises."""
    try:
        summary = _left_by_the_task(dag_run)
        if summary and (note := joined(summary, dag_run.note)):
            dag_run.note = note
    except Exception:
        log.exception("trainbench: the note of %s could not be written", getattr(dag_run, "run_id", "a run"))


def joined(summary: str, present: str | None) -> str | None:
    """The note: our text, then the text of people, which is never cut. Our older text is replaced. None: no room."""
    theirs = [part for part in (present or "").split(RULE) if part and not part.startswith(HEAD)]
    note = RULE.join([summary, *theirs])
    return note if len(note) <= MAX_CHARS else None


def _left_by_the_task(dag_run: Any) -> str | None:
    from sqlalchemy import select
    from sqlalchemy.orm import object_session

    session = object_session(dag_run)
    if session is None:
        return None
    from airflow.models.xcom import XComModel

    # By the index over `dag_run_id`: the task's id is not asked for, because a group's id may stand before it.
    with session.no_autoflush:
        stored = session.scalar(select(XComModel.value).filter_by(dag_run_id=dag_run.id, key=KEY).limit(1))
    summary = stored.get(FIELD) if isinstance(stored, dict) else None  # another XCom backend may keep it elsewhere
    return summary if isinstance(summary, str) else None

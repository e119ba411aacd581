"""What all DAGs of this installation have in common: the prefix of their ids, which no other DAG may have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, AssetOrTimeSchedule, CronTriggerTimetable, get_parsing_context
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowException

from trainbench.settings.environment import PREFIX, Settings

OURS = "trainbench.orchestration"  # every DAG file of ours imports it
# `DAG("id")`, `DAG(..., dag_id="id")` and the same of `@dag`, or `@dag` without an id over a function of that name.
MAKES_DAG = (
    r"""\b(?:DAG|dag)\(\s*["']{id}["']|\bdag_id\s*=\s*["']{id}["']|@(?:\w+\.)?dag\b(?!.*dag_id).*\s+def\s+{id}\s*\("""
)
LOCAL_BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"


class DagIdTaken(AirflowException):
    """Another file has a DAG with the id of one of ours. Airflow would show the one that it read last."""


def our_dag(
    name: str, settings: Settings, title: str, doc: str, cron: str | None, asset: Asset | None = None, **more: Any
) -> DAG:
    """The DAG `name`, at the time of the settings, else of `cron`, and when `asset` changes; by hand only where they
    say so. One run at a time, and no backfill: what a DAG looks at is there only now. The list of DAGs shows the
    sentence in bold that `doc` begins with.
    """
    schedule: Any = settings.cron(name, cron)
    run_types = ["manual", "scheduled"]
    if asset is not None:
        run_types.append("asset_triggered")
        schedule = schedule and AssetOrTimeSchedule(
            assets=[asset], timetable=CronTriggerTimetable(schedule, timezone="UTC")
        )
    return DAG(
        free_dag_id(name, settings),
        dag_display_name=f"{settings.dag_prefix.rstrip('_-.')} {title}".lstrip(),
        description=doc.lstrip().removeprefix("**").partition("**")[0].replace("\n", " "),
        doc_md=doc,
        schedule=schedule,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        allowed_run_types=run_types,  # type: ignore[arg-type]
        default_args={"owner": "trainbench", "retries": 0},
        auto_register=False,  # a DAG file shows the DAGs of its variables: not those that it makes only to check them
        **more,
    )


def free_dag_id(name: str, settings: Settings) -> str:
    """The id of the DAG `name`: with the installation's prefix.

    Raises DagIdTaken, which Airflow shows as import error; never in a worker, where a task is about to run. Reads the
    Python files of Airflow's local DAG folders that hold the id as a text; ids that a program computes, and DAGs of
    other bundles, are not seen.
    """
    dag_id = f"{settings.dag_prefix}{name}"
    if get_parsing_context().dag_id:  # a worker's: the DAG processor has looked
        return dag_id
    for folder in _dag_folders():
        for file in sorted(folder.rglob("*.py")):
            if line := _line_of(dag_id, file):
                raise DagIdTaken(
                    f"the DAG id '{dag_id}' is taken by {file}, line {line}: set {PREFIX}DAG_PREFIX, for example to "
                    f"'trainbench_', for all components of Airflow; trainbench's DAG is then 'trainbench_{name}'"
                )
    return dag_id


def _dag_folders() -> Iterator[Path]:
    """The DAG folder, and those of local bundles."""
    folders = [conf.get("core", "dags_folder")]
    for bundle in json.loads(conf.get("dag_processor", "dag_bundle_config_list", fallback="") or "[]"):
        if bundle.get("classpath") == LOCAL_BUNDLE:
            folders.append((bundle.get("kwargs") or {}).get("path"))
    yield from {Path(folder).expanduser() for folder in folders if folder}


def _line_of(dag_id: str, file: Path) -> int | None:
    """The line in which a file of somebody else makes a DAG with that id; None: it does not."""
    try:
        content = file.read_text()
    except (OSError, ValueError):  # its own import error says so
        return None
    made = None if OURS in content else re.search(MAKES_DAG.format(id=re.escape(dag_id)), content)
    return content.count("\n", 0, made.start()) + 1 if made else None

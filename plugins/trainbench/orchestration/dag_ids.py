"""The DAG ids of this installation: the prefix of its settings, and a refusal of ids that another DAG has."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

from airflow.sdk import get_parsing_context
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowException

from trainbench.settings.environment import PREFIX, Settings

OURS = b"trainbench.orchestration"  # every DAG file of ours imports it
DAG_CALLS = {"DAG", "dag"}
LOCAL_BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"


class DagIdTaken(AirflowException):
    """Another file has a DAG with the id of one of ours. Airflow would show the one that it read last."""


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
        content = file.read_bytes()
        if dag_id.encode() not in content or OURS in content:
            return None
        tree = ast.parse(content)
    except (OSError, SyntaxError, ValueError):  # its own import error says so
        return None
    makers = (node for node in ast.walk(tree) if isinstance(node, ast.Call | ast.FunctionDef))
    return next((node.lineno for node in makers if _makes(dag_id, node)), None)


def _makes(dag_id: str, node: ast.Call | ast.FunctionDef) -> bool:
    """`DAG("id")`, `DAG(dag_id="id")`, `@dag("id")`, `@dag(dag_id="id")`, or `@dag` over a function of that name."""
    if isinstance(node, ast.Call):
        ids = _given_ids(node) if _name(node.func) in DAG_CALLS else []
        return any(isinstance(value, ast.Constant) and value.value == dag_id for value in ids)
    return node.name == dag_id and any(map(_names_by_function, node.decorator_list))


def _given_ids(call: ast.Call) -> list[ast.expr]:
    return [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "dag_id")]


def _names_by_function(decorator: ast.expr) -> bool:
    """`@dag` without an id: the DAG has the function's name."""
    if isinstance(decorator, ast.Call):
        return _name(decorator.func) == "dag" and not _given_ids(decorator)
    return _name(decorator) == "dag"


def _name(function: ast.expr) -> str | None:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)

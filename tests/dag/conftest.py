"""A throw-away Airflow: configuration must be in the environment before Airflow is imported."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.builders.image_server import as_python, image_server

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples" / "dags"
HOME = Path(tempfile.mkdtemp(prefix="trainbench-airflow-"))
os.environ.update(
    {
        "AIRFLOW_HOME": str(HOME),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(
            [
                {
                    "name": name,
                    "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
                    "kwargs": {"path": path},
                }
                for name, path in (("dags-folder", str(ROOT / "dags")), ("examples", str(EXAMPLES)))
            ]
        ),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME}/airflow.db?timeout=600",
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "600",  # the machine may be busy
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
        "AIRFLOW__API_AUTH__JWT_SECRET": "only-for-tests-" * 6,
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "ada:admin,olaf:op,uma:user,vera:viewer",
        "TRAINBENCH_LAUNCHER": "local",
        "TRAINBENCH_WORLD_SIZES": "1,2",
    }
)


@pytest.fixture(scope="session")
def airflow_db() -> None:
    from airflow.utils import db
    from jsonschema import validators

    check, checked = validators.Draft202012Validator.check_schema, set[str]()

    def check_once(schema: Any, **options: Any) -> None:
        """Airflow has the schema of each field checked whenever it reads a form: a fifth of these tests' CPU time."""
        text = json.dumps(schema, sort_keys=True)
        if text not in checked:
            check(schema, **options)
            checked.add(text)

    validators.Draft202012Validator.check_schema = check_once  # type: ignore[method-assign]

    db.initdb()


@pytest.fixture(scope="session")
def client(airflow_db: None) -> Iterator[Any]:
    """Of Airflow's real API server, with two DAGs of ours for the tests of the pages, and one of somebody else's."""
    from airflow.api_fastapi.app import create_app
    from airflow.models.dag import DagModel, DagTag
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session
    from fastapi.testclient import TestClient

    ours = ("page_nodes", "page_gangs", "node_consistency")
    with create_session() as session:
        session.merge(DagBundleModel(name="dags-folder"))
        session.flush()
        for dag_id in (*ours, "page_sales"):
            if session.get(DagModel, dag_id) is None:
                session.add(DagModel(dag_id=dag_id, bundle_name="dags-folder", fileloc=f"/{dag_id}.py"))
        session.flush()
        for dag_id in ours:
            session.merge(DagTag(name="trainbench", dag_id=dag_id))
    with TestClient(create_app()) as started:
        yield started


@pytest.fixture
def dagbag(airflow_db: None) -> Any:
    """Fresh for each test: `dag.test(run_conf=...)` leaves its parameters in the DAG object."""
    return load_dags()


def load_dags(folder: Path = ROOT / "dags", bundle: str = "dags-folder") -> Any:
    """As the environment is now; retries do not wait."""
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=str(folder), bundle_path=folder, bundle_name=bundle)
    for task in (task for dag in bag.dags.values() for task in dag.tasks):
        task.retry_delay = timedelta(0)
    return bag


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with image_server(tmp_path_factory.mktemp("image"), "tests.dag.standin_image") as server:
        yield server


@pytest.fixture
def store(image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A fresh store and history; pods run the stand-in image; reports have no pictures, which unit tests draw."""
    from trainbench.reporting import plots
    from trainbench.results.artefacts import open_store

    monkeypatch.setattr(plots, "draw", lambda campaign: {})
    monkeypatch.setenv("TRAINBENCH_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("TRAINBENCH_HISTORY_URL", f"sqlite:///{tmp_path / 'history.db'}")
    monkeypatch.setenv("TRAINBENCH_LOCAL_PYTHON", str(as_python(tmp_path, image)))
    monkeypatch.setenv("TRAINBENCH_LOCAL_PYTHONPATH", f"{ROOT}{os.pathsep}{ROOT / 'plugins'}")
    return open_store(str(tmp_path / "store"))


def states(dag_run: Any) -> dict[str, list[str]]:
    """Of the instances of each task."""
    by_task: dict[str, list[str]] = {}
    for ti in dag_run.get_task_instances():
        by_task.setdefault(ti.task_id, []).append(str(ti.state))
    return by_task


def tasks_of(campaign: Any, dag_run: Any) -> set[Any]:
    """The address of the task of each run below its DAG run, as a run's page finds it; None: not found."""
    from trainbench.pages.web.run_routes import task_of

    return {
        task_of(dag_run.dag_id, dag_run.run_id, result.spec, campaign.labels.get(result.spec.identity.group_id))
        for result in campaign.results
    }

"""Fixtures of the Benchmarks pages in Airflow's real API server.

Two DAGs of ours and one of somebody else's:
    page_nodes   last night node-3 was slow, by ten percent; the night before all were well
    page_gangs   last night gang-1 was missing
    page_sales   no DAG of ours
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.builders.nights import night
from tests.dag.conftest import load_dags
from tests.dag.pages.site import LAST_NIGHT, WELL, use
from trainbench.core.verdicts import Why
from trainbench.history.history import open_history
from trainbench.results.artefacts import open_store


@pytest.fixture(scope="package")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store and a history to be read only."""
    folder = tmp_path_factory.mktemp("pages")
    store, history = open_store(str(folder / "store")), open_history(f"sqlite:///{folder / 'history.db'}")
    for campaign in (
        night(LAST_NIGHT - 1, WELL, suite="page_nodes", campaign_id="before"),
        night(LAST_NIGHT, WELL | {"node-3": 9.0}, {"node-3": Why.SLOW}, suite="page_nodes", campaign_id="last"),
        night(LAST_NIGHT, {"gang-2": 4.0}, {"gang-1": Why.MISSING}, suite="page_gangs", campaign_id="gangs"),
    ):
        history.record(campaign)
        store.write_results(campaign.results)
    return folder


@pytest.fixture
def pages(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return use(recorded, monkeypatch)


@pytest.fixture
def own_pages(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """To be written to."""
    return use(shutil.copytree(recorded, tmp_path, dirs_exist_ok=True), monkeypatch)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes Airflow let everybody see these DAGs only."""
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

    is_authorized = SimpleAuthManager.is_authorized_dag

    def narrow(*dag_ids: str) -> None:
        def is_authorized_dag(self: Any, *, details: Any = None, **more: Any) -> bool:
            return getattr(details, "id", None) in dag_ids and is_authorized(self, details=details, **more)

        monkeypatch.setattr(SimpleAuthManager, "get_authorized_dag_ids", lambda self, **_: set(dag_ids))
        monkeypatch.setattr(SimpleAuthManager, "is_authorized_dag", is_authorized_dag)

    return narrow


@pytest.fixture(scope="package")
def our_dags(client: Any) -> None:
    """Our DAGs in Airflow's database, as its processor writes them."""
    from airflow.models.dag import DagModel
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.serialization.serialized_objects import LazyDeserializedDAG
    from airflow.utils.session import create_session

    for dag_id, dag in load_dags().dags.items():
        with create_session() as session:
            session.merge(DagModel(dag_id=dag_id, bundle_name="dags-folder", fileloc=dag.fileloc, is_stale=False))
        SerializedDagModel.write_dag(LazyDeserializedDAG.from_dag(dag), bundle_name="dags-folder")

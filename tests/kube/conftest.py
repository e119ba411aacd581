"""The stand-in cluster and a throw-away Airflow, whose configuration must be there before it is imported."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.kube.clusters import cluster, standin
from tests.kube.e2e import E2E, INSTANCE, IS_REAL, needs

__all__ = ["cluster", "standin"]

HOME = Path(tempfile.mkdtemp(prefix="trainbench-airflow-"))
os.environ.update(
    {
        "AIRFLOW_HOME": str(HOME),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(Path(__file__).parent),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME}/airflow.db?timeout=600",
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "600",  # the machine may be busy
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
        "AIRFLOW__WORKERS__API_RETRIES": "2",  # tests do not wait 15 s for an API server that goes on failing
        "AIRFLOW__API_AUTH__JWT_SECRET": "only-for-tests-" * 6,
    }
)


def pytest_sessionstart(session: pytest.Session) -> None:
    if IS_REAL and (terminal := session.config.pluginmanager.get_plugin("terminalreporter")):
        terminal.write_line(needs(E2E, INSTANCE))


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer than the doctor and the client of the Kubernetes API wait."""
    from trainbench.cluster import doctor, kubernetes_api

    monkeypatch.setattr(doctor, "DEADLINE_S", 600.0)
    monkeypatch.setattr(kubernetes_api, "TIMEOUTS_S", (600.0, 600.0))


@pytest.fixture(scope="session")
def airflow_db() -> None:
    from airflow.utils import db

    db.initdb()

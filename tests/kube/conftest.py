"""The stand-in cluster and a throw-away Airflow, whose configuration must be there before it is imported."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kube.clusters import cluster, standin
from tests.kube.e2e import E2E, INSTANCE, IS_REAL, needs

if TYPE_CHECKING:
    from tests.kube.dag_runs import Runs

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
def runs(standin: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """One Airflow for the DAGs of all files: it takes half a minute to start."""
    from tests.kube.dag_runs import own_parts, started  # which read the settings made above

    state = tmp_path_factory.mktemp("airflow")
    with started(standin, state, own_parts(state)) as runs:
        yield runs

"""A real Airflow with logins, in a throw-away folder, whose pods are the stand-in image."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx

from local_airflow import ROOT, LocalAirflow
from tests import lean_airflow
from tests.builders.ports import free_port
from tests.dag.standin_image import as_python

USERS = {"ada": "admin", "vera": "viewer"}
DAG_ID = "node_consistency"
NODES = ["gpu-a", "gpu-b", "gpu-c"]
# One run of each node, and of the slow one again: the stand-in does not care for the rest.
CONF = {"device": "cuda", "model": "mistral-7b", "rounds": 1, "measured_steps": 50, "max_measured_steps": 200}
CONF |= {"samples_per_second_tolerance_pct": 5}  # the form of this machine begins with that of a CPU trial
PATIENCE_S = 900
PREFIX = "/af"


class Site(LocalAirflow):
    """Its address ends in /af, as behind a proxy. Calls are made as ada. A user's password is their own name."""

    PROGRAM = lean_airflow.PROGRAM

    def __init__(self, state: Path) -> None:
        port = free_port()
        passwords = state / "passwords.json"
        passwords.write_text(json.dumps({user: user for user in USERS}))
        python = as_python(state)
        self.base = f"http://127.0.0.1:{port}{PREFIX}"
        super().__init__(
            port,
            with_triggerer=False,
            state=state,
            environment={
                "AIRFLOW__API__BASE_URL": self.base,
                "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
                "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(map(":".join, USERS.items())),
                "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
                "TRAINBENCH_LOCAL_PYTHON": str(python),
                "TRAINBENCH_LOCAL_PYTHONPATH": f"{ROOT}:{ROOT / 'plugins'}",
            },
        )
        self._client.base_url = self.base

    @property
    def history_path(self) -> Path:
        return self.state / "store" / "history.sqlite"

    @property
    def history_url(self) -> str:
        return f"sqlite:///{self.history_path}"

    def wait_until_healthy(self, dag_id: str = DAG_ID, timeout_s: float = PATIENCE_S) -> None:
        self._client.headers["Authorization"] = f"Bearer {self.token('ada')}"
        super().wait_until_healthy(dag_id, timeout_s)

    def token(self, user: str) -> str:
        """As soon as the server answers."""
        give_up = time.monotonic() + PATIENCE_S
        while True:
            try:
                reply = self._client.post(f"{self.base}/auth/token", json={"username": user, "password": user})
                return str(reply.raise_for_status().json()["access_token"])
            except httpx.HTTPError:
                self._check_alive()
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.5)

    def run(self, **conf: Any) -> tuple[str, str]:
        """A run of the node check from trigger to end: its id and state."""
        run_id = self.trigger(DAG_ID, CONF | {"nodes": NODES} | conf)
        give_up = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up:
            dag_run = self.get(f"/api/v2/dags/{DAG_ID}/dagRuns/{run_id}") or {}
            if dag_run.get("state") in ("success", "failed"):
                return run_id, str(dag_run["state"])
            time.sleep(0.5)
        raise AssertionError(f"{run_id} did not end within {PATIENCE_S} s. {self.cause(DAG_ID, run_id)}")

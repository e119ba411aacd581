"""Requests to the pages: logins, addresses, forged headers."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.builders.nights import ENDED_AT

ROLES = {"vera": "viewer", "uma": "user", "olaf": "op", "ada": "admin"}
LAST_NIGHT = (datetime.now(UTC) - ENDED_AT).days + 1
HOSTILE = "<script>alert(1)</script>"
WELL = {"node-1": 10.1, "node-2": 10.0, "node-3": 10.0}
PAGES = ("", "nodes/node-3", "strategies", "costs", "runs", "notices/1", "dags/page_nodes", "runs/last/{run}",
         "results/last/{run}")  # fmt: skip
TABLES = {
    "?table=heat": "node,gpu_name,day,state,why",
    "?table=nodes": "node,state,reason,since,next",
    "nodes/node-3?table=events": "when,kind,what",
    "nodes/node-3?table=latest": "work,when,state,samples/s,against_peers,against_own_past,against_level",
    "nodes/node-3?table=points-1": "when,state,samples/s",
    "strategies?": "gpu_name,model,recipe",
    "costs?table=months": "month,cost,GPU-hours",
    "costs?table=dags": "DAG,cost,GPU-hours",
    "costs?table=works": "work,cost,GPU-hours",
    "runs?": "campaign_id,run_id,dag_id",
}
OWN = {"X-Trainbench": "1", "Content-Type": "application/json"}
FORGED = [
    {"X_Trainbench": ""},
    {"X_Trainbench": "0"},
    {"Content_Type": "application/x-www-form-urlencoded"},
    {"Content_Type": "text/plain"},
    {"Sec_Fetch_Site": "cross-site"},
    {"Sec_Fetch_Site": "same-site"},
    {"Sec_Fetch_Site": "none"},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "https://testserver.evil.example"},
]
_tokens: dict[str, dict[str, str]] = {}


def login(client: Any, user: str) -> dict[str, str]:
    from airflow.api_fastapi.app import get_auth_manager

    if user not in _tokens:
        passwords = json.loads(Path(get_auth_manager().get_generated_password_file()).read_text())
        reply = client.post("/auth/token", json={"username": user, "password": passwords[user]})
        _tokens[user] = {"Authorization": f"Bearer {reply.json()['access_token']}"}
    return _tokens[user]


def get(client: Any, path: str, user: str = "vera") -> Any:
    return client.get(f"/trainbench/{path}", headers=login(client, user))


def a_run(folder: Path) -> str:
    """The id of a run of node-3 last night."""
    return next(path.name for path in (folder / "store/campaigns/last/runs").iterdir() if "node-3" in path.name)


def use(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes the pages read this store and history."""
    monkeypatch.setenv("TRAINBENCH_STORE", str(folder / "store"))
    monkeypatch.setenv("TRAINBENCH_HISTORY_URL", f"sqlite:///{folder / 'history.db'}")
    return folder

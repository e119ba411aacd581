"""The addresses of our pages and of Airflow's, relative to the requested page: valid behind any URL prefix."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from trainbench.alerting.links import MOUNT

DOTS = frozenset({"", ".", ".."})  # browsers resolve these as folders, quoted or not


@dataclass(frozen=True)
class Links:
    """`up`: path from the requested page to our first page; `query`: the filters, kept in links; `here`: address of the
    requested page on this server.
    """

    up: str = "./"
    query: Mapping[str, str] = field(default_factory=dict)
    here: str = ""

    def fleet(self, **changes: Any) -> str:
        return self._filtered("", changes)

    def node(self, node: str, **changes: Any) -> str:
        return self._filtered(_path("nodes", node), changes)

    def strategies(self, **changes: Any) -> str:
        return self._filtered("strategies", changes)

    def costs(self, **changes: Any) -> str:
        return self._filtered("costs", changes)

    def runs(self, **changes: Any) -> str:
        return self._filtered("runs", changes)

    def glossary(self) -> str:
        return f"{self.up}glossary"

    def notice(self, notice_id: int) -> str:
        return f"{self.up}notices/{notice_id}"

    def baselines(self, node: str | None = None) -> str:
        """The address of accepted baselines of a node, or of all."""
        return f"{self.up}baselines" if node is None else self.up + _path("nodes", node, "baseline")

    def report(self, dag_id: str, dag_run_id: str) -> str:
        return self.up + _path("dags", dag_id, "runs", dag_run_id)

    def run(self, campaign_id: str, run_id: str) -> str:
        return self.up + _path("runs", campaign_id, run_id)

    def result(self, campaign_id: str, run_id: str) -> str:
        return self.up + _path("results", campaign_id, run_id)

    def log(self, campaign_id: str, run_id: str, name: str) -> str:
        return self.up + _path("results", campaign_id, run_id, "logs", name)

    def static(self, name: str) -> str:
        return self.up + _path("static", name)

    def airflow(self) -> str:
        return f"{self.up}../"

    def airflow_dag(self, dag_id: str) -> str:
        return self.airflow() + _path("dags", dag_id)

    def airflow_run(self, dag_id: str, dag_run_id: str) -> str:
        return self.airflow() + _path("dags", dag_id, "runs", dag_run_id)

    def airflow_task(self, dag_id: str, dag_run_id: str, task_id: str, map_index: int) -> str:
        mapped = ("mapped", str(map_index)) if map_index >= 0 else ()
        return self.airflow() + _path("dags", dag_id, "runs", dag_run_id, "tasks", task_id, *mapped)

    def login(self) -> str:
        """Airflow's login, which returns to the requested page."""
        return f"{self.airflow()}api/v2/auth/login?{urlencode({'next': self.here})}"

    def _filtered(self, path: str, changes: Mapping[str, Any]) -> str:
        query = {name: str(value) for name, value in {**self.query, **changes}.items() if value not in (None, "")}
        return self.up + path + (f"?{urlencode(query)}" if query else "")


def links(scope: MutableMapping[str, Any], query: Mapping[str, str] | None = None) -> Links:
    """The links of a request, from its ASGI scope. A proxy may or may not have removed the prefix from the path."""
    raw = scope.get("raw_path") or quote(scope["path"]).encode()
    path = raw.decode("latin-1").split("?")[0]
    root = scope.get("root_path", "")
    inside = path[len(root) :] if path.startswith(f"{root}/") else path.removeprefix(MOUNT)
    query_text = scope.get("query_string", b"").decode("latin-1")
    here = f"{root}{inside}" + (f"?{query_text}" if query_text else "")
    return Links("../" * (inside.count("/") - 1) or "./", query or {}, here)


def _path(*parts: str) -> str:
    """A path of quoted names, so that a name from outside cannot change the address."""
    return "/".join("-" if part in DOTS else quote(part, safe="") for part in parts)

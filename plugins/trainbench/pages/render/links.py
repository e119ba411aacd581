"""The addresses of our pages and of Airflow's, relative to the requested page: valid behind any URL prefix."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from trainbench import __version__
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

    def page(self, *parts: str, **changes: Any) -> str:
        """A page that has filters: with those of this page, but for the changes."""
        query = {name: str(value) for name, value in {**self.query, **changes}.items() if value not in (None, "")}
        return self.to(*parts) + (f"?{urlencode(query)}" if query else "")

    def to(self, *parts: object) -> str:
        """Any page of ours. Each part is quoted, so that a name from outside cannot change the address."""
        return self.up + "/".join("-" if str(part) in DOTS else quote(str(part), safe="") for part in parts)

    def airflow(self, *parts: object) -> str:
        return f"{self.up}../" + self.to(*parts).removeprefix(self.up)

    def node(self, node: str, **changes: Any) -> str:
        return self.page("nodes", node, **changes)

    def notice(self, notice_id: int) -> str:
        return self.to("notices", notice_id)

    def report(self, dag_id: str, dag_run_id: str) -> str:
        return self.to("dags", dag_id, "runs", dag_run_id)

    def run(self, campaign_id: str, run_id: str) -> str:
        return self.to("runs", campaign_id, run_id)

    def static(self, name: str) -> str:
        """Browsers keep the file until the version changes."""
        return f"{self.to('static', name)}?v={__version__}"

    def airflow_run(self, dag_id: str, dag_run_id: str) -> str:
        return self.airflow("dags", dag_id, "runs", dag_run_id)

    def login(self) -> str:
        """Airflow's login, which returns to the requested page."""
        return f"{self.airflow()}api/v2/auth/login?{urlencode({'next': self.here})}"


def links(scope: MutableMapping[str, Any], query: Mapping[str, str] | None = None) -> Links:
    """The links of a request, from its ASGI scope. A proxy may or may not have removed the prefix from the path."""
    raw = scope.get("raw_path") or quote(scope["path"]).encode()
    path = raw.decode("latin-1").split("?")[0]
    root = scope.get("root_path", "")
    inside = path[len(root) :] if path.startswith(f"{root}/") else path.removeprefix(MOUNT)
    query_text = scope.get("query_string", b"").decode("latin-1")
    here = f"{root}{inside}" + (f"?{query_text}" if query_text else "")
    return Links("../" * (inside.count("/") - 1) or "./", query or {}, here)

"""Addresses of the pages that notices link to, relative to Airflow's home page, so that any URL prefix works."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

MOUNT = "/trainbench"  # where our pages are served
PLUGIN_ROUTE = "trainbench"  # the `url_route` under which Airflow frames them
REPORT_TAB = "plugin/trainbench-run"  # the `url_route` of our tab on a DAG run's page


def in_airflow(path: str, prefix: str = "") -> str:
    """The page `path` (such as "notices/3") inside Airflow's frame, without a leading slash: relative to Airflow's
    base address. `prefix`: the path of that address, such as "/airflow".
    """
    return f"plugin/{PLUGIN_ROUTE}{prefix.rstrip('/')}{MOUNT}/{path}"


def run_page(dag_id: str, dag_run_id: str) -> str:
    return f"dags/{quote(dag_id, safe='')}/runs/{quote(dag_run_id, safe='')}"


def report_tab(dag_id: str, dag_run_id: str) -> str:
    return f"{run_page(dag_id, dag_run_id)}/{REPORT_TAB}"


def notice_page(notice_id: int, prefix: str = "") -> str:
    """The address of a notice's page. `prefix`: the path of Airflow's own address, such as "/airflow"."""
    return in_airflow(f"notices/{notice_id}", prefix)


def benchmarks_page(prefix: str = "") -> str:
    return in_airflow("", prefix)


def prefix_of(base_url: str | None) -> str:
    """The path of Airflow's own address: "/airflow" of http://host/airflow, else ""."""
    return urlsplit(base_url or "").path.rstrip("/")


def absolute_url(base_url: str | None, relative: str) -> str | None:
    """The absolute address; None where Airflow does not know its own address (`[api] base_url`)."""
    return f"{base_url.rstrip('/')}/{relative}" if base_url else None

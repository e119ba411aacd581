"""Registers our pages with Airflow: by this package's entry point, or by `trainbench_plugin.py` in a plugins folder."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from airflow.plugins_manager import AirflowPlugin
from pluggy import HookimplMarker

hookimpl = HookimplMarker("airflow")


class ImportsBeforeForks:
    """Imports the code of our DAGs once, in scheduler and DAG processor, before they fork.

    LocalExecutor forks a process for each task, and the DAG processor one for each time that it reads a DAG file: of a
    pod's task the import would be more than half of the CPU time (docs/internals/scale.md).
    """

    @hookimpl
    def on_starting(self, component: Any) -> None:
        """`component`: a Job of Airflow; or the marker of a task, which may be of anybody's DAG and forks nothing."""
        if type(component).__name__ == "Job":
            with suppress(Exception):  # a DAG file shows it as its import error; here it would stop others' listeners
                import trainbench.orchestration.dag_factory  # noqa: F401
                from trainbench.params.campaign_params import form
                from trainbench.settings.environment import read_settings

                form()  # keeps its JSON Schema
                read_settings()  # keeps what Airflow's configuration file says


class TrainbenchPlugin(AirflowPlugin):
    name = "trainbench"
    # No leading slash: Airflow's page resolves them against its own address, also behind a prefix.
    external_views = [  # noqa: RUF012 - the base class declares them as attributes of the instance
        {
            "name": "Benchmarks",
            "href": "trainbench/",
            "destination": "nav",
            "nav_top_level": True,
            "icon": "trainbench/static/icon.svg",
            "icon_dark_mode": "trainbench/static/icon-dark.svg",
            "url_route": "trainbench",
        },
        {"name": "Benchmarks", "href": "trainbench/dags/{DAG_ID}", "destination": "dag", "url_route": "trainbench-dag"},
        {
            "name": "Benchmark",
            "href": "trainbench/dags/{DAG_ID}/runs/{RUN_ID}",
            "destination": "dag_run",
            "url_route": "trainbench-run",
        },
        {
            "name": "Result",
            "href": "trainbench/dags/{DAG_ID}/runs/{RUN_ID}/tasks/{TASK_ID}?map_index={MAP_INDEX}",
            "destination": "task_instance",
            "url_route": "trainbench-task",
        },
    ]

    @property
    def listeners(self) -> list[Any]:  # type: ignore[override]
        from trainbench.alerting import run_note  # light: the scheduler and every task import it

        return [run_note, ImportsBeforeForks()]

    # Properties: every process of Airflow loads this file, but only the API server reads these, and only it needs
    # FastAPI and our history.
    @property
    def fastapi_root_middlewares(self) -> list[Any]:  # type: ignore[override]
        from trainbench.pages.web.banners import BreachBanners

        return [{"middleware": BreachBanners, "args": [], "kwargs": {}, "name": "trainbench banners"}]

    @property
    def fastapi_apps(self) -> list[Any]:  # type: ignore[override]
        from trainbench.pages.web.routes import build_app

        return [{"app": build_app(), "url_prefix": "/trainbench", "name": "trainbench"}]

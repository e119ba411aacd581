"""Registers our pages with Airflow: by this package's entry point, or by `trainbench_plugin.py` in a plugins folder."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin


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

        return [run_note]

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

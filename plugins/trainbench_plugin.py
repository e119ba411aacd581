"""Registers trainbench's pages with Airflow. A module of its own: Airflow loads every file in this folder by itself."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from bench_control.airflow_pages import BreachBanners


class TrainbenchPlugin(AirflowPlugin):
    name = "trainbench"
    fastapi_root_middlewares = [  # noqa: RUF012 - the base class declares them as attributes of the instance
        {"middleware": BreachBanners, "args": [], "kwargs": {}, "name": "trainbench banners"}
    ]
    external_views = [  # noqa: RUF012
        {
            "name": "Benchmark",
            "href": "trainbench/dags/{DAG_ID}/runs/{RUN_ID}",
            "destination": "dag_run",
            "url_route": "trainbench-run",
        }
    ]

    @property
    def fastapi_apps(self) -> list[Any]:  # type: ignore[override]  # a property: only the API server asks for it, and only it needs FastAPI
        from bench_control.airflow_pages import build_app

        return [{"app": build_app(), "url_prefix": "/trainbench", "name": "trainbench"}]

"""Airflow as in production, on this machine: CeleryExecutor on Redis, PostgreSQL, a store in S3, two workers apart.

Redis and PostgreSQL are Debian's; S3 is moto's server. A worker runs in a mount namespace of its own: it sees neither
the files of Airflow's other components nor those of the other worker, so only S3, Redis and PostgreSQL join them.
"""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench_image.process.parent_death import die_with_parent
from tests.builders.needed import missing, program
from tests.builders.ports import free_port
from tests.builders.postgres import Debian, NoPostgres, start_debian
from trainbench.history.database import connect

DATABASES = ("airflow", "trainbench")
BUCKET = "bench"
SECRET = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
START_S = 600
SLOW_DOWN = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n'
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)


class Redis:
    """Started at once, on a port of its own; it keeps nothing when it ends."""

    def __init__(self, program: str, folder: Path) -> None:
        self._port = free_port()
        self._command = [program, "--port", str(self._port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        self._log = folder / "redis.log"
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self.start()

    def start(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, preexec_fn=die_with_parent)
        _wait_for(self._port)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Bucket:
    """An object store: moto's server, which can be busy."""

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        self._store = DomainDispatcherApplication(create_backend_app)
        self._busy_s, self._busy_until = 0.0, 0.0
        self.refused = 0  # requests that were answered with 503
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def refuse_from_now(self, for_s: float) -> None:
        """The next request, and all others of the seconds after it, are answered as by S3 when it is busy."""
        self._busy_s = for_s

    def stop(self) -> None:
        self._server.shutdown()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        if self._busy_s:
            self._busy_s, self._busy_until = 0.0, time.monotonic() + self._busy_s
        if time.monotonic() >= self._busy_until:
            return self._store(environ, start_response)
        self.refused += 1
        start_response("503 Slow Down", [("Content-Type", "application/xml"), ("Content-Length", str(len(SLOW_DOWN)))])
        return [SLOW_DOWN]


class Services(NamedTuple):
    """`environment`: of an Airflow that uses them; the others can be stopped and started again, or refuse requests."""

    environment: dict[str, str]
    redis: Redis
    postgres: Debian
    bucket: Bucket


@contextmanager
def services(folder: Path) -> Iterator[Services]:
    try:
        postgres = start_debian()
    except NoPostgres as error:
        missing(str(error))
    broker = Redis(program("redis-server", "redis-server"), folder)
    try:
        with _s3() as bucket:
            yield Services(_environment(_databases(postgres.url), broker.url, bucket.url), broker, postgres, bucket)
    finally:
        broker.kill()


def wait_for_workers(broker: str, count: int) -> None:
    """Until so many Celery workers answer."""
    from celery import Celery  # type: ignore[import-untyped]

    control, give_up = Celery(broker=broker).control, time.monotonic() + START_S
    while len(control.ping(timeout=5)) < count:
        if time.monotonic() > give_up:
            raise TimeoutError(f"fewer than {count} Celery workers answer after {START_S} s")


def _environment(databases: Mapping[str, str], broker: str, endpoint: str) -> dict[str, str]:
    return {
        "AIRFLOW__CORE__EXECUTOR": "airflow.providers.celery.executors.celery_executor.CeleryExecutor",
        "AIRFLOW__CORE__PARALLELISM": "16",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": databases["airflow"],
        "AIRFLOW__CELERY__BROKER_URL": broker,
        "AIRFLOW__CELERY__RESULT_BACKEND": f"db+{databases['airflow']}",
        "AIRFLOW__CELERY__WORKER_CONCURRENCY": "2",
        "AIRFLOW__CELERY__WORKER_PREFETCH_MULTIPLIER": "1",
        # How soon a part that was killed is missed; a busy machine must not lose one that lives.
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "120",
        "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "30",
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "60",
        "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "20",  # it is the only one, so it keeps its triggers
        "AIRFLOW__EXECUTION_API__JWT_EXPIRATION_TIME": "7200",  # of a task that waits for a worker
        "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": "7200",
        "TRAINBENCH_HISTORY_URL": databases["trainbench"],
        "TRAINBENCH_STORE": f"s3://{BUCKET}/trainbench",
        "AWS_ENDPOINT_URL": endpoint,
        **SECRET,
    }


def _databases(server: str) -> dict[str, str]:
    """URLs of empty databases by name; `server` names the database `postgres`."""
    with connect(server).connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for name in DATABASES:
            connection.exec_driver_sql(f"CREATE DATABASE {name}")
    return {name: server.replace("@/postgres?", f"@/{name}?") for name in DATABASES}


@contextmanager
def _s3() -> Iterator[Bucket]:
    from boto3 import client

    bucket = Bucket()
    try:
        keys = {name.lower(): value for name, value in SECRET.items() if "KEY" in name}
        client("s3", endpoint_url=bucket.url, region_name="us-east-1", **keys).create_bucket(Bucket=BUCKET)
        yield bucket
    finally:
        bucket.stop()


def _wait_for(port: int) -> None:
    give_up = time.monotonic() + START_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if time.monotonic() > give_up:
            raise TimeoutError(f"nothing listens on port {port} after {START_S} s")
        time.sleep(0.05)

"""A real Prometheus for the tests: Debian's, with promtool beside it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from bench_image.process.parent_death import die_with_parent
from tests.builders.needed import program
from tests.builders.ports import free_port

WAIT_S = 600


@dataclass(frozen=True)
class Prometheus:
    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Of an instant: each series with its labels and value."""
        data: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return data

    def values(self, expression: str) -> list[float]:
        return [float(series["value"][1]) for series in self.query(expression)]

    def alerts(self) -> set[tuple[str, str]]:
        """Name and node of each that fires."""
        firing = (alert["labels"] for alert in self.get("alerts")["alerts"] if alert["state"] == "firing")
        return {(labels["alertname"], labels.get("node", "")) for labels in firing}

    def get(self, path: str, **parameters: str) -> Any:
        with urlopen(f"{self.url}/api/v1/{path}?{urlencode(parameters)}", timeout=300) as answer:
            return json.load(answer)["data"]


@contextmanager
def prometheus(folder: Path, target: str, rules: Sequence[Path]) -> Iterator[Prometheus]:
    """It evaluates the rules every second, and scrapes the target, as host:port, every ten: a scrape that takes longer,
    as on a busy machine, would end all series."""
    config = {
        "global": {"scrape_interval": "10s", "scrape_timeout": "10s", "evaluation_interval": "1s"},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [{"job_name": "airflow", "static_configs": [{"targets": [target]}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    command = [
        program("prometheus", "prometheus"),
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data",
        f"--web.listen-address={address}",
        "--log.level=warn",
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, preexec_fn=die_with_parent)
    server = Prometheus(f"http://{address}")
    try:
        wait_until(lambda: bool(server.values("up == 1")), lambda: (folder / "log").read_text())
        yield server
    finally:
        process.terminate()
        process.wait(timeout=120)


def wait_until(holds: Callable[[], bool], what: Callable[[], Any]) -> None:
    """Raises TimeoutError with what `what` returns."""
    give_up = time.monotonic() + WAIT_S
    while True:
        try:
            if holds():
                return
        except (URLError, ConnectionError):
            pass  # not listening yet
        if time.monotonic() > give_up:
            raise TimeoutError(f"not within {WAIT_S} s: {what()}")
        time.sleep(0.1)

"""`python -m tests.kube.airflow_process PORT STATE_FOLDER`: the real Airflow, until standard input closes.

A process of its own, because on its way out it ends everything that descends from it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from local_airflow import ROOT, LocalAirflow
from tests.kube.e2e import E2E

PASSED = ("TRAINBENCH_", "AIRFLOW_CONN_")


def main() -> None:
    port, state = int(sys.argv[1]), Path(sys.argv[2])
    environment = {name: value for name, value in os.environ.items() if name.startswith(PASSED)}
    with LocalAirflow(port, with_triggerer=True, state=state, environment=environment) as airflow:
        for dag in sorted((ROOT / "dags").glob("*.py")):  # each is read by itself, in any order
            airflow.wait_until_healthy(dag.stem, 180 * E2E.patience)
        print("healthy", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()

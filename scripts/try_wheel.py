"""Lists and runs the DAGs of an installed wheel in the Airflow of this interpreter: `PYTHON scripts/try_wheel.py`.

Follows README, "The Airflow you have": a new AIRFLOW_HOME, a link to the DAGs of the wheel, SQLite, and the
local launcher instead of a cluster. TRAINBENCH_LOCAL_PYTHON names a Python with the training stack (`.venv-image` of
this checkout by default); without one the DAGs are listed, and those run that need none.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.prefix) / "bin"
SITE_PACKAGES = Path(sysconfig.get_path("purelib"))
SHIPPED = Path(sys.prefix) / "share" / "trainbench" / "dags"
EXPECTED = {
    "node_consistency",
    "strategy_scaling",
    "config_diagnosis",
    "hardware_survey",
    "interconnect",
    "cost_report",
    "housekeeping",
}  # and `metrics`, where Airflow's metrics are on
TINY = {"quick": True, "nodes": ["node-1", "node-2", "node-3"]}
PATIENCE_S = 600


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="trainbench-wheel-") as name:
        home = Path(name)
        (home / "dags").mkdir()
        (home / "dags" / "trainbench").symlink_to(SHIPPED)
        # The wheel's own, without the rest of this environment: the local Python may be another version.
        shutil.copytree(SITE_PACKAGES / "bench_image", home / "image" / "bench_image")
        environ = _environment(home)
        _airflow(environ, "db", "migrate")
        _expect("DAGs", _dag_ids(environ), EXPECTED)
        _check_provider(environ, home)
        runs: list[tuple[str, dict[str, Any]]] = [("housekeeping", {}), ("cost_report", {})]
        if Path(environ["TRAINBENCH_LOCAL_PYTHON"]).exists():
            runs.insert(0, ("node_consistency", TINY))
        for dag_id, conf in runs:
            _airflow(environ, "dags", "test", dag_id, "--conf", json.dumps(conf))
            print(f"{dag_id}: success")
        written = sorted(path.name for path in (home / "trainbench" / "store").iterdir())
        _expect("files of the default store", {"history.sqlite", "cost"} - set(written), set())
    print(f"Python {sys.version.split()[0]}: the wheel's DAGs are listed and run")
    return 0


def _check_provider(environ: dict[str, str], home: Path) -> None:
    """Airflow knows the package as a provider, its section and which options of it are secret; the command line reads
    the section as Airflow does, a value that Airflow fetches included."""
    listed = {row["package_name"] for row in _json(environ, "providers", "list")}
    _expect("provider", listed & {"trainbench"}, {"trainbench"})
    asked = ("config", "list", "--section", "trainbench", "--show-values", "--hide-sensitive")
    given = environ | {"AIRFLOW__TRAINBENCH__FRESH_H": "40", "AIRFLOW__TRAINBENCH__HISTORY_URL_CMD": "echo sqlite:///x"}
    shown = _airflow(given, *asked)
    for line in ("fresh_h = 40", "queue_timeout_s = 3600", "history_url = < hidden >"):
        if line not in shown:
            sys.exit(f"`airflow {' '.join(asked)}` lacks '{line}':\n{shown}")
    program = "from trainbench.settings.environment import read_settings as r; print(r().fresh_h, r().history_url)"
    read = subprocess.run([sys.executable, "-c", program], env=given, cwd=home, capture_output=True, text=True)
    _expect("settings of the section", {read.stdout.strip()}, {"40 sqlite:///x"})


def _environment(home: Path) -> dict[str, str]:
    """None of the caller's settings but the local Python."""
    ours = {
        name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "TRAINBENCH_", "PYTHON"))
    }
    return ours | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
        "TRAINBENCH_LAUNCHER": "local",
        "TRAINBENCH_LOCAL_PYTHON": os.environ.get("TRAINBENCH_LOCAL_PYTHON", str(ROOT / ".venv-image/bin/python")),
        "TRAINBENCH_LOCAL_PYTHONPATH": str(home / "image"),
    }


def _dag_ids(environ: dict[str, str]) -> set[str]:
    return {dag["dag_id"] for dag in _json(environ, "dags", "list", "--local", "--output", "json")}


def _json(environ: dict[str, str], *arguments: str) -> Any:
    text = _airflow(environ, *arguments, *([] if "--output" in arguments else ["--output", "json"]))
    return json.loads(text[text.index("[") :])


def _airflow(environ: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [str(BIN / "airflow"), *arguments],
        env=environ,
        cwd=environ["AIRFLOW_HOME"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    if done.returncode != 0:
        sys.exit(
            f"airflow {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        )
    return done.stdout


def _expect(noun: str, actual: set[str], expected: set[str]) -> None:
    if actual != expected:
        sys.exit(f"{noun}: {sorted(actual)}, expected {sorted(expected)}")
    print(f"{noun}: {len(actual)} as expected")


if __name__ == "__main__":
    sys.exit(main())

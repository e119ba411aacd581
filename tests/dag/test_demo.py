"""`make demo` as a user runs it: real Airflow processes, the real benchmark program, nothing left behind.

CPU time still differs from run to run on a machine that others use, so the drill's verdict is not asserted here, only
what must hold with any noise: the drilled node is by far the slowest, it is never called ok, and the exit status is 0
where the drill alone made the DAG run red. docs/results/demo-definite-2026-11-24 says how often the verdict is right.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from bench_image.process.parent_death import die_with_parent
from tests.builders.ports import free_port
from trainbench.alerting.links import report_tab

ROOT = Path(__file__).resolve().parents[2]
DEMO = [sys.executable, str(ROOT / "scripts" / "demo.py")]
pytestmark = pytest.mark.slow


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def environment() -> dict[str, str]:
    """Without what the other tests of this folder set for their own Airflow."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "TRAINBENCH"))} | {
        "PYTHONPATH": str(ROOT)
    }


@pytest.mark.skipif("TRAINBENCH_TEST_DEMO" not in os.environ, reason="minutes of both cores: make test-demo")
def test_a_drill_ends_with_the_verdict_and_the_reports(port: int, environment: dict[str, str]) -> None:
    command = [*DEMO, "--port", str(port), "--drill", "node-3"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1500)
    rates = {node: float(rate) for node, rate in re.findall(r"^ (node-\d) +([\d.]+) ", done.stdout, re.MULTILINE)}
    (state,) = re.findall(r"DAG run ended as (\w+)", done.stdout)

    is_found = "node-3 was found, as it should" in done.stdout
    assert (state, done.returncode) == ("failed", 0 if is_found else 1), done.stdout + done.stderr
    assert set(rates) == {"node-1", "node-2", "node-3", "node-4"}
    assert min(rates, key=lambda node: rates[node]) == "node-3"
    assert "Drill: trainbench slowed node-3 by 75 % on purpose" in done.stdout
    assert not re.search(r"^ node-3 .* well *$", done.stdout, re.MULTILINE)
    reports = re.findall(r"^  (/\S+\.(?:html|md|csv))$", done.stdout, re.MULTILINE)
    assert {Path(report).name for report in reports} >= {"report.html", "BENCHMARK_REPORT.md"}
    assert all(Path(report).is_file() for report in reports)
    # the exit status says no more and no less than the table
    states = dict(re.findall(r"^ (node-\d) .* (\w+(?:: \w+)?) *$", done.stdout, re.MULTILINE))
    assert is_found == (states["node-3"] == "drill: slow" and not any("red" in state for state in states.values()))
    # the real scheduler put the verdict on top of the run's page
    run_id, note = last_run_and_note()
    assert note.startswith("**Benchmark.** Drill detected: node-3 (")
    assert f"[Report]({report_tab('node_consistency', run_id)})" in note


def last_run_and_note() -> tuple[str, str]:
    query = """
        SELECT dag_run.run_id, dag_run_note.content FROM dag_run
        LEFT JOIN dag_run_note ON dag_run_note.dag_run_id = dag_run.id ORDER BY dag_run.id DESC LIMIT 1
    """
    with closing(sqlite3.connect(ROOT / ".trainbench" / "airflow" / "airflow.db")) as connection:
        run_id, note = connection.execute(query).fetchone()
    return str(run_id), str(note)


def test_ctrl_c_even_twice_leaves_no_process_behind(port: int, environment: dict[str, str]) -> None:
    command = [*DEMO, "--port", str(port), "--ui", "--made-up-nights", "2"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        preexec_fn=die_with_parent,
    ) as demo:
        assert demo.stdout is not None
        printed: list[str] = []
        for line in demo.stdout:
            printed.append(line)
            if "node-1: loading the libraries" in line:
                break
        else:
            pytest.fail("".join(printed))
        time.sleep(3)  # into the pod's own start
        family = psutil.Process(demo.pid).children(recursive=True)
        demo.send_signal(signal.SIGINT)
        time.sleep(1)
        demo.send_signal(signal.SIGINT)  # an impatient user's second one
        rest, _ = demo.communicate(timeout=300)

    assert demo.returncode == 130
    with closing(sqlite3.connect(ROOT / ".trainbench" / "made-up" / "store" / "history.sqlite")) as history:
        nodes = {node for (node,) in history.execute("SELECT DISTINCT node FROM notices")}
    assert all(node.startswith("made-up-") for node in nodes)
    assert nodes
    assert "no process is left behind" in rest
    assert len(family) >= 4
    assert [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE] == []


def test_a_taken_port_is_one_sentence(environment: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        done = subprocess.run([*DEMO, "--port", str(number)], capture_output=True, text=True, env=environment)

    assert done.returncode == 2
    assert f"demo: port {number} is not free" in done.stdout
    assert "PORT=" in done.stdout

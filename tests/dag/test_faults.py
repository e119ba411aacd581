"""Faults of what a night writes to, with DAG runs in one process: after each no result is lost, the run is red, and the
gate says why in one sentence; once the fault is mended, the stored results are judged.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.dag.standin_image import as_python
from tests.dag.test_node_consistency import CONF, HEALTHY
from tests.kube.after_fault import after_fault
from trainbench.planning.plan import campaign_id
from trainbench.results.artefacts import open_store

pytestmark = pytest.mark.slow
ROOM = "64k"  # for the plan and three results, not for the reports


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8g", "none", folder], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"a file system of its own needs root: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def before_each_pod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str) -> None:
    """The stand-in image runs this first: so it happens while the night runs, after `ready` has looked."""
    image = as_python(tmp_path)
    first_line, *rest = image.read_text().splitlines()
    image.write_text("\n".join([first_line, rest[0], command, *rest[1:]]) + "\n")
    monkeypatch.setenv("TRAINBENCH_LOCAL_PYTHON", str(image))


def gate_s_words(dagbag: Any, monkeypatch: Any, capfd: pytest.CaptureFixture[str]) -> tuple[Any, str]:
    """The DAG run and why its gate is red; retries follow at once."""
    dag = dagbag.dags["node_consistency"]
    for task in dag.tasks:
        monkeypatch.setattr(task, "retry_delay", timedelta(0))
    dag_run = dag.test(run_conf=CONF | {"nodes": HEALTHY, "rounds": 1})
    output = "".join(capfd.readouterr())
    start = output.index("no verdict: ")
    return dag_run, output[start:].splitlines()[0]


def stored(store: Any, run_id: str) -> list[str]:
    results = store.read_results(campaign_id("node_consistency", run_id)).results
    return sorted(result.spec.identity.node for result in results)


def test_a_store_that_fills_up_is_red_and_loses_no_result(
    dagbag: Any, store: Any, disk: Path, tmp_path: Path, monkeypatch: Any, capfd: Any
) -> None:
    monkeypatch.setenv("TRAINBENCH_STORE", str(disk))
    before_each_pod(monkeypatch, tmp_path, f"mount -o remount,size={ROOM} {disk}")
    run, words = gate_s_words(dagbag, monkeypatch, capfd)

    assert run.state == "failed"
    assert re.search("the task '(judge|publish)' failed: ", words)
    assert "the disk is full: free space, or set TRAINBENCH_STORE to another place" in words
    nodes = stored(open_store(str(disk)), run.run_id)
    after_fault("store-full", results=(HEALTHY, nodes), green=(run.state == "success", HEALTHY), cause=words)


def test_a_history_that_breaks_is_red_and_loses_no_result(
    dagbag: Any, store: Any, tmp_path: Path, monkeypatch: Any, capfd: Any
) -> None:
    before_each_pod(monkeypatch, tmp_path, f"echo this is no database > {tmp_path / 'history.db'}")
    run, words = gate_s_words(dagbag, monkeypatch, capfd)

    assert run.state == "failed"
    assert run.get_task_instance("judge").try_number == 4  # a server that is restarted is back after a minute
    assert "the task 'judge' failed: history sqlite:" in words
    assert "check TRAINBENCH_HISTORY_URL" in words
    nodes = stored(store, run.run_id)
    after_fault("history-broken", results=(HEALTHY, nodes), green=(run.state == "success", HEALTHY), cause=words)

"""Faults of what a night writes to, with DAG runs in one process: after each no result is lost, the run is red, and the
gate says why in one sentence; once the fault is mended, the stored results are judged.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders.image_server import as_python
from tests.dag.test_node_consistency import CONF, HEALTHY
from tests.dag.test_node_consistency import run as run_dag
from tests.kube.after_fault import after_fault
from trainbench.cluster import doctor
from trainbench.orchestration.plan_tasks import REASON
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


def before_each_pod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, image_server: Path, command: str) -> None:
    """The stand-in image runs this first: so it happens while the night runs, after `ready` has looked."""
    image = as_python(tmp_path, image_server)
    first_line, *rest = image.read_text().splitlines()
    image.write_text("\n".join([first_line, rest[0], command, *rest[1:]]) + "\n")
    monkeypatch.setenv("TRAINBENCH_LOCAL_PYTHON", str(image))


def gate_s_words(dagbag: Any, capfd: pytest.CaptureFixture[str]) -> tuple[Any, str]:
    """The DAG run and why its gate is red."""
    dag_run = run_dag(dagbag, nodes=HEALTHY, rounds=1)
    output = "".join(capfd.readouterr())
    start = output.index("no verdict: the task")  # not the line of code in the traceback
    return dag_run, output[start:].splitlines()[0]


def stored(store: Any, run_id: str) -> list[str]:
    results = store.read_results(campaign_id("node_consistency", run_id)).results
    return sorted(result.spec.identity.node for result in results)


def test_a_store_that_fills_up_is_red_and_loses_no_result(
    dagbag: Any, store: Any, image: Path, disk: Path, tmp_path: Path, monkeypatch: Any, capfd: Any
) -> None:
    monkeypatch.setenv("TRAINBENCH_STORE", str(disk))
    before_each_pod(monkeypatch, tmp_path, image, f"mount -o remount,size={ROOM} {disk}")
    run, words = gate_s_words(dagbag, capfd)

    assert run.state == "failed"
    assert re.search("the task '(judge|publish)' failed: ", words)
    assert "the disk is full: free space, or set TRAINBENCH_STORE to another place" in words
    nodes = stored(open_store(str(disk)), run.run_id)
    after_fault("store-full", results=(HEALTHY, nodes), green=(run.state == "success", HEALTHY), cause=words)


def test_a_history_that_breaks_is_red_and_loses_no_result(
    dagbag: Any, store: Any, image: Path, tmp_path: Path, monkeypatch: Any, capfd: Any
) -> None:
    before_each_pod(monkeypatch, tmp_path, image, f"echo this is no database > {tmp_path / 'history.db'}")
    run, words = gate_s_words(dagbag, capfd)

    assert run.state == "failed"
    assert run.get_task_instance("judge").try_number == 4  # a server that is restarted is back after a minute
    assert "the task 'judge' failed: history sqlite:" in words
    assert "check TRAINBENCH_HISTORY_URL" in words
    nodes = stored(store, run.run_id)
    after_fault("history-broken", results=(HEALTHY, nodes), green=(run.state == "success", HEALTHY), cause=words)


def test_a_history_that_is_away_when_the_night_begins_does_not_cost_the_night(
    dagbag: Any, store: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    """It was refused by the first task, which nobody tried again."""
    history = tmp_path / "history.db"
    history.write_text("this is no database")
    looks, look = [], doctor.examine

    def look_and_mend(*args: Any) -> Any:
        looks.append(look(*args))
        history.unlink(missing_ok=True)
        return looks[-1]

    monkeypatch.setattr(doctor, "examine", look_and_mend)
    run = run_dag(dagbag, nodes=HEALTHY, rounds=1)

    assert [doctor.verdict(checks) for checks in looks] == ["Not ready: history.", "Ready."]
    nodes = stored(store, run.run_id)
    assert run.state == "success"
    after_fault("history-away-at-start", results=(HEALTHY, nodes))


@pytest.mark.parametrize(("has_interpreter", "tries"), [(True, 4), (False, 1)])
def test_only_what_may_pass_is_waited_for_before_a_night(
    has_interpreter: bool, tries: int, dagbag: Any, store: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    (tmp_path / "history.db").write_text("this is no database")
    if not has_interpreter:
        monkeypatch.setenv("TRAINBENCH_LOCAL_PYTHON", "/nowhere/python")
    run = dagbag.dags["node_consistency"].partial_subset("ready").test(run_conf=CONF | {"nodes": HEALTHY})
    ready = run.get_task_instance("ready")

    assert (ready.state, ready.try_number) == ("failed", tries)
    reason = ready.xcom_pull(task_ids="ready", key=REASON)
    assert re.match("history: sqlite:.*: file is not a database. Check" if has_interpreter else "interpreter: ", reason)
    after_fault("history-away-at-start", green=(run.state == "success", HEALTHY), cause=reason)

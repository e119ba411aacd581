"""Local pods: real processes from real manifests; results, failures, deadlines, and nothing left behind."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench_image.contract.pod_io import MAX_RESULT_BYTES
from tests.builders import make_spec
from trainbench.pods.local_pods import LocalImage, LocalPod, LocalPodError
from trainbench.pods.manifests import PodSettings, manifest
from trainbench.pods.pod_end import EndKind, PodEnd

IMAGE = LocalImage(python=sys.executable, pythonpath=str(Path(__file__).resolve().parents[3]))
LOG = "from bench_image.contract.result_lines import result_lines; [print(line) for line in result_lines({})]"


def pod(program: str, **spec: Any) -> dict[str, Any]:
    """The manifest of a run whose container runs `program` instead of the benchmark."""
    made = manifest(make_spec(), PodSettings())
    made["spec"]["containers"][0]["command"] = ["python", "-c", program]
    made["spec"] |= spec
    return made


def test_the_result_comes_back_with_the_output_lines() -> None:
    lines: list[str] = []
    outcome = LocalPod(pod(f"print('step 1'); {LOG.format(repr('{}'))}"), IMAGE).run(lines.append)

    assert (outcome.exit_code, outcome.result_text, lines) == (0, "{}", ["step 1"])
    assert outcome.log == "step 1\n"


def test_environment_is_the_manifest_s_with_volumes_as_folders_and_the_shell_s_of_nccl(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A machine whose NCCL needs a variable needed a Pod template for `trainbench run`."""
    program = """
import os
print(os.environ["TRAINBENCH_POD"], *(os.path.isdir(os.environ[n]) for n in ("TRAINBENCH_OUTPUT_DIR", "HOME")))
print(sorted(name for name in os.environ if name.startswith(("AIRFLOW", "NCCL"))))
"""
    for name in ("AIRFLOW_HOME", "NCCL_NVLS_ENABLE", "TRAINBENCH_TRACES"):
        monkeypatch.setenv(name, "0")
    lines: list[str] = []
    manifest_ = pod(program + "print(os.environ['TRAINBENCH_TRACES'])")
    LocalPod(manifest_, IMAGE).run(lines.append)

    assert lines == [f"{manifest_['metadata']['name']} True True", "['NCCL_NVLS_ENABLE']", str(Path("0").absolute())]


def test_a_full_disk_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended `trainbench run` with a traceback, as a defect of trainbench."""

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with pytest.raises(LocalPodError, match=r"room for its files below /\S+: No space left on device"):
        LocalPod(pod("print('never')"), IMAGE).run(print)


def test_the_deadline_ends_a_pod_that_ignores_sigterm_and_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its second begins with the pod's first line, which may come late on a busy machine."""
    begin, timers = threading.Timer.start, list[threading.Timer]()
    monkeypatch.setattr(threading.Timer, "start", lambda timer: timers.append(timer))
    pids = tmp_path / "pids"
    program = f"""
import os, signal, subprocess, sys, time, pathlib
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, 1); time.sleep(3600)"])
pathlib.Path({str(pids)!r}).write_text(f"{{os.getpid()}} {{child.pid}}")
print("ready", flush=True)
time.sleep(3600)
"""
    ignorant = LocalPod(pod(program, activeDeadlineSeconds=1, terminationGracePeriodSeconds=0.5), IMAGE)
    outcome = ignorant.run(lambda _: begin(timers.pop()))

    assert outcome.ended_by == "DeadlineExceeded"
    assert outcome.exit_code == -9
    assert outcome.end
    assert outcome.end.kind is EndKind.DEADLINE
    gone = [int(pid) for pid in pids.read_text().split()]
    assert _all_end(gone)


def test_stop_from_another_thread_gives_the_pod_time_to_write_its_result() -> None:
    program = f"""
import signal, sys, time
def end(*_):
    {LOG.format(repr('{"status": "incomplete"}'))}
    sys.exit(5)
signal.signal(signal.SIGTERM, end)
print("ready")
time.sleep(600)
"""
    running = LocalPod(pod(program), IMAGE)
    started = threading.Event()
    stopper = threading.Thread(target=lambda: started.wait(600) and running.stop("the task was stopped"))
    stopper.start()
    outcome = running.run(lambda line: started.set())
    stopper.join()

    assert (outcome.exit_code, outcome.result_text) == (5, '{"status": "incomplete"}')
    assert outcome.ended_by == "the task was stopped"


def test_an_oversized_result_is_none_and_said() -> None:
    program = LOG.format(f"'x' * {MAX_RESULT_BYTES * 2}")
    outcome = LocalPod(pod(program), IMAGE).run(print)

    assert outcome.result_text is None
    assert outcome.end
    assert (outcome.end.kind, outcome.end.message.split(" than")[0]) == (
        EndKind.INVALID_RESULT,
        "the pod's log: the result in the log is larger",
    )


def test_a_program_that_cannot_start_says_so_in_its_end() -> None:
    end = LocalPod(pod("import not_installed"), IMAGE).run(print).end

    assert end == PodEnd(
        kind=EndKind.NO_RESULT,
        message="the program ended with exit code 1 and left no result: "
        "ModuleNotFoundError: No module named 'not_installed'",
    )


@pytest.mark.parametrize(
    ("python", "message"),
    [
        ("/nowhere/python", "no interpreter at /nowhere/python: make it"),
        ("", "no interpreter with PyTorch .*: make it"),
    ],
)
def test_a_missing_interpreter_says_how_to_get_it(python: str, message: str) -> None:
    with pytest.raises(LocalPodError, match=message):
        LocalPod(pod(""), LocalImage(python=python, pythonpath="", remedy="make it")).run(print)


def _all_end(pids: list[int]) -> bool:
    """A killed process may stay a zombie of its new parent for a moment."""
    for _ in range(2400):
        if all(not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE for pid in pids):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"envFrom": [{"configMapRef": {"name": "nccl"}}]}, "the Pod template's envFrom needs a cluster"),
        (
            {"env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}]},
            "the variable TOKEN of the Pod template gets its value from a cluster",
        ),
    ],
)
def test_a_template_field_that_needs_a_cluster_is_refused_with_a_sentence(fields: dict[str, Any], message: str) -> None:
    made = pod("pass")
    made["spec"]["containers"][0] |= fields
    with pytest.raises(LocalPodError, match=message):
        LocalPod(made, IMAGE).run(print)

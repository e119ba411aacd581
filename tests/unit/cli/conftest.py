"""Commands run in the test's process, with their own standard output and error."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainbench.reporting import plots


@pytest.fixture(autouse=True)
def handlers_of_this_test() -> Iterator[None]:
    """A command that imports Airflow configures its logging, whose handlers keep the command's closed streams."""
    before = list(logging.root.handlers)
    yield
    logging.root.handlers[:] = before


@pytest.fixture
def with_plots() -> None:
    """For tests that need the plots: see `no_plots`."""


@pytest.fixture(autouse=True)
def no_plots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without plots, which take half of a command's time and have tests of their own."""
    if "with_plots" not in request.fixturenames:
        monkeypatch.setattr(plots, "draw", lambda campaign: {})


# Stands for the image: answers every spec with a rate that depends on the node and on the drill only.
FAKE_IMAGE = """
import os, sys, time
from datetime import UTC, datetime
from pathlib import Path
from bench_image.contract.parse import parse_spec
from bench_image.contract.pod_io import SPEC_ENV
from bench_image.contract.result_lines import result_lines
from tests.builders import make_cpu_result
spec = parse_spec(os.environ[SPEC_ENV])
print("phase=warmup step=1/5", flush=True)
if spec.identity.node == "node-hangs":
    Path(os.environ["HANGS"]).write_text(str(os.getpid()))
    time.sleep(3600)
if spec.identity.node == "node-silent":
    sys.exit(3)
rate = 40.0 + int(spec.identity.node[-1]) / 10
rate *= 1 - spec.drill.slowdown_pct / 100 if spec.drill else 1
windows = [rate * 0.999, rate, rate * 1.001]
about = {"seq_length": spec.work.seq_length, "micro_batch_size": spec.work.micro_batch_size}
result = make_cpu_result(spec.identity.node, rate, windows=windows, step_cv_pct=0.3, **about)
now = datetime.now(UTC)
times = {"started_at": now - (result.finished_at - result.started_at), "finished_at": now}
text = result.model_copy(update={"spec": spec, **times}).model_dump_json()
for line in result_lines(text):
    print(line)
"""


@pytest.fixture
def home(no_settings: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, four nodes, and the stand-in program as the image's interpreter."""
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "image" / "program.py"
    program.parent.mkdir()
    program.write_text(FAKE_IMAGE)
    python = program.with_name("python")
    hangs = f"HANGS={tmp_path}/hangs.pid"
    python.write_text(f"#!/bin/sh\n{hangs} PYTHONPATH={os.pathsep.join(sys.path)} exec {sys.executable} {program}\n")
    python.chmod(0o755)
    monkeypatch.setenv("TRAINBENCH_LOCAL_PYTHON", str(python))
    return tmp_path

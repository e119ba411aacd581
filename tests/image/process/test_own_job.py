"""A command of the user's own in real processes: a whole run, and everything that may be wrong with it."""

from __future__ import annotations

import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench_image.contract.own_job import OwnJob, choose_profiles
from bench_image.contract.parse import parse_result
from bench_image.contract.pod_io import HOST_PYTHONPATH_ENV, PROFILES_ENV
from bench_image.contract.result import RunResult, Status
from bench_image.contract.result_sections import HostTelemetry
from bench_image.contract.spec import Identity, Placement, RunSpec
from bench_image.contract.work import Work
from bench_image.process.exit_codes import ProcessExits
from bench_image.process.job_log import JobLog
from bench_image.process.own_job import Heard, result_of
from tests.builders import error_of
from tests.builders.image_processes import environment
from tests.builders.ports import free_port
from tests.builders.warm_processes import WarmProcess
from tests.image.process.test_merge import make_context, make_sample

ROOT = Path(__file__).parents[3]
EXAMPLE = str(ROOT / "docs" / "examples" / "own_job.py")
STEP = "trainbench: step={} seconds=0.25 samples=8 tokens=100 loss=1.5"


def spec_of(command: list[str], job: dict[str, Any], timeout_s: float) -> RunSpec:
    own = OwnJob(command=shlex.join(command), **{"warmup_steps": 0} | job)
    work = Work(
        model="x", recipe="full", device="cpu", micro_batch_size="auto", gradient_checkpointing=False, own_job=own
    )
    identity = Identity(campaign_id="c", run_id="r", group_id="g", node="node-1")
    return RunSpec(identity=identity, work=work, placement=Placement(strategy="own"), timeout_s=timeout_s)


def run(
    command: list[str], where: Path, timeout_s: float = 1500, environ: dict[str, str] | None = None, **job: Any
) -> RunResult:
    """The result of `python -m bench_image`."""
    spec = spec_of(command, {"folder": str(where)} | job, timeout_s)
    return parse_result(program(spec, where, environ or {}).communicate()[0])


def program(spec: RunSpec, folder: Path, environ: dict[str, str], name: str = "out") -> WarmProcess:
    file = folder / "spec.json"
    file.write_text(spec.model_dump_json())
    arguments = ["bench_image", "--spec", str(file), "--output", str(folder / name)]
    return WarmProcess(arguments, environment(**environ), forks=False)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_command_runs_in_its_environment_beside_the_sampler(tmp_path: Path) -> None:
    """Of 9 steps of 8 samples in 0.25 s the first does not count: 32 samples/s, 400 tokens/s."""
    code = (
        "import json, os, time; json.dump(dict(os.environ, cwd=os.getcwd()), open('seen.json', 'w'));"
        f"[(time.sleep(0.25), print({STEP!r}.format(n))) for n in range(9)]"
    )
    result = run(python(code), tmp_path, environ={HOST_PYTHONPATH_ENV: "/mine"}, environment=("A=1",))
    assert result.status is Status.OK, result.error
    speed = result.performance
    assert (speed.samples_per_second, speed.tokens_per_second) == (pytest.approx(32), pytest.approx(400))
    assert (speed.measured_steps, speed.mean_loss, [w.num_steps for w in speed.windows]) == (8, 1.5, [2, 3, 3])
    assert result.chosen is not None
    assert "log profile: trainbench" in result.chosen.why
    assert (result.memory.kind, result.telemetry.host.memory_used_pct is not None) == ("process_rss", True)
    assert (result.missing["probes"], result.performance.mfu_pct) == (
        "a command of the user's own has none of our loop",
        None,
    )
    assert result.startup.launch_s is not None
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert (seen["A"], seen["PYTHONPATH"], seen["cwd"], seen["PYTHONUNBUFFERED"]) == ("1", "/mine", str(tmp_path), "1")
    assert "TRAINBENCH_SPEC" not in seen


@pytest.mark.parametrize(("nodes", "sampled_s", "joules"), [(1, 4.0, 15.625), (2, 4.0, 31.25), (1, 0.0, None)])
def test_energy_is_the_mean_power_over_the_rate(nodes: int, sampled_s: float, joules: float | None) -> None:
    """1,000 J in 4 s are 250 W; at 16 samples/s and 200 tokens/s that is 15.625 J a sample, 1.25 J a token. One of two
    pods does half of them. Lines within a second leave no time that the energy is of.
    """
    spec = spec_of(["train"], {}, 60).changed(placement={"nodes": nodes}, identity={"peers": ("b",) * (nodes - 1)})
    assert spec.work.own_job
    log = JobLog(choose_profiles("trainbench"), spec.work.own_job, nodes)
    for number in range(10):
        log.add(f"trainbench: step={number} seconds=0.5 samples=8 tokens=100", 1000.5 + number / 2)
    heard = Heard(
        log, ProcessExits({0: 0}), make_context("NVIDIA H200"), (make_sample(1000.0),), HostTelemetry(), sampled_s,
        10**9, 1000.0, 1006.0,
    )  # fmt: skip
    telemetry = result_of(spec, heard, {"context": "not read"}).telemetry

    assert (telemetry.energy_per_sample_j, telemetry.energy_per_token_j) == (joules, joules and joules * 16 / 200)


GARBAGE = "import os; os.write(1, bytes(range(256)) * 4000)"
BAD = {
    "not there": (["nope"], Status.ERROR, "ContractError", "the command 'nope' was not found"),
    "exits 0 without a step": (["echo", "hello"], Status.ERROR, "no_step", "last lines:\nhello"),
    "too few steps": (["echo", STEP.format(1)], Status.ERROR, "no_step", "trainbench 1), at least 2 must follow"),
    "exits 3": (["sh", "-c", "echo why >&2; exit 3"], Status.ERROR, "exit_code", "exit code 3; last lines:\nwhy"),
    "out of memory": (
        ["sh", "-c", "echo torch.OutOfMemoryError: CUDA out of memory; exit 1"],
        Status.OOM, "OutOfMemoryError", "exit code 1",
    ),
    "killed": (["sh", "-c", "kill -9 $$"], Status.ERROR, "SIGKILL", "killed by SIGKILL; most likely the kernel's"),
    "garbage": (python(GARBAGE), Status.ERROR, "no_step", "no line of a step"),
    "a line of 10 MB": (python("print('y' * 10_000_000)"), Status.ERROR, "no_step", " ..."),
    "a million lines": (
        python("for n in range(1_000_000): print('a line')"), Status.ERROR, "no_step", "last lines:\na line",
    ),
    "impossible times": (
        python("for n in range(9): print('trainbench: step=%d seconds=9999' % n)"),
        Status.ERROR, "broken_figures", "last lines",
    ),
    "no loss": (
        python("for n in range(9): print('trainbench: step=%d seconds=0.001 loss=nan' % n)"),
        Status.INVALID_LOSS, "invalid_loss", "NaN",
    ),
    "no folder": (["true"], Status.ERROR, "ContractError", "job_folder /no/folder is no folder here"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_command_is_a_failed_run_that_says_why(name: str, tmp_path: Path) -> None:
    command, status, kind, sentence = BAD[name]
    result = run(command, tmp_path, **({"folder": "/no/folder"} if name == "no folder" else {}))
    assert (result.status, error_of(result).kind) == (status, kind)
    assert sentence in error_of(result).message
    assert len(result.model_dump_json()) < 50_000


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """One of its processes is in a session of its own, as torchrun's are, and ignores SIGTERM."""
    code = (
        "import os, signal, time\n"
        "if os.fork() == 0:\n    os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "else:\n    signal.signal(signal.SIGTERM, lambda *_: (print('a long traceback'), os._exit(1)))\n"
        f"    print({STEP.format(7)!r})\n"
        "open(f'pid-{os.getpid()}', 'w').close()\ntime.sleep(3600)"
    )
    result = run(python(code), tmp_path, timeout_s=10)
    assert result.status is Status.TIMEOUT
    first, *last_lines = error_of(result).message.splitlines()
    assert first.endswith(
        "after timeout_s 10 and was ended at step 7: raise it, or let it make fewer steps; last lines:"
    )
    assert last_lines == [STEP.format(7)]  # not what it answered to our signal
    pids = [int(path.name.partition("-")[2]) for path in tmp_path.glob("pid-*")]
    assert len(pids) == 2
    assert not [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


def test_what_a_command_leaves_behind_is_ended_after_it(tmp_path: Path) -> None:
    """A daemon that keeps the command's output open neither lives on nor holds the run up."""
    result = run(["sh", "-c", "setsid sleep 3600 & echo $! > pid"], tmp_path)
    assert error_of(result).kind == "no_step"
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not psutil.pid_exists(pid)


def test_torchrun_joins_the_pods_of_two_nodes(tmp_path: Path) -> None:
    """The shipped example: the log of node rank 0 has steps of 2 x 8 samples, the other pod is well without any."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "{nodes}", "--node-rank", "{node_rank}",
               "--nproc-per-node", "{gpus}", "--master-addr", "{master_addr}", "--master-port", "{master_port}",
               EXAMPLE, "--steps", "4"]  # fmt: skip
    spec = spec_of(command, {"folder": str(tmp_path)}, 1500)
    spec = spec.changed(placement={"nodes": 2}, identity={"peers": ("node-2",)})
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    pods = [program(spec, tmp_path, meeting | {"NODE_RANK": rank}, rank) for rank in "01"]
    first, second = (parse_result(pod.communicate()[0]) for pod in pods)
    assert [(result.status, result.error) for result in (first, second)] == [(Status.OK, None)] * 2
    assert first.chosen is not None
    assert (first.chosen.micro_batch_size, first.performance.measured_steps) == (16, 3)
    assert second.performance.samples_per_second is None
    assert "no line of a step" in second.missing["performance.samples_per_second"]


def test_profiles_of_the_installation_are_read_too(tmp_path: Path) -> None:
    text = "[[profile]]\nname = 'mine'\nsource = 'x'\nmarks = ['S']\nstep = 'S(\\d+)'\nseconds = 't=([\\d.]+)'"
    command = python("for n in range(5): print('S%d t=0.01' % n)")
    result = run(command, tmp_path, environ={PROFILES_ENV: text}, profile="mine")
    assert result.status is Status.OK, result.error
    assert result.performance.samples_per_second == pytest.approx(100)

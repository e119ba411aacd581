"""Steps that the host launches kernel by kernel, by programs of several days on one GPU, by turns.

    python3 studies/host_launch.py OUT --program DAY=FOLDER ... [--order DAY:CASE ...]

Its python must hold the training stack and DeepSpeed. FOLDER holds `bench_image` of a commit (`git archive COMMIT bench_image`).
Tier A, full, 1 x 2048, accumulation 4, tuned. Cases: `zero2`, and `ddp` without a CUDA graph, as the only rank of their group, so
without communication; `single` without a CUDA graph; each is the program's own worker, in a process of its own. `watch`: zero2 with the
watch of the ranks, which a group of one has not. `host`: what a launch of an empty kernel, and Python, take here.
OUT/steps.json gets a row for each run; `+` after a case also samples what the host does, and records two steps.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

WORK = {
    "model": "tier-a", "recipe": "full", "preset": "tuned", "micro_batch_size": 1, "gradient_accumulation_steps": 4,
    "seq_length": 2048, "optimizer": "adamw_torch", "gradient_checkpointing": False, "device": "cuda",
}  # fmt: skip
TOKENS_PER_STEP = 4 * 2048
WARM_UP = {"zero2": 20, "watch": 20, "ddp": 10, "single": 2}  # ddp and single: too short for a CUDA graph
EXTRA_STEPS = 25
SAMPLE_EVERY_S = 0.003


def specs_of(case: str) -> list[str]:
    """The spec in each form that the programs read."""
    strategy = "zero2" if case == "watch" else case
    identity = {"campaign_id": "host", "run_id": "host", "group_id": "host", "node": "node-1"}
    placement = {"strategy": strategy, "gpus_per_node": 1 if case == "single" else 2}
    measured = {"warmup_steps": WARM_UP[case], "measured_steps": 25, "max_measured_steps": 25, "repeats": 3}
    others = {"timeout_s": 120.0, "telemetry_interval_s": 0.2}
    nested = {"identity": identity, "work": WORK, "placement": placement, "measurement": measured} | others
    return [json.dumps(spec) for spec in (nested, identity | WORK | placement | measured | others)]


def run_case(case: str, output: Path, *, extra: bool) -> int:
    """Runs the program's worker in this process, alone in its group."""
    import torch

    properties = torch.cuda.get_device_properties
    torch.cuda.get_device_properties = lambda device=None: properties(0 if isinstance(device, int) else device)
    try:
        from bench_image.process import worker
    except ModuleNotFoundError:
        from bench_image import rank as worker
    for text in specs_of(case):
        try:
            worker.parse_spec(text)
        except Exception as error:
            print(f"{case}: {error}", file=sys.stderr)
        else:
            os.environ[worker.SPEC_ENV] = text
    os.environ[worker.OUTPUT_DIR_ENV] = str(output)
    if case == "watch":
        watch_alone()
    if extra:
        step_class = class_of_step()
        close = step_class.close

        def recorded_close(step: Any) -> None:
            (output / "extra.json").write_text(json.dumps(look_at(step)))
            close(step)

        step_class.close = recorded_close
    return worker.main()


def class_of_step() -> Any:
    try:
        from bench_image.training.train_step import TrainStep as Step
    except ModuleNotFoundError:
        try:
            from bench_image.training.loop import Stepper as Step
        except ModuleNotFoundError:
            from bench_image.loop import Stepper as Step
    return Step


def watch_alone() -> None:
    from bench_image.parallel.rank_watch import RankWatch
    from bench_image.process import phases

    join = phases.join_group

    def joined(spec: Any) -> Any:
        group = join(spec)
        RankWatch(group, ["rank 0 (node-1)"], lambda hang: print(hang, file=sys.stderr))
        return group

    phases.join_group = joined


def look_at(step: Any) -> dict[str, Any]:
    """What the host does in some steps, by samples of the stacks of its threads; and two steps by torch's profiler."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    leaves: Counter[str] = Counter()
    inside: Counter[str] = Counter()
    ended, samples = threading.Event(), 0

    def sample() -> None:
        nonlocal samples
        own = threading.get_ident()
        while not ended.wait(SAMPLE_EVERY_S):
            samples += 1
            for ident, frame in sys._current_frames().items():
                if ident == own:
                    continue
                seen, leaf = set(), True
                while frame:
                    code = frame.f_code
                    name = f"{'/'.join(Path(code.co_filename).parts[-3:])}:{code.co_name}"
                    if leaf:
                        leaves[f"{name}:{frame.f_lineno}"] += 1
                        leaf = False
                    if name not in seen:
                        seen.add(name)
                        inside[name] += 1
                    frame = frame.f_back

    torch.cuda.synchronize()
    cpu, begin = time.process_time(), time.perf_counter()
    for _ in range(EXTRA_STEPS):
        step()
    torch.cuda.synchronize()
    plain_s, plain_cpu_s = time.perf_counter() - begin, time.process_time() - cpu
    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    begin = time.perf_counter()
    for _ in range(EXTRA_STEPS):
        step()
    torch.cuda.synchronize()
    sampled_s = time.perf_counter() - begin
    ended.set()
    sampler.join()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recording:
        begin = time.perf_counter()
        step()
        step()
        torch.cuda.synchronize()
        profiled_s = time.perf_counter() - begin
    kernels, busy, host = Counter(), Counter(), Counter()
    for event in recording.profiler.kineto_results.events():
        on_gpu = event.device_type() == torch.autograd.DeviceType.CUDA
        if on_gpu and event.duration_ns():
            kernels[event.name()[:80]] += 1
            busy[event.name()[:80]] += event.duration_ns()
        elif event.name().startswith(("cuda", "cu")):
            host[event.name()] += 1
    operations = sorted(recording.key_averages(), key=lambda each: -each.self_cpu_time_total)[:40]
    return {
        "plain_ms_per_step": 1e3 * plain_s / EXTRA_STEPS,
        "plain_cpu_ms_per_step": 1e3 * plain_cpu_s / EXTRA_STEPS,
        "sampled_ms_per_step": 1e3 * sampled_s / EXTRA_STEPS,
        "samples": samples,
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "leaves": leaves.most_common(60),
        "inside": inside.most_common(120),
        "profiled_ms_per_step": 1e3 * profiled_s / 2,
        "kernels_per_step": sum(kernels.values()) / 2,
        "busy_ms_per_step": sum(busy.values()) / 2e6,
        "kernels": [(name, count / 2, busy[name] / 2e6) for name, count in kernels.most_common(25)],
        "longest": [(name, kernels[name] / 2, ns / 2e6) for name, ns in busy.most_common(15)],
        "driver_calls": [(name, count / 2) for name, count in host.most_common(25)],
        "operations": [(each.key[:80], each.count / 2, each.self_cpu_time_total / 2e3) for each in operations],
    }


def host_speed() -> dict[str, Any]:
    """Microseconds per launch of a small kernel, and per million additions of Python; the fastest of five."""
    import torch

    x = torch.ones(8, device="cuda")
    launches, python = [], []
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(20_000):
            x.add_(1)
        launches.append((time.perf_counter() - begin) / 20_000 * 1e6)
        torch.cuda.synchronize()
        begin, total = time.perf_counter(), 0
        for number in range(1_000_000):
            total += number
        python.append((time.perf_counter() - begin) * 1e6)
    return {"launch_us": min(launches), "million_additions_us": min(python), "launches_us": launches}


def run_apart(program: str, folder: Path, case: str, output: Path, *, extra: bool) -> dict[str, Any]:
    """One run in a process of its own; its row."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    environ = {
        "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore",
        "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1", "DS_ACCELERATOR": "cuda", "OMP_NUM_THREADS": "1",
        "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
    }  # fmt: skip
    paths = [str(folder), *[path for path in os.environ.get("PYTHONPATH", "").split(":") if "site" in path]]
    output.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(Path(__file__).resolve()), str(output), "--case", case + "+" * extra]
    begin = time.monotonic()
    with (output / "log").open("wb") as log:
        done = subprocess.run(
            command, env=os.environ | environ | {"PYTHONPATH": ":".join(paths)}, cwd=folder, stdout=log,
            stderr=subprocess.STDOUT, check=False, timeout=150,
        )  # fmt: skip
    row: dict[str, Any] = {"program": program, "case": case, "seconds": round(time.monotonic() - begin, 1)}
    if (output / "host.json").exists():
        return row | json.loads((output / "host.json").read_text())
    report = output / "rank-0.json"
    if done.returncode or not report.exists():
        return row | {"error": (output / "log").read_text()[-3000:]}
    told = json.loads(report.read_text())
    step_s = [window["step_times_s"] for window in told["windows"]]
    row |= {
        "tokens_per_second": [TOKENS_PER_STEP * len(window) / sum(window) for window in step_s],
        "median_ms": [1e3 * statistics.median(window) for window in step_s],
        "host": told["host"], "chosen": told["chosen"], "startup": told["startup"], "memory": told["memory"],
        "step_times_s": step_s,
    }  # fmt: skip
    if (output / "extra.json").exists():
        row["extra"] = json.loads((output / "extra.json").read_text())
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("--program", action="append", default=[], metavar="DAY=FOLDER")
    parser.add_argument("--order", nargs="+", default=[], metavar="DAY:CASE")
    parser.add_argument("--begin-within-s", type=float, default=1e9)
    parser.add_argument("--case", help="this case alone, in this process")
    arguments = parser.parse_args()
    if arguments.case == "host":
        (arguments.output / "host.json").write_text(json.dumps(host_speed()))
        return 0
    if arguments.case:
        return run_case(arguments.case.rstrip("+"), arguments.output, extra=arguments.case.endswith("+"))
    programs = {name: Path(folder).resolve() for name, _, folder in (each.partition("=") for each in arguments.program)}
    arguments.output.mkdir(parents=True, exist_ok=True)
    steps, last_begin = arguments.output / "steps.json", time.monotonic() + arguments.begin_within_s
    rows = json.loads(steps.read_text()) if steps.exists() else []
    for each in arguments.order:
        if time.monotonic() > last_begin:
            print(f"no time for {each}", flush=True)
            continue
        program, _, case = each.partition(":")
        folder = Path(tempfile.mkdtemp())
        rows.append(run_apart(program, programs[program], case.rstrip("+"), folder, extra=case.endswith("+")))
        steps.write_text(json.dumps(rows))
        shown = {name: rows[-1].get(name) for name in ("median_ms", "launch_us", "million_additions_us", "error")}
        print(
            f"{each}, {rows[-1]['seconds']} s: { {name: value for name, value in shown.items() if value} }", flush=True
        )
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

"""Small models under `tuned` beside a plain loop (plain_loops.py), by turns on one GPU; then whole runs of the program.

    PYTHONPATH=. python3 studies/measure_small.py OUT     -> OUT/turns.json, OUT/runs/<run>/result.json
    PYTHONPATH=. python3 studies/measure_small.py OUT --only runs

Each job of each program is a process of its own. All compile at the same time; then each has the GPU to itself for
its turn, ours and the loop one after the other, in two rounds. A last turn of ours is recorded by torch's profiler. The
whole runs come one after the other; the next one imports its libraries, on the CPU, while a run's last windows go on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench_image.contract.flops import lora_targets
from bench_image.contract.model_shapes import EncoderDecoderShape, shape_of
from bench_image.contract.parse import parse_spec
from bench_image.contract.pod_io import OUTPUT_DIR_ENV, SPEC_ENV
from bench_image.contract.spec import Identity, Measurement, Placement, RunSpec
from bench_image.contract.work import AUTO, Lora, Quantisation, Work
from bench_image.process.exit_codes import ProcessExits
from bench_image.process.merge import merge
from bench_image.process.rank_report import read_reports
from bench_image.process.supervisor import GROWING

WIDE = EncoderDecoderShape(
    family="encoder-decoder", hidden_size=512, intermediate_size=2048, num_encoder_layers=6, num_decoder_layers=6,
    num_heads=8,
)  # fmt: skip
# Kind, samples, tokens of a sample (source plus target), steps of a turn.
JOBS: Mapping[str, tuple[str, int, int, int]] = {
    "gpt2-full-8x1024": ("gpt2", 8, 1024, 60),
    "gpt2-full-64x1024": ("gpt2", 64, 1024, 8),
    "gpt2-medium-full-8x1024": ("gpt2-medium", 8, 1024, 25),
    "gpt2-lora-8x1024": ("gpt2-lora", 8, 1024, 60),
    "encoder-decoder-64x256": ("encoder-decoder", 64, 256, 300),
    "encoder-decoder-32x1024": ("encoder-decoder", 32, 1024, 200),
    "encoder-decoder-512-32x512": ("encoder-decoder-512", 32, 512, 80),
    "tier-a-full-1x2048": ("tier-a", 1, 2048, 80),
    "tier-b-full-4x2048": ("tier-b", 4, 2048, 6),
}
LARGE = {
    "lora-8x2048": ("mistral-7b-lora", 8, 2048), "qlora-8x512": ("mistral-7b-qlora", 8, 512),
    "full-8x2048": ("mistral-7b", 8, 2048),
}  # fmt: skip
# Runs as on a smaller GPU: torch may take so many GiB, and the program chooses what to checkpoint.
LIMITED = {
    "lora-8x2048-of-80-gib": ("lora-8x2048", 80), "lora-8x2048-of-48-gib": ("lora-8x2048", 48),
    "qlora-8x512-of-24-gib": ("qlora-8x512", 24),
}  # fmt: skip
# Large jobs with other settings.
OTHERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "users-qlora-8x512": (
        "qlora-8x512", {"preset": "as_users_run", "optimizer": "paged_adamw_8bit", "gradient_checkpointing": True}
    ),
    "lora-8x2048-auto": ("lora-8x2048", {"gradient_checkpointing": AUTO}),
    "full-8x2048-fp8": ("full-8x2048", {"precision": "fp8"}),
    "lora-8x2048-fp8": ("lora-8x2048", {"precision": "fp8"}),
}  # fmt: skip
WARM_UP, PROFILED = 10, 2
LARGEST = ("gpt2-full-64x1024", "tier-b-full-4x2048")  # turns of their own: a GPU cannot hold all jobs at once


def spec_of(kind: str, batch: int, tokens: int, run: str, **measurement: Any) -> RunSpec:
    """The job under `tuned`."""
    model = kind.removesuffix("-512").removesuffix("-qlora").removesuffix("-lora")
    fields: dict[str, Any] = {
        "model": model, "recipe": "full", "preset": "tuned", "optimizer": "adamw_torch", "micro_batch_size": batch,
        "seq_length": tokens // 2 if model == "encoder-decoder" else tokens, "gradient_checkpointing": False,
    }  # fmt: skip
    if kind == "encoder-decoder-512":
        fields["dimensions"] = WIDE
    if kind.endswith("lora"):
        fields |= {"recipe": "lora", "lora": Lora(targets=lora_targets(shape_of(model), "all"))}
    if kind.endswith("qlora"):
        fields |= {"recipe": "qlora", "quantisation": Quantisation()}
    return RunSpec(
        identity=Identity(campaign_id="small", run_id=run, group_id="small", node="h200-1"),
        work=Work(**fields),
        placement=Placement(strategy="single", gpus_per_node=1),
        measurement=Measurement(**{"warmup_steps": WARM_UP} | measurement),
        timeout_s=120.0,
    )


def program_step(name: str) -> tuple[Callable[[], Any], Callable[[], dict[str, Any]]]:
    """The program's step, and what there is to say about it after the warm-up."""
    import torch

    from bench_image.model.build import build
    from bench_image.parallel.process_group import ProcessGroup
    from bench_image.training.execution import describe_execution
    from bench_image.training.train_step import TrainStep

    kind, batch, tokens, *_ = JOBS[name]
    device = torch.device("cuda", 0)
    spec = spec_of(kind, batch, tokens, name)
    step = TrainStep(spec, build(spec, device), ProcessGroup(device))
    return step, lambda: {"execution": describe_execution(step), "spec": spec.model_dump(mode="json")}


def serve(name: str, program: str) -> None:
    """One process: compiles, reports, and makes a turn for each line that it reads."""
    import torch

    kind, batch, tokens, steps = JOBS[name]
    begin = time.perf_counter()
    if program == "loop":
        from studies.plain_loops import loop

        step, about = loop(kind, batch, tokens), dict[str, Any]
    else:
        step, about = program_step(name)
    losses = [step().item() for _ in range(WARM_UP)]
    torch.cuda.synchronize()
    ready_s, peak_gb = time.perf_counter() - begin, torch.cuda.max_memory_allocated() / 1e9
    say(ready_s=ready_s, peak_gb=peak_gb, losses=losses, **about())
    for line in sys.stdin:
        if line.strip() == "profile":
            from studies.profile_step import kernel_times

            say(profile=kernel_times(step, PROFILED))
            continue
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        say(tokens_per_s=batch * tokens * steps / (time.perf_counter() - begin))


def say(**fields: Any) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def heard(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The process's next report; raises RuntimeError when it ends instead. Its libraries may print other lines."""
    assert process.stdout
    for line in process.stdout:
        if line.startswith("{"):
            report: dict[str, Any] = json.loads(line)
            return report
    raise RuntimeError(f"{process.args!r} ended")


def told(process: subprocess.Popen[str], word: str) -> dict[str, Any]:
    assert process.stdin
    process.stdin.write(word + "\n")
    process.stdin.flush()
    return heard(process)


def turns(output: Path) -> None:
    """Measures all JOBS by turns, and writes turns.json."""
    rows: list[dict[str, Any]] = []
    for names in ([name for name in JOBS if name not in LARGEST], *([name] for name in LARGEST)):
        rows += turns_of(names, output)
        (output / "turns.json").write_text(json.dumps(rows, indent=1))
    for row in rows:
        print(row["job"], row["program"], [round(rate) for rate in row["tokens_per_s"]], round(row["peak_gb"], 2))


def turns_of(names: Sequence[str], output: Path) -> list[dict[str, Any]]:
    """The reports of these jobs' programs, all of which are in the GPU's memory at once."""
    threads = max(1, (os.cpu_count() or 1) // (2 * len(names)))
    environment = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": str(threads), "OMP_NUM_THREADS": "2"}
    processes = {
        (name, program): subprocess.Popen(
            [sys.executable, __file__, str(output), "--serve", name, program], text=True,
            env=environment | (GROWING if program == "tuned" else {}),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=(output / f"{name}-{program}.log").open("w"),
        )
        for name in names for program in ("tuned", "loop")
    }  # fmt: skip
    reports: dict[tuple[str, str], dict[str, Any]] = {}
    for key, process in processes.copy().items():
        try:
            reports[key] = heard(process) | {"tokens_per_s": []}
        except RuntimeError as error:  # its log says why; the others go on
            print(error)
            del processes[key]
    for _ in range(2):
        for key, process in processes.items():
            told(process, "warm up")  # clocks, after the others' turns
            reports[key]["tokens_per_s"].append(told(process, "turn")["tokens_per_s"])
    for (name, program), process in processes.items():
        if program == "tuned":
            reports[name, program] |= told(process, "profile")
        process.kill()
        process.wait()
    return [{"job": name, "program": program} | report for (name, program), report in reports.items()]


def planned() -> Iterator[RunSpec]:
    """Each whole run."""
    window = {"measured_steps": 10, "max_measured_steps": 200, "max_window_s": 1.5, "repeats": 3}
    for name, (kind, batch, tokens, *_) in JOBS.items():
        yield spec_of(kind, batch, tokens, name, **window)
    window |= {"measured_steps": 3, "max_window_s": 3.0, "warmup_steps": 4}
    for name, job in LARGE.items():
        yield spec_of(*job, name, **window)
    for name, (job_name, changes) in OTHERS.items():
        yield spec_of(*LARGE[job_name], name, **window).changed(work=dict(changes))
    for name, (job_name, _) in LIMITED.items():
        yield spec_of(*LARGE[job_name], name, **window).changed(work={"gradient_checkpointing": AUTO})


def limited(folder: Path) -> None:
    """A whole run in this process, in which torch may take part of the GPU's memory only."""
    import torch

    from bench_image.process import worker

    gib = LIMITED[folder.name][1]
    torch.cuda.set_per_process_memory_fraction(gib * 2**30 / torch.cuda.get_device_properties(0).total_memory)
    text, started_at = (folder / "spec.json").read_text(), datetime.now(UTC)
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", SPEC_ENV: text, OUTPUT_DIR_ENV: str(folder)}
    codes = {0: worker.main()}
    result = merge(parse_spec(text), read_reports(folder), ProcessExits(codes), started_at, datetime.now(UTC))
    (folder / "result.json").write_text(result.model_dump_json(indent=1))


def whole_runs(output: Path, names: Sequence[str] = ()) -> None:
    previous: subprocess.Popen[bytes] | None = None
    specs = {spec.identity.run_id: spec for spec in planned()}
    for spec in [specs[name] for name in names or specs]:
        folder = output / "runs" / spec.identity.run_id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "spec.json").write_text(spec.model_dump_json(indent=1))
        command = [sys.executable, "-m", "bench_image", "--spec", str(folder / "spec.json"), "--output", str(folder)]
        if folder.name in LIMITED:
            command = [sys.executable, __file__, str(folder), "--limited"]
        with (folder / "log").open("wb") as log:
            environment = os.environ | (GROWING if folder.name in LIMITED else {})
            run = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        if previous:
            previous.wait()
        while run.poll() is None and "window" not in (folder / "log").read_text():
            time.sleep(0.05)
        previous = run
    if previous:
        previous.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("--only", choices=("turns", "runs"))
    parser.add_argument("--runs", nargs="*", default=(), metavar="RUN", help="these runs alone")
    parser.add_argument("--serve", nargs=2, metavar=("JOB", "PROGRAM"), help=argparse.SUPPRESS)
    parser.add_argument("--limited", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.limited:
        limited(arguments.output)
        return
    if arguments.serve:
        serve(*arguments.serve)
        return
    arguments.output.mkdir(parents=True, exist_ok=True)
    if arguments.only != "runs":
        turns(arguments.output)
    if arguments.only != "turns":
        whole_runs(arguments.output, arguments.runs)


if __name__ == "__main__":
    main()

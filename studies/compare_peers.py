"""The same LoRA or QLoRA job by `tuned`, by TRL with Liger kernels and torch.compile, and by Unsloth, turn by turn.

Every program has a process of its own, which waits on the GPU while the others have their turn, so that A B C A B C
needs three starts; `--restart` ends a program after each turn, where the GPU lacks the memory for all at once. All
train on the same weights, adapters and tokens in the same order. A program that fails has its error in the result,
which is written again after each turn: what was measured before the study is killed is kept.

    python3 studies/compare_peers.py --recipe qlora --seq-length 512 --weights W --unsloth-site U --output qlora.json
    python3 studies/compare_peers.py --recipe lora --seq-length 2048 --restart tuned --weights W --unsloth-site U \
      --output lora.json
    python3 studies/compare_peers.py --recipe lora --seq-length 2048 --memory-gib 80 --restart tuned unsloth \
      --programs tuned unsloth --weights W --unsloth-site U --output lora-of-80-gib.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_image.contract.model_shapes import shape_of
from bench_image.data.atomic_file import write_atomic
from peer_programs import PROGRAMS, tuned_spec
from peer_turns import MARK, Job

HERE = Path(__file__).resolve().parent
QUIET = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "UNSLOTH_DISABLE_STATISTICS": "1"}
SKIPPED = 2  # steps at the beginning of a turn that are not counted: memory is taken again, the GPU was idle
BEGAN = time.monotonic()

Answer = dict[str, Any]


class Program:
    """A program's process and what it reported. After an error it takes part no more."""

    def __init__(self, name: str, job: Job, logs: Path, *, site: str | None, restarts: bool, limit_s: float) -> None:
        self.name, self.job, self.restarts, self.limit_s = name, job, restarts, limit_s
        self.starts: list[Answer] = []
        self.first_turns: list[Answer] = []
        self.turns: list[Answer] = []
        self.error: str | None = None
        self._log = (logs / f"{name}.log").open("w")
        self._job_file = logs / f"{name}.json"
        folders = [site or "", str(HERE), str(HERE.parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        path = os.pathsep.join(str(Path(folder).resolve()) for folder in folders if folder)  # it runs in another folder
        self._environment = {**os.environ, **QUIET, "PYTHONPATH": path}
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        job = self.job
        if self.restarts:  # one turn, recorded if it is the last of all
            is_last = len(self.turns) == job.num_turns - 2
            job = job._replace(num_turns=2, profiled=job.profiled and is_last)
        self._job_file.write_text(json.dumps(job._asdict()))
        command = [sys.executable, str(HERE / "peer_programs.py"), self.name, str(self._job_file)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            cwd=tempfile.mkdtemp(), env=self._environment,
        )  # fmt: skip

    def first_turn(self) -> None:
        """Waits until the program is ready, and lets it compile and warm up."""
        self._keep(self.starts)
        self._turn(self.first_turns)

    def turn(self) -> None:
        if self.restarts and not self.error:
            self.start()
            self.first_turn()
        self._turn(self.turns)
        if self.restarts:
            self.end()

    def end(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def result(self) -> dict[str, Any]:
        return {"starts": self.starts, "first_turns": self.first_turns, "turns": self.turns, "error": self.error}

    def _turn(self, answers: list[Answer]) -> None:
        if self.error or not self._process or not self._process.stdin:
            return
        try:
            self._process.stdin.write("go\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: its last report says why
        self._keep(answers)

    def _keep(self, answers: list[Answer]) -> None:
        """Adds the program's next report to `answers`, or sets `error`."""
        if self.error:
            return
        answer = self._next_report()
        self.error = answer.get("error")
        if not self.error:
            answers.append(answer)
        print(f"{time.monotonic() - BEGAN:.0f} s: {self.name}: {summary(answer)}", flush=True)

    def _next_report(self) -> Answer:
        assert self._process
        assert self._process.stdout
        timer = threading.Timer(self.limit_s, self._process.kill)
        timer.start()
        try:
            for line in self._process.stdout:
                if line.startswith(MARK):
                    answer: Answer = json.loads(line.removeprefix(MARK))
                    return answer
                self._log.write(line)
        finally:
            timer.cancel()
        return {"error": f"the process ended without a report, or was killed after {self.limit_s:.0f} s"}


def summary(answer: Answer) -> str:
    """A report in a few words."""
    if "step_s" not in answer:
        return answer.get("error") or f"ready after {answer['ready_s']:.1f} s"
    first_s, *others_s = answer["step_s"]
    return f"first step {first_s:.2f} s, median of the others {statistics.median(others_s or [first_s]):.4f} s"


def save_checkpoint(job: Job) -> None:
    """Writes random weights of the job's model to its folder, with a tokenizer, which the trainers want to see."""
    import torch
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    from bench_image.model.architectures import skeleton
    from bench_image.model.init_weights import init_weights, random_weights, rebuild_buffers

    shape = tuned_spec(job).work.shape
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = skeleton(shape, torch.bfloat16)
    init_weights(model, device, random_weights(seed=0))
    rebuild_buffers(model, device)
    model.save_pretrained(job.weights)
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    words = {word: index for index, word in enumerate(("<unk>", "<s>", "</s>", "<pad>"))}
    words |= {f"word{index}": index for index in range(len(words), shape.vocab_size)}
    tokenizer = Tokenizer(models.WordLevel(words, special["unk_token"]))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(job.weights)


def compared(programs: list[Program], num_turns: int, save: Callable[[], None]) -> None:
    """Starts the programs, warms one after the other up, and then gives each its turns: A B C A B C. Saves each."""
    resident = [program for program in programs if not program.restarts]
    try:
        for program in resident:
            program.start()
        for program in resident:
            program.first_turn()
            save()
        for _ in range(num_turns):
            for program in programs:
                program.turn()
                save()
    finally:
        for program in programs:
            program.end()


def save_results(output: Path, job: Job, programs: list[Program]) -> None:
    """Without the folder of the weights, which is a path of this machine."""
    job_fields = {name: value for name, value in job._asdict().items() if name != "weights"}
    results = {program.name: program.result() for program in programs}
    write_atomic(output, json.dumps({"job": job_fields, "programs": results}, indent=1))


def rate(job: Job, turn: Answer) -> float:
    """By the median step: the host delays single ones."""
    return job.tokens_per_step / statistics.median(turn["step_s"][SKIPPED:])


def print_table(job: Job, programs: list[Program]) -> None:
    print(f"{'program':24}{'tokens/s of each turn':36}{'peak GB':>8}  first and last loss of the first counted turn")
    for program in programs:
        name, result = program.name, program.result()
        turns = [turn for turn in result["turns"] if "profile" not in turn]
        if result["error"] or not turns:
            print(f"{name:24}{(result['error'] or '')[:200]}")
            continue
        rates = ", ".join(f"{rate(job, turn):,.0f}" for turn in turns)
        peak_gb = max(turn.get("peak_allocated_gb", 0) for turn in result["first_turns"] + turns)
        print(f"{name:24}{rates:36}{peak_gb:8.1f}  {turns[0]['losses'][0]:.4f} {turns[0]['losses'][-1]:.4f}")
        for turn in result["turns"]:
            if found := turn.get("profile"):
                classes = {**found["ms_per_step"], "idle": found["idle_ms_per_step"]}
                print(" " * 24 + ", ".join(f"{kind} {ms:.1f}" for kind, ms in classes.items()) + " ms per step")


def parsed(words: list[str] | None = None) -> argparse.Namespace:
    """Ends the process with a sentence where the study could not end well, before anything is started."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", choices=["qlora", "lora"], default="qlora")
    parser.add_argument("--model", default="mistral-7b")
    parser.add_argument("--layers", type=int, help="of the model, for a trial: fewer than it has")
    parser.add_argument("--micro-batch-size", type=int, default=8)
    parser.add_argument("--memory-gib", type=float, help="that torch may take: as on a smaller GPU")
    parser.add_argument("--seq-length", type=int, default=512)
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=["tuned", "trl", "unsloth"])
    parser.add_argument("--restart", nargs="+", choices=PROGRAMS, default=[], help="programs that end after each turn")
    parser.add_argument("--turns", type=int, default=2, help="counted turns of each program")
    parser.add_argument("--steps", type=int, default=20, help="of a turn")
    parser.add_argument("--warm-up", type=int, default=6, help="steps before the first counted turn")
    parser.add_argument(
        "--profile", action="store_true", help="records one more turn of each program by torch's profiler"
    )
    parser.add_argument("--weights", type=Path, required=True, help="folder; made if absent")
    parser.add_argument("--unsloth-site", type=Path, help="folder of packages that only Unsloth's process gets")
    parser.add_argument("--limit-s", type=float, default=180, help="seconds that a start or a turn may take")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args(words)
    if refusal := refused(arguments):
        parser.error(refusal)
    return arguments


def refused(arguments: argparse.Namespace) -> str | None:
    """Why these arguments cannot be compared or kept."""
    site = arguments.unsloth_site
    if "unsloth" in arguments.programs and not (site and (site / "unsloth").is_dir()):
        return f"--unsloth-site {site}: Unsloth needs a folder that holds its packages, beginning with unsloth/"
    try:
        logs_of(arguments.output).mkdir(parents=True, exist_ok=True)
        arguments.output.open("a").close()
    except OSError as error:
        return f"--output {arguments.output} cannot be written: {error.strerror}"
    return None


def logs_of(output: Path) -> Path:
    return output.with_suffix(".logs")


def main() -> None:
    arguments = parsed()
    shape = shape_of(arguments.model)
    if arguments.layers:
        shape = shape.model_copy(update={"num_layers": arguments.layers})
    num_turns = arguments.turns + arguments.profile
    job = Job(
        recipe=arguments.recipe, model=arguments.model, dimensions=shape.model_dump(mode="json"),
        weights=str(arguments.weights.resolve()), micro_batch_size=arguments.micro_batch_size,
        seq_length=arguments.seq_length, first_turn=arguments.warm_up, turn=arguments.steps,
        num_turns=1 + num_turns,
        memory_gib=arguments.memory_gib, profiled=arguments.profile,
    )  # fmt: skip
    if not arguments.weights.exists():
        save_checkpoint(job)
    site = str(arguments.unsloth_site)
    programs = [
        Program(
            name, job, logs_of(arguments.output), site=site if name == "unsloth" else None,
            restarts=name in arguments.restart, limit_s=arguments.limit_s,
        )
        for name in arguments.programs
    ]  # fmt: skip
    compared(programs, num_turns, lambda: save_results(arguments.output, job, programs))
    print_table(job, programs)


if __name__ == "__main__":
    main()

"""How `compare_peers.py` talks with the programs that it compares: the job, and turns of steps on demand.

A program builds the job, reports that it is ready, and makes one turn of steps for each line of its input. Its reports
are lines of its output that begin with MARK, JSON behind it; what its libraries print has no mark.

Nothing here imports torch at the top: Unsloth has to be imported first of all.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

MARK = "@@ "
PACKAGES = (
    "torch", "triton", "transformers", "accelerate", "peft", "bitsandbytes", "trl", "liger-kernel", "unsloth",
    "unsloth_zoo", "xformers", "cut-cross-entropy", "datasets",
)  # fmt: skip


class Job(NamedTuple):
    """The same work for every program. `weights`: a folder with a checkpoint and a tokenizer."""

    recipe: str
    model: str
    dimensions: dict[str, Any]
    weights: str
    micro_batch_size: int
    seq_length: int
    first_turn: int  # steps: compilation, capture, warm-up
    turn: int  # steps of every further turn
    num_turns: int  # with the first
    memory_gib: float | None = None  # that torch may take of the GPU's
    profiled: bool = False  # whether the last turn is recorded by torch's profiler, which slows it down

    @property
    def num_steps(self) -> int:
        return self.first_turn + (self.num_turns - 1) * self.turn

    @property
    def tokens_per_step(self) -> int:
        return self.micro_batch_size * self.seq_length

    def ends_turn(self, steps_done: int) -> bool:
        """Also true of 0 steps: there, too, a turn begins."""
        return steps_done == 0 or (steps_done >= self.first_turn and (steps_done - self.first_turn) % self.turn == 0)


def report(**fields: Any) -> None:
    sys.stdout.write(f"{MARK}{json.dumps(fields)}\n")
    sys.stdout.flush()


def installed() -> dict[str, str]:
    """The version of each package that this process finds."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def mark() -> Any:
    """This moment: an event on the GPU's stream, so that nothing waits for it; on a CPU the clock."""
    import torch

    if not torch.cuda.is_available():
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def seconds_between(marks: Sequence[Any]) -> list[float]:
    """Of each two neighbours; waits for the GPU."""
    import torch

    if not torch.cuda.is_available():
        return [end - begin for begin, end in itertools.pairwise(marks)]
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) / 1e3 for begin, end in itertools.pairwise(marks)]


class Turns:
    """Waits for the parent where a turn begins; times each step; reports where a turn ends."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.losses: list[Any] = []
        self._marks: list[Any] = []
        self._profiler: Any = None

    def step_begins(self, steps_done: int) -> None:
        if self.job.ends_turn(steps_done):
            if not sys.stdin.readline():
                raise SystemExit("the parent has ended")
            if self.job.profiled and steps_done == self.job.num_steps - self.job.turn:
                self._start_profiler()
            self.losses, self._marks = [], [mark()]

    def step_ended(self, steps_done: int) -> None:
        self._marks.append(mark())
        if self.job.ends_turn(steps_done):
            self._report()

    def _start_profiler(self) -> None:
        from torch.profiler import ProfilerActivity, profile

        self._profiler = profile(activities=[ProfilerActivity.CUDA])
        self._profiler.start()

    def _report(self) -> None:
        import torch

        if len(self.losses) != len(self._marks) - 1:
            raise ValueError(
                f"{len(self.losses)} micro-batches in {len(self._marks) - 1} steps: the program accumulates gradients, "
                "which is other work; set its gradient accumulation to 1"
            )
        fields: dict[str, Any] = {"step_s": seconds_between(self._marks)}
        fields["losses"] = [loss.item() for loss in self.losses]
        if self._profiler:
            from profile_step import kernels_by_class

            self._profiler.stop()
            fields["profile"] = kernels_by_class(self._profiler, self.job.turn)
        if torch.cuda.is_available():
            fields["peak_allocated_gb"] = torch.cuda.max_memory_allocated() / 1e9
            fields["peak_reserved_gb"] = torch.cuda.max_memory_reserved() / 1e9
            torch.cuda.empty_cache()  # the others need the room during their turns
        report(**fields)

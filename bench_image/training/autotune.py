"""Decides what the spec leaves to the program: micro-batch size and gradient checkpointing."""

from __future__ import annotations

import contextlib
import gc
import itertools
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from bench_image.contract.memory_estimate import USABLE_SHARE, memory_need_bytes
from bench_image.contract.presets import STEPS_BEFORE_CAPTURE
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import AUTO
from bench_image.model.build import BuiltModel, checkpoint_activations
from bench_image.parallel.process_group import ProcessGroup
from bench_image.training.oom import is_out_of_memory
from bench_image.training.stopwatch import synchronize
from bench_image.training.train_step import TrainStep

SIZES = tuple(2**power for power in range(11))  # micro-batches that 'auto' looks at
TRIED_FOR_SPEED = 3  # the largest that fits, and the next smaller ones
LET_SETTLE, TIMED = STEPS_BEFORE_CAPTURE + 1, 3  # steps of a trial
OPTIMISM = 1.25  # a trial is worth its seconds up to this many times the memory, for the formula may be wrong


class Trial(NamedTuple):
    """Seconds of one step of the slowest rank; None: out of memory."""

    micro_batch_size: int
    step_s: float | None

    @property
    def samples_per_s(self) -> float:
        return self.micro_batch_size / self.step_s if self.step_s else 0.0


Try = Callable[[RunSpec], Trial]


class Choice(NamedTuple):
    """The spec without 'auto', and how it came about."""

    work: RunSpec
    why: str


def autotune(spec: RunSpec, built: BuiltModel, group: ProcessGroup) -> Choice:
    """The work as it will be done; switches the built model's checkpointing on where that was chosen.

    One GPU on its own is asked by trial, unless only checkpointing is open and there is room by far without it. In a
    gang, where one rank out of memory leaves its peers waiting, for independent ranks, which must all do the same work,
    and on the CPU, where it ends the process, the formula decides.
    """
    if spec.micro_batch_size != AUTO and spec.gradient_checkpointing != AUTO:
        return Choice(spec, "as asked")
    clear = clearly_fits(spec, group.memory_bytes())
    if group.may_run_trials and group.device.type == "cuda" and not clear:
        choice = by_trial(spec, group.memory_bytes(), _trials(built, group))
    else:
        choice = by_formula(spec, group.memory_bytes())
    if spec.gradient_checkpointing == AUTO and choice.work.gradient_checkpointing is True:
        checkpoint_activations(built.base)
    return choice


def clearly_fits(spec: RunSpec, memory: int) -> bool:
    """Whether the micro-batch is given and fits without checkpointing even if the formula is `OPTIMISM` times too low:
    a trial of several seconds would find nothing else.
    """
    if spec.micro_batch_size == AUTO or spec.gradient_checkpointing != AUTO:
        return False
    without = spec.model_copy(update={"gradient_checkpointing": False})
    return OPTIMISM * memory_need_bytes(without, memory).total <= USABLE_SHARE * memory


def by_formula(spec: RunSpec, memory: int) -> Choice:
    """The largest micro-batch, rather without checkpointing, whose predicted need fits."""
    have_gb = memory * USABLE_SHARE / 1e9
    for work in _candidates(spec):
        need_gb = memory_need_bytes(work, memory).total / 1e9
        if need_gb <= have_gb:
            return Choice(work, f"{_named(work)}: predicted {need_gb:.1f} GB of {have_gb:.1f} GB usable; not tried")
    why = f"{_named(work)}: nothing fits by prediction ({need_gb:.1f} GB of {have_gb:.1f} GB), this is the least"
    return Choice(work, why)


def by_trial(spec: RunSpec, memory: int, attempt: Try) -> Choice:
    """The largest micro-batch that fits, rather without checkpointing, or a smaller one that trains faster."""
    work = spec
    for _, group in itertools.groupby(_candidates(spec), key=lambda work: work.gradient_checkpointing):
        trials: list[Trial] = []
        for work in group:
            if memory_need_bytes(work, memory).total > OPTIMISM * memory:
                continue
            trial = attempt(work)
            if trial.step_s is not None:
                trials.append(trial)
            if len(trials) == TRIED_FOR_SPEED:
                break
        if trials:
            best = max(trials, key=lambda trial: trial.samples_per_s)
            rates = ", ".join(f"{trial.micro_batch_size}: {trial.samples_per_s:.2f} samples/s" for trial in trials)
            work = work.model_copy(update={"micro_batch_size": best.micro_batch_size})
            return Choice(work, f"{_named(work)}: the fastest of those tried that fit ({rates})")
    return Choice(work, f"{_named(work)}: every trial ran out of memory, this is the least")


def _candidates(spec: RunSpec) -> Iterator[RunSpec]:
    """From what is likely the fastest to what needs least memory."""
    checkpointing = [False, True] if spec.gradient_checkpointing == AUTO else [spec.gradient_checkpointing]
    sizes = SIZES[::-1] if spec.micro_batch_size == AUTO else (spec.micro_batch_size,)
    for checkpoints, size in itertools.product(checkpointing, sizes):
        yield spec.model_copy(update={"gradient_checkpointing": checkpoints, "micro_batch_size": size})


def _named(work: RunSpec) -> str:
    return f"micro-batch {work.micro_batch_size}, checkpointing {'on' if work.gradient_checkpointing else 'off'}"


def _trials(built: BuiltModel, group: ProcessGroup) -> Try:
    checkpointed = False

    def attempt(work: RunSpec) -> Trial:
        nonlocal checkpointed
        if work.gradient_checkpointing is True and not checkpointed:
            checkpoint_activations(built.base)
            checkpointed = True
        try:
            step_s = _step_seconds(work, built, group)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            step_s = None
        for parameter in built.trainable:
            parameter.grad = None
        gc.collect()
        torch.cuda.empty_cache()
        return Trial(work.samples_per_micro_step, step_s)

    return attempt


def _step_seconds(work: RunSpec, built: BuiltModel, group: ProcessGroup) -> float:
    # Each size is compiled for itself, as it would be if it were the only one.
    torch._dynamo.reset()
    with contextlib.closing(TrainStep(work, built, group)) as step:
        for _ in range(LET_SETTLE):
            step()
        synchronize(group.device)
        begin = time.perf_counter()
        for _ in range(TIMED):
            step()
        synchronize(group.device)
    return (time.perf_counter() - begin) / TIMED

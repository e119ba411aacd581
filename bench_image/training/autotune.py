"""Chooses micro-batch size and gradient checkpointing where the spec says 'auto', by formula or by trial."""

from __future__ import annotations

import contextlib
import gc
import itertools
import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from bench_image.contract.memory_estimate import USABLE_SHARE, Candidate, candidates, memory_need_bytes, predicted
from bench_image.contract.preset_switches import STEPS_BEFORE_CAPTURE
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import AUTO
from bench_image.model.build import BuiltModel, checkpoint_activations
from bench_image.parallel.process_group import ProcessGroup
from bench_image.training.oom import is_out_of_memory
from bench_image.training.stopwatch import synchronize
from bench_image.training.train_step import TrainStep

TRIED_FOR_SPEED = 3  # the largest that fits, and the next smaller ones
WARMUP_STEPS, TIMED_STEPS = STEPS_BEFORE_CAPTURE + 1, 3  # of a trial
OPTIMISM = 1.25  # the formula may be wrong by this factor: a larger predicted need is not tried


class Trial(NamedTuple):
    """One tried micro-batch. `step_s`: seconds of one step; None: out of memory."""

    micro_batch_size: int
    step_s: float | None

    @property
    def samples_per_s(self) -> float:
        return self.micro_batch_size / self.step_s if self.step_s else 0.0


RunTrial = Callable[[Candidate], Trial]


class Choice(NamedTuple):
    """The spec without 'auto', how it was chosen, and how many layers are checkpointed if not all are."""

    spec: RunSpec
    why: str
    checkpointed_layers: int = 0


def autotune(spec: RunSpec, built: BuiltModel, group: ProcessGroup) -> Choice:
    """The spec without 'auto'; switches the model's checkpointing on where that was chosen.

    A single GPU decides by trial, unless only checkpointing is open and the run clearly fits without it. The formula
    decides for ranks that communicate, where one rank out of memory would leave the others waiting, for independent
    ranks, which must all do the same work, and on the CPU, where running out of memory ends the process.
    """
    if spec.work.micro_batch_size != AUTO and spec.work.gradient_checkpointing != AUTO:
        return Choice(spec, "as the spec sets it")
    clear = clearly_fits(spec, group.memory_bytes())
    if group.may_run_trials and group.device.type == "cuda" and not clear:
        choice = tried(spec, built, group)
    else:
        choice = by_formula(spec, group.memory_bytes())
    if spec.work.gradient_checkpointing == AUTO and choice.spec.work.gradient_checkpointing is True:
        checkpoint_activations(built.base, choice.checkpointed_layers or None)
    return choice


def tried(spec: RunSpec, built: BuiltModel, group: ProcessGroup) -> Choice:
    """The choice by trial. The trials train the model: weights and random numbers are then as they were before."""
    with torch.random.fork_rng([group.device] if group.device.type == "cuda" else []):
        choice = by_trial(spec, group.memory_bytes(), _trials(built, group))
    built.restore()
    if group.device.type == "cuda":
        torch.cuda.empty_cache()  # what drawing the weights again left, so that it is no part of the run's peak
    return choice


def clearly_fits(spec: RunSpec, memory: int) -> bool:
    """Whether the given micro-batch fits without checkpointing even if the formula is too low by `OPTIMISM`.

    A trial of several seconds would then decide the same. `memory`: bytes of the GPU.
    """
    if spec.work.micro_batch_size == AUTO or spec.work.gradient_checkpointing != AUTO:
        return False
    without = spec.changed(work={"gradient_checkpointing": False})
    return OPTIMISM * memory_need_bytes(without, memory).total <= USABLE_SHARE * memory


def by_formula(spec: RunSpec, memory: int) -> Choice:
    """The first candidate that fits by prediction: if possible without checkpointing, the largest micro-batch."""
    candidate, have_gb = predicted(spec, memory), memory * USABLE_SHARE / 1e9
    need_gb = candidate.need / 1e9
    if need_gb <= have_gb:
        why = f"{candidate}: predicted {need_gb:.1f} GB of {have_gb:.1f} GB usable; not tried"
    else:
        why = f"{candidate}: nothing fits by prediction ({need_gb:.1f} GB of {have_gb:.1f} GB), this is the least"
    return Choice(candidate.spec, why, candidate.checkpointed_layers)


def by_trial(spec: RunSpec, memory: int, run_trial: RunTrial) -> Choice:
    """The fastest of the TRIED_FOR_SPEED largest micro-batches that fit; checkpointing only if none fits without.

    Of a given micro-batch with as few checkpointed layers as fit by prediction, before all are.
    """

    def kind(candidate: Candidate) -> tuple[object, int]:
        return candidate.spec.work.gradient_checkpointing, candidate.checkpointed_layers

    for _, group in itertools.groupby(candidates(spec, memory), key=kind):
        # From the largest down: skip what cannot fit, stop after enough successful trials.
        trials: list[Trial] = []
        for candidate in group:
            if candidate.need > OPTIMISM * memory:
                continue
            trial = run_trial(candidate)
            if trial.step_s is not None:
                trials.append(trial)
            if len(trials) == TRIED_FOR_SPEED:
                break
        if trials:
            best = max(trials, key=lambda trial: trial.samples_per_s)
            rates = ", ".join(f"{trial.micro_batch_size}: {trial.samples_per_s:.2f} samples/s" for trial in trials)
            size = {"micro_batch_size": best.micro_batch_size}
            chosen = candidate._replace(spec=candidate.spec.changed(work=size))
            why = f"{chosen}: the fastest of those tried that fit ({rates})"
            return Choice(chosen.spec, why, chosen.checkpointed_layers)
    return Choice(candidate.spec, f"{candidate}: every trial ran out of memory, this is the least")


def _trials(built: BuiltModel, group: ProcessGroup) -> RunTrial:
    """A function that trains a few steps of a candidate and returns the trial; out of memory is a result."""

    def run_trial(candidate: Candidate) -> Trial:
        if candidate.spec.work.gradient_checkpointing is True:
            checkpoint_activations(built.base, candidate.checkpointed_layers or None)
        try:
            step_s = _step_seconds(candidate.spec, built, group)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            step_s = None
        # Free what the trial allocated, so that the next one starts from the bare model.
        for parameter in built.trainable:
            parameter.grad = None
        gc.collect()
        torch.cuda.empty_cache()
        return Trial(candidate.spec.work.samples_per_micro_step, step_s)

    return run_trial


def _step_seconds(candidate: RunSpec, built: BuiltModel, group: ProcessGroup) -> float:
    """Seconds of one step by wall time, after the warm-up steps."""
    # Compile each size anew, as it would be compiled if it were the only one.
    torch._dynamo.reset()
    with contextlib.closing(TrainStep(candidate, built, group)) as step:
        for _ in range(WARMUP_STEPS):
            step()
        synchronize(group.device)
        begin = time.perf_counter()
        for _ in range(TIMED_STEPS):
            step()
        synchronize(group.device)
    return (time.perf_counter() - begin) / TIMED_STEPS

"""Groups results by node and work: one entry for each node and group, with one value for each metric, and the rates by
which a run is compared: on a CPU those of each window's fast steps, which other programs hardly move.

A program beside a run takes its caches and the other half of its core, so that even the CPU time of equal steps differs
by a third, for seconds or for minutes. A window's lower quartile leaves out what is shorter than the window; what is
longer hits all nodes of a trial alike, because they measure window by window in turn: see `bench_image.parallel.
turnstile` and docs/results/demo-definite-2026-11-24.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

from bench_image.contract.options import Strategy
from bench_image.contract.result import Phase, RankSummary, RunError, RunResult, Status
from bench_image.contract.result_sections import Clock, Performance
from bench_image.contract.step_stats import quantile
from bench_image.contract.work import Device
from trainbench.core.grouping import grouped
from trainbench.core.known_values import known_median
from trainbench.core.natural_order import natural
from trainbench.core.verdicts import Metric
from trainbench.figure_catalogue.run_figures import TEMPERATURE_MEAN_C
from trainbench.judging.noise import MIN_SD, Run
from trainbench.pods.pod_end import NOT_FREE
from trainbench.results.readings import gpu_name

NO_RESULTS = "no-results"  # group_id when no run gave a result


@dataclass(frozen=True)
class GpuPlace:
    """A GPU of a node. On the CPU: a rank, without UUID."""

    index: int
    uuid: str | None

    def order(self) -> tuple[int, str]:
        return self.index, self.uuid or ""


class Key(NamedTuple):
    """The unit that is judged: a node (`gpu` is None), or one GPU of it."""

    node: str
    gpu: GpuPlace | None = None


@dataclass(frozen=True)  # not a pydantic model, which would validate every result again
class NodeRuns:
    """The runs of one node in one group, empty for a missing node. `choice`: the group's usual one. `gpu`: set where
    the runs are those of this GPU alone (see `by_gpu`).
    """

    node: str
    gpu_name: str | None
    runs: tuple[RunResult, ...]
    choice: str | None = None
    gpu: GpuPlace | None = None

    @property
    def key(self) -> Key:
        return Key(self.node, self.gpu)

    def of_rounds(self, wanted: Callable[[int], bool]) -> NodeRuns:
        return replace(self, runs=tuple(run for run in self.runs if wanted(run.spec.identity.round)))

    @cached_property
    def valid(self) -> tuple[RunResult, ...]:
        """The runs that can be compared with those of the other nodes."""
        return tuple(run for run in self.runs if run.status is Status.OK and self._is_usual(run))

    @property
    def strays(self) -> tuple[RunResult, ...]:
        """Good runs with another choice than the group's: they are not compared."""
        return tuple(run for run in self.runs if run.status is Status.OK and not self._is_usual(run))

    def _is_usual(self, run: RunResult) -> bool:
        return self.choice is None or choice_of(run) == self.choice

    @property
    def busy(self) -> tuple[RunResult, ...]:
        """The runs for which the node was not free; they are not judged."""
        return tuple(run for run in self.runs if run.error and run.error.kind in NOT_FREE)

    @property
    def failed(self) -> tuple[RunResult, ...]:
        return tuple(run for run in self.runs if run.status is not Status.OK and run not in self.busy)

    @property
    def is_drill(self) -> bool:
        return any(run.spec.drill for run in self.runs)

    @property
    def on_gpu(self) -> bool:
        return any(run.spec.work.device is Device.CUDA for run in self.runs)

    @cached_property
    def rates(self) -> tuple[Run, ...]:
        """The windows' rates are left out where one of them has no logarithm."""
        found = []
        for run in self.valid:
            rate, windows = judged_rate(run), window_rates(run.performance)
            if len(windows) == 1:  # then only its steps show how it scatters
                windows = _step_rates(run.performance)
            if rate and rate > 0:
                found.append(Run(run.spec.identity.round, rate, windows if all(w > 0 for w in windows) else ()))
        return tuple(found)

    def value(self, metric: Metric) -> float | None:
        """The metric's median over the valid runs; None when no run has it."""
        return known_median(run_figure(run, metric) for run in self.valid)


def run_figure(result: RunResult, metric: Metric) -> float | None:
    """The figure of one run. Temperature: mean over the measured windows, of the hottest GPU."""
    if metric is Metric.SAMPLES_PER_SECOND:
        return result.performance.samples_per_second
    if metric is Metric.MEMORY_GB:
        # the resident set of a process depends on what else the host does: only CUDA's own count is comparable
        gb = result.memory.peak_during_training if result.memory.kind != "process_rss" else None
        return gb if gb is not None and gb > 0 else None  # 0 is no measurement: every model takes memory
    celsius = TEMPERATURE_MEAN_C.value(result)
    return celsius if celsius is not None and celsius > 0 else None  # a sensor that reads 0 reads nothing


def choice_of(result: RunResult) -> str:
    """The settings that a spec may leave to the program, as chosen: "micro-batch 8, checkpointing on"."""
    ran = result.effective_spec.work
    checkpointing = result.chosen.checkpointing if result.chosen else "on" if ran.gradient_checkpointing else "off"
    return f"micro-batch {ran.micro_batch_size}, checkpointing {checkpointing}"


def latest_results(results: Iterable[RunResult]) -> list[RunResult]:
    """Each run once: the result that finished last, at the place of the first.

    Two results of one run would count twice in its node's median and in the noise's degrees of freedom.
    """
    runs = grouped(((r.spec.identity.campaign_id, r.spec.identity.node, r.spec.identity.run_id), r) for r in results)
    # Of equal times the text decides, so that the order does not.
    return [
        of[0] if len(of) == 1 else max(of, key=lambda result: (result.finished_at, result.model_dump_json()))
        for of in runs.values()
    ]


def by_group(
    results: Sequence[RunResult], expected_nodes: Sequence[str]
) -> dict[tuple[str, str | None], list[NodeRuns]]:
    """(group_id, GPU name) -> its nodes in natural order; each group_id holds every expected node.

    A node whose GPU is unknown (missing, or failed early) joins the group's only kind of GPU; of several kinds, a group
    of its own without a GPU name. Two results of one run count once. Raises ValueError for runs over several nodes.
    """
    for run in results:
        if run.spec.placement.nodes != 1:
            raise ValueError(
                f"run '{run.spec.identity.run_id}' spans {run.spec.placement.nodes} nodes: ranks of one synchronous "
                "job share a rate, so it cannot judge a node; pass independent runs with nodes=1 only"
            )
    of_groups = grouped((run.spec.identity.group_id, run) for run in latest_results(results))
    # Within a group of equal work nodes are peers only if they have the same kind of GPU.
    groups: dict[tuple[str, str | None], list[NodeRuns]] = {}
    for group_id, of_group in sorted(of_groups.items()) or [(NO_RESULTS, list[RunResult]())]:
        of_node = grouped((run.spec.identity.node, run) for run in of_group)
        names = {node: next((n for run in runs if (n := gpu_name(run))), None) for node, runs in of_node.items()}
        kinds = {name for name in names.values() if name}
        unknown = next(iter(kinds)) if len(kinds) == 1 else None
        for node in sorted({*of_node, *expected_nodes}, key=natural):
            name = names.get(node) or unknown
            own = sorted(of_node.get(node, ()), key=lambda run: (run.spec.identity.round, run.spec.identity.run_id))
            groups.setdefault((group_id, name), []).append(NodeRuns(node=node, gpu_name=name, runs=tuple(own)))
    with_choice = {}
    for key in sorted(groups, key=lambda key: (key[0], key[1] or "")):
        # Of most nodes, one vote each; ties go to the last in alphabetical order.
        voting = (Counter(map(choice_of, member.valid)) for member in groups[key] if member.valid)
        votes = Counter(choices.most_common(1)[0][0] for choices in voting)
        usual = max(votes, key=lambda choice: (votes[choice], choice), default=None)
        with_choice[key] = [replace(member, choice=usual) for member in groups[key]]
    return with_choice


BLOCKS = 5
FAST = 0.25  # quantile of a window's step times
# Equal processes on a CPU differ by 1.6 % from start to end, with wide tails, and no window within one of them shows it
# (docs/results/demo-definite-2026-11-24).
PROCESS_SD = 0.025


def window_rates(performance: Performance) -> tuple[float, ...]:
    """Samples/s of each window: on a CPU as if each step had taken the window's lower quartile."""
    rates = tuple(window.samples_per_second for window in performance.windows)
    borders = [0, *accumulate(window.num_steps for window in performance.windows)]
    if performance.clock is Clock.WALL or borders[-1] != len(performance.step_times_s):
        return rates
    windows = [performance.step_times_s[begin:end] for begin, end in pairwise(borders)]
    return tuple(
        rate * statistics.fmean(steps) / quantile(steps, FAST) for rate, steps in zip(rates, windows, strict=True)
    )


def _step_rates(performance: Performance) -> tuple[float, ...]:
    """Samples/s of each step; none where a step has no time."""
    rate, steps = performance.samples_per_second, performance.step_times_s
    if not rate or not steps or min(steps) <= 0:
        return ()
    return tuple(rate * statistics.fmean(steps) / step for step in steps)


def judged_rate(result: RunResult) -> float | None:
    """The samples/s by which a run is judged and stored: of independent ranks those of the slowest, because the sum of
    eight hides a slow one. None unless each rank has a rate.
    """
    if result.spec.placement.strategy is not Strategy.INDEPENDENT or len(result.ranks) < 2:
        return _rate(result.performance)
    rates = [_rate(rank.performance) if rank.performance else None for rank in result.ranks]
    known = [rate for rate in rates if rate is not None]
    return min(known) if len(known) == len(rates) else None


def least_sd(result: RunResult) -> float:
    """The standard deviation, as a logarithm, by which equal runs differ at least."""
    return MIN_SD if result.performance.clock is Clock.WALL else PROCESS_SD


def _rate(performance: Performance) -> float | None:
    """The mean of the windows' rates on a CPU: a median would jump between a machine's fast and slow minutes."""
    if performance.clock is Clock.WALL or not performance.windows:
        return performance.samples_per_second
    return statistics.fmean(window_rates(performance))


def rates_in_turns(results: Sequence[RunResult]) -> tuple[tuple[float, ...], ...] | None:
    """The window rates of each run, without what a turn of the machine did to all of them; None for runs that did not
    take turns.

    Window k of a run is divided by the median of all runs' windows k, and multiplied by the median of these medians.
    """
    rates = [window_rates(result.performance) for result in results]
    if len(results) < 2 or len({len(each) for each in rates}) > 1:
        return None
    if not all(result.performance.windows and result.startup.turns_s for result in results):
        return None
    begun = [
        [result.started_at.timestamp() + window.started_s for window in result.performance.windows]
        for result in results
    ]
    if max(starts[0] for starts in begun) >= min(starts[-1] for starts in begun):  # one ended before another began
        return None
    of_turns = [statistics.median(turn) for turn in zip(*rates, strict=True)]
    level = statistics.median(of_turns)
    return tuple(tuple(rate * level / of_turn for rate, of_turn in zip(each, of_turns, strict=True)) for each in rates)


def scatter_of_run(rates: Sequence[float]) -> tuple[float, ...]:
    """Values about the median of a run's windows that scatter as that median does, by the method of batch means.

    Neighbouring windows are alike, blocks of a fifth of the run hardly: the median of the run varies by a fifth of the
    variance of the blocks' medians, so each block's distance from it, as a logarithm, is divided by sqrt(5).
    """
    size = len(rates) // BLOCKS
    if not size:
        return ()
    middle = statistics.median(rates)
    blocks = [statistics.median(rates[i * size : (i + 1) * size]) for i in range(BLOCKS)]
    return tuple(middle * (block / middle) ** (1 / math.sqrt(BLOCKS)) for block in blocks)


def is_split(result: RunResult) -> bool:
    """Whether a result has several independent ranks; False where it failed before it had ranks."""
    spec = result.spec
    return spec.placement.strategy is Strategy.INDEPENDENT and spec.placement.gpus_per_node > 1 and bool(result.ranks)


def gpu_index(result: RunResult, rank: RankSummary) -> int:
    """The index of a rank's GPU on its node: of the GPU that it names, whatever its number."""
    gpus = result.context.gpus if result.context else ()
    local = rank.rank % result.spec.placement.gpus_per_node
    return next((gpu.index for gpu in gpus if gpu.uuid and gpu.uuid == rank.gpu_uuid), local)


def by_gpu(result: RunResult) -> dict[GpuPlace, RunResult]:
    """Each GPU's own run, by index: its rank's figures and status, its own telemetry; host and versions are the node's.

    A GPU whose rank did not report is a failed run. Empty where `is_split` is False.
    """
    if not is_split(result):
        return {}
    gpus = result.context.gpus if result.context else ()
    ranks: dict[GpuPlace, RankSummary | None] = {GpuPlace(gpu.index, gpu.uuid): None for gpu in gpus if gpu.uuid}
    ranks |= {GpuPlace(gpu_index(result, rank), rank.gpu_uuid): rank for rank in result.ranks}
    return {place: _of_rank(result, place.uuid, ranks[place]) for place in sorted(ranks, key=GpuPlace.order)}


def judged_units(members: Sequence[NodeRuns]) -> list[NodeRuns]:
    """The units to judge: nodes, and of nodes with independent ranks each GPU. Results without ranks stay with the
    node.
    """
    found = []
    for member in members:
        of_gpus = grouped((place, own) for run in member.runs for place, own in by_gpu(run).items())
        whole = tuple(run for run in member.runs if not is_split(run)) if of_gpus else member.runs
        found += [
            replace(member, runs=tuple(of_gpus[place]), gpu=place) for place in sorted(of_gpus, key=GpuPlace.order)
        ]
        if whole or not of_gpus:
            found.append(replace(member, runs=whole))
    return found


def _of_rank(result: RunResult, uuid: str | None, rank: RankSummary | None) -> RunResult:
    """The part of the run on the GPU `uuid`, as a run on one GPU, without the figures that the contract has for the
    whole run only. None: the GPU's rank did not report, so the run failed there.
    """
    status, cause, error = result.status, result.error, None
    if rank is None:
        status = result.status if result.status is not Status.OK else Status.INCOMPLETE
        why = cause.message if cause else "its rank wrote no report"
        error = RunError(kind=status.value, message=f"no rank reported: {why}", phase=Phase.MEASURE)
    elif (status := rank.status) is not Status.OK:
        own = cause if cause and cause.rank in (None, rank.rank) else None
        error = RunError(
            kind=own.kind if own else status.value,
            message=own.message if own else f"rank {rank.rank} ended as {status.value}: see the pod's log",
            phase=own.phase if own else Phase.MEASURE,
            rank=rank.rank,
        )
    context, telemetry, memory = result.context, result.telemetry, result.memory
    peak_bytes = rank.peak_allocated_bytes if rank else None
    peak_gb = None if peak_bytes is None else peak_bytes / 1e9
    return result.model_copy(
        update={
            "spec": result.spec.changed(placement={"gpus_per_node": 1}),
            "status": status,
            "error": error,
            "ranks": (rank,) if rank else (),
            "performance": (rank and rank.performance) or Performance(clock=result.performance.clock),
            "probes": (rank and rank.probes) or result.probes,
            "memory": memory.model_copy(update={"peak_during_training": peak_gb, "peak_allocated_bytes": peak_bytes}),
            "context": context
            and context.model_copy(update={"gpus": tuple(gpu for gpu in context.gpus if gpu.uuid == uuid)}),
            "telemetry": telemetry.model_copy(
                update={"gpus": tuple(gpu for gpu in telemetry.gpus if gpu.uuid == uuid)}
            ),
        }
    )

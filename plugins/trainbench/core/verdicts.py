"""States, verdicts and findings as values. The rules that make them are in `judging`."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeVar

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import listing


class State(StrEnum):
    """The state of a node or a metric. Only `breach`, `failed` and `missing` turn a DAG run red."""

    OK = "ok"
    NOTICE = "notice"  # outside the limits once, not confirmed by the re-run; or better than its own history
    BREACH = "breach"
    INSUFFICIENT = "insufficient"  # too few nodes, or noise larger than the limit: both figures are in the reason
    FAILED = "failed"  # ran, but gave no valid result
    MISSING = "missing"  # expected, but did not run
    BUSY = "busy"  # its GPUs are taken by other work
    NOT_JUDGED = "not_judged"  # this metric cannot be judged here, e.g. temperature without a GPU
    NO_BASELINE = "no_baseline"  # too few past runs to compare with


RED = frozenset({State.BREACH, State.FAILED, State.MISSING})


class Metric(StrEnum):
    SAMPLES_PER_SECOND = "samples_per_second"
    MEMORY_GB = "memory_gb"
    TEMPERATURE_C = "temperature_c"


class Side(StrEnum):
    SLOW = "slow"
    FAST = "fast"
    HIGH = "high"
    LOW = "low"


class Confirmation(StrEnum):
    NOT_NEEDED = "not_needed"
    PENDING = "pending"
    CONFIRMED = "confirmed"
    NOT_CONFIRMED = "not_confirmed"
    INCONCLUSIVE = "inconclusive"  # the re-run gave no answer: the reason gives the cause
    NOT_PLANNED = "not_planned"  # result files without a campaign: no re-run was planned


class ReferenceMode(StrEnum):
    LEAVE_ONE_OUT_MEDIAN = "leave_one_out_median"
    MEDIAN = "median"
    MEAN = "mean"
    HISTORY = "history"
    FIXED = "fixed"


class Tolerances(Frozen):
    samples_per_second_pct: float = 5.0
    memory_pct: float = 2.0
    temperature_c: float = 10.0
    reference: ReferenceMode = ReferenceMode.LEAVE_ONE_OUT_MEDIAN
    fixed_samples_per_second: float | None = None
    history_pct: float = 1.5
    history_mads: float = 4.0
    history_min_points: int = 5


class MetricVerdict(Frozen):
    """`deviation`, `limit` and `noise` are percent of the reference; for temperature they are degrees C."""

    metric: Metric
    state: State
    value: float | None
    reference: float | None
    deviation: float | None
    limit: float
    noise: float | None  # half-width that chance alone explains, from the repeats; None: nothing was repeated
    side: Side | None
    reason: str  # one sentence; says why a number is missing
    gpu: str | None = None  # of several GPUs the one that explains the deviation, where known


def gpu_title(index: int, uuid: str | None) -> str:
    """ "GPU 3 (GPU-5f3c...)", as nvidia-smi -L names it."""
    return f"GPU {index}" + (f" ({uuid})" if uuid else "")


class Verdict(Frozen):
    """The verdict on a node, or on one GPU of it."""

    state: State
    metrics: tuple[MetricVerdict, ...]
    num_runs: int
    reason: str
    confirmation: Confirmation = Confirmation.NOT_NEEDED
    confirm_deviation_pct: float | None = None  # samples/s of the re-run against the same reference
    is_drill: bool = False
    is_watched: bool = False  # within the limit, but too slow to be well: a warning, not red; closes no breach
    is_unsteady: bool = False  # its own windows or rounds scatter far more than its peers': judged by its own scatter
    unsteady_factor: float | None = None  # its scatter / that of its peers, both as standard deviations
    disturbed_rounds: tuple[int, ...] = ()  # a minority of its runs that is far off the others: not in its noise
    remarks: tuple[str, ...] = ()  # what the reason adds to those of the metrics

    def metric(self, metric: Metric) -> MetricVerdict | None:
        return next((m for m in self.metrics if m.metric is metric), None)

    def value(self, metric: Metric) -> float | None:
        verdict = self.metric(metric)
        return verdict.value if verdict else None

    def deviation(self, metric: Metric) -> float | None:
        verdict = self.metric(metric)
        return verdict.deviation if verdict else None


class GpuVerdict(Verdict):
    """One GPU of a node that measured each of its GPUs by itself."""

    index: int
    uuid: str | None

    @property
    def name(self) -> str:
        return gpu_title(self.index, self.uuid)


class NodeVerdict(Verdict):
    """The verdict on a node. Where each GPU was measured by itself, `gpus` lists their verdicts by index, and all other
    fields are those of the worst GPU; else `gpus` is empty.
    """

    node: str
    gpu_name: str | None
    gpus: tuple[GpuVerdict, ...] = ()


Judged = TypeVar("Judged", NodeVerdict, GpuVerdict)


def with_remark(judged: Judged, remark: str) -> Judged:
    """Add a remark, in the reason too."""
    return judged.model_copy(update={"reason": f"{judged.reason}; {remark}", "remarks": (*judged.remarks, remark)})


class GroupVerdict(Frozen):
    """All nodes that ran the same work on the same kind of GPU."""

    group_id: str
    gpu_name: str | None
    reference: ReferenceMode
    nodes: tuple[NodeVerdict, ...]
    spread_pct: float | None  # (max - min) / median of the nodes' samples/s
    noise_pct: float | None  # standard deviation of one run's samples/s: the larger of between runs and between windows
    detectable_pct: float | None  # smallest deviation that is more than this group's noise
    choice: str | None = None  # the settings that most nodes' programs chose where the spec says 'auto'


class HistoryVerdict(Frozen):
    node: str
    group_id: str
    fingerprint: str | None = None  # of the work; None: unknown
    state: State  # ok, breach, notice (faster), no_baseline, not_judged
    samples_per_second: float | None
    baseline_median: float | None = None  # this and the next two: None where it could not be judged
    deviation_pct: float | None = None
    limit_pct: float | None = None
    num_points: int
    reason: str


class Level(StrEnum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class RateChange(Frozen):
    """The change of one node's samples/s at one work. A warning of it ends at the level before."""

    node: str
    fingerprint: str  # of the work
    before: float  # samples/s
    after: float
    limit_pct: float  # that the change is larger than, of `before`


class Clue(Frozen):
    """One difference between a node and its peers that may be the cause. `explains_pct`: percent of samples/s that it
    can cost at most; None: not known, so it may explain all or nothing.
    """

    category: str  # stable: scripts may match on it
    measured: str
    expected: str
    cause: str
    resolution: str
    explains_pct: float | None = None


class Finding(Frozen):
    """One thing to know or to do: the same value from the judgement to report, alert, banner, notice and history.

    It is about `nodes`, or else about `item`, or about both, as a doubt about one run of a node is.
    """

    level: Level
    category: str  # stable: scripts may match on it
    nodes: tuple[str, ...] = ()
    item: str | None = None  # run, campaign, price or file
    group_id: str | None = None  # of the work that the node is red or undecided at
    measured: str
    expected: str
    evidence: tuple[MetricVerdict, ...] = ()  # the metrics that make a verdict what it is
    changes: tuple[RateChange, ...] = ()  # of a slowdown or speed-up: each node and work that it is about
    summary: str  # a phrase that continues the nodes' names, or a sentence about the item
    cause: str | None = None  # the likely cause, a sentence; None: not known, or the summary says it
    clues: tuple[Clue, ...] = ()  # of a diagnosis: the likeliest cause first, whose category is the finding's
    resolution: str  # what to do next, one sentence
    is_drill: bool = False

    @property
    def subject(self) -> str:
        return self.item or listing(self.nodes)

    @property
    def headline(self) -> str:
        """ "node-3 is in breach: samples/s is 9.7 % below ...", "DRILL: ..." where it was slowed on purpose."""
        between = ":" if self.item else ""
        return f"{'DRILL: ' if self.is_drill else ''}{self.subject}{between} {self.summary}"

    @property
    def text(self) -> str:
        """The headline and the likely cause."""
        return f"{self.headline}. {self.cause}" if self.cause else self.headline

    @property
    def explanation(self) -> str:
        """The summary and the likely cause."""
        return f"{self.summary}. {self.cause}" if self.cause else self.summary


# Categories of what turns a run red although no node's verdict does.
PART_FAILED = "part_failed"
OTHER_WORK = "computes_something_else"
NO_FIGURE = "no_figure"
DRILL_UNDETECTED = "drill_undetected"
ALARMS = frozenset({PART_FAILED, OTHER_WORK, NO_FIGURE, DRILL_UNDETECTED})


def by_level(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors first, then warnings; else in their order."""
    order = (Level.ERROR, Level.WARNING, Level.INFO)
    return tuple(sorted(findings, key=lambda finding: order.index(finding.level)))

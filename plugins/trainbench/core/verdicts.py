"""States, verdicts and findings as values. The rules that make them are in `judging`; their words are in `states`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, ClassVar

from pydantic import model_validator

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import listing


class State(StrEnum):
    """The six states of a node, the worst first. Only `red` fails a DAG run."""

    RED = "red"
    ACKNOWLEDGED = "acknowledged"  # red, and somebody said that they know
    DRILL = "drill"  # slowed on purpose
    LOOK = "look"  # not red, but a person should look at it
    NOT_CHECKED = "not_checked"
    WELL = "well"


class Why(StrEnum):
    """The reason for a state, the worst first. Stable: scripts may match on it. `states.TRAITS` has the words."""

    FAILED = "failed"
    MISSING = "missing"
    BROKEN_GPU = "broken_gpu"
    OTHER_NUMBERS = "other_numbers"
    SLOW = "slow"
    ACKNOWLEDGED = "acknowledged"
    DRILL = "drill"
    HOT = "hot"
    HEAVY = "heavy"
    CHANGED = "changed"
    BEHIND = "behind"
    PAIR = "pair"
    ONCE = "once"
    UNSTEADY = "unsteady"
    ABSENT = "absent"
    SHARED = "shared"
    NOISY = "noisy"
    NOTHING_TO_COMPARE = "nothing_to_compare"
    OTHER_CHOICE = "other_choice"
    BUSY = "busy"
    STALE = "stale"
    WELL = "well"


def urgency(state: State, why: Why) -> tuple[int, int]:
    """Sort key, the worst first."""
    return list(State).index(state), list(Why).index(why)


class Metric(StrEnum):
    SAMPLES_PER_SECOND = "samples_per_second"
    MEMORY_GB = "memory_gb"
    TEMPERATURE_C = "temperature_c"


class Against(StrEnum):
    """The three sources of what a unit should have made tonight."""

    PEERS = "peers"
    PAST = "past"
    LEVEL = "level"


class LevelSource(StrEnum):
    """The levels that nodes are compared with: none, those of this release, or the fleet's own before those."""

    NONE = "none"
    SHIPPED = "shipped"
    OWN = "own"


class Tolerances(Frozen):
    """Limits. `samples_per_second_pct`: against peers; `past_pct`: against the own past. `also_red`: metrics that turn
    a node red by themselves; else they ask for a look.
    """

    samples_per_second_pct: float = 5.0
    memory_pct: float = 2.0
    temperature_c: float = 10.0
    past_pct: float = 1.5
    also_red: tuple[Metric, ...] = ()


class Stored(Frozen):
    """A value of which earlier versions stored more fields: those in GONE are read over."""

    GONE: ClassVar[frozenset[str]]

    @model_validator(mode="before")
    @classmethod
    def _without_what_is_gone(cls, fields: Any) -> Any:
        kept = isinstance(fields, Mapping) and {name: fields[name] for name in fields if name not in cls.GONE}
        return kept or fields


class Comparison(Frozen):
    """One figure of tonight beside one expectation. `deviation`, `limit`, `chance` and `rounds` are percent of the
    expected value; for temperature they are degrees C. Below 0: slower, less, cooler.
    """

    metric: Metric
    against: Against
    value: float
    expected: float
    source: str  # of the expectation, a phrase: "the median of 3 peers"
    deviation: float
    limit: float
    chance: float | None = None  # the largest that chance shows tonight among all units; None: not a matter of chance
    rounds: tuple[float, ...] = ()  # the deviation by the planned rounds, then that of each re-run
    is_off: bool = False  # beyond limit and chance to the bad side, in each round

    @property
    def visible(self) -> float:
        """What limit and chance allow."""
        return max(self.limit, self.chance or 0.0)

    @property
    def apart_pct(self) -> float:
        """How far the slower of two rates is below the faster, in percent: the same for both of two nodes."""
        return -self.deviation if self.deviation < 0 else 100 * self.deviation / (100 + self.deviation)

    @property
    def is_over(self) -> bool:
        """Whether the figure is faster, smaller or cooler than its limit allows: a remark, never a fault."""
        if self.metric is Metric.SAMPLES_PER_SECOND:
            return self.deviation > 0 and self.apart_pct > self.visible
        return -self.deviation > self.visible


def gpu_title(index: int, uuid: str | None) -> str:
    """ "GPU 3 (GPU-5f3c...)", as nvidia-smi -L names it."""
    return f"GPU {index}" + (f" ({uuid})" if uuid else "")


class Verdict(Stored):
    """The verdict on a node, or on one GPU of it. `reason`: a phrase with the figures that decide."""

    GONE = frozenset({"confirmation"})

    state: State
    why: Why
    reason: str
    num_runs: int
    comparisons: tuple[Comparison, ...] = ()
    decided_by: tuple[Metric, Against] | None = None  # which of them makes the state; None: no single one does
    samples_per_second: float | None = None  # this and the next two: tonight's figures; None: not measured
    memory_gb: float | None = None
    temperature_c: float | None = None
    noise_pct: float | None = None  # standard deviation of one run's samples/s by which it was judged
    is_drill: bool = False
    remarks: tuple[str, ...] = ()  # phrases beside the reason, such as why a figure is missing

    def comparison(self, metric: Metric, against: Against) -> Comparison | None:
        return next((c for c in self.comparisons if c.metric is metric and c.against is against), None)

    def deviation(self, metric: Metric, against: Against = Against.PEERS) -> float | None:
        known = self.comparison(metric, against)
        return known.deviation if known else None

    @property
    def decides(self) -> Comparison | None:
        """The comparison whose figure every surface shows."""
        return self.comparison(*self.decided_by) if self.decided_by else None

    @property
    def is_confirmed(self) -> bool:
        """Whether the re-runs showed again what decides."""
        shown = self.decides
        return shown is not None and shown.is_off and len(shown.rounds) > 1

    @property
    def off(self) -> tuple[Comparison, ...]:
        """The comparisons beyond their limits."""
        return tuple(c for c in self.comparisons if c.is_off)

    @property
    def is_red(self) -> bool:
        return self.state is State.RED

    def urgency(self) -> tuple[int, int]:
        return urgency(self.state, self.why)


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


class GroupVerdict(Frozen):
    """All nodes that ran the same work on the same kind of GPU."""

    group_id: str
    gpu_name: str | None
    nodes: tuple[NodeVerdict, ...]
    spread_pct: float | None  # (max - min) / median of the nodes' samples/s
    noise_pct: float | None  # standard deviation of one run's samples/s
    detectable_pct: float | None  # smallest deviation from the peers that is more than chance
    choice: str | None = None  # the settings that most nodes' programs chose where the spec says 'auto'


class Level(StrEnum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Finding(Stored):
    """One thing to know or to do: the same value from the judgement to report, alert, banner, notice and history.

    It is about `nodes`, or else about `item`, or about both, as a doubt about one run of a node is.
    """

    GONE = frozenset({"changes", "clues"})

    level: Level
    category: str  # stable: scripts may match on it
    nodes: tuple[str, ...] = ()
    item: str | None = None  # run, campaign, price or file
    group_id: str | None = None  # of the work that a node's verdict is about
    why: Why | None = None  # of a finding that explains a node's verdict; None: it stands beside the verdicts
    measured: str
    expected: str
    evidence: tuple[Comparison, ...] = ()  # the comparisons that make a verdict what it is
    summary: str  # a phrase that continues the nodes' names, or a sentence about the item
    cause: str | None = None  # the likely cause, a sentence; None: not known, or the summary says it
    resolution: str  # what to do next, one sentence
    is_drill: bool = False

    @property
    def subject(self) -> str:
        return self.item or listing(self.nodes)

    @property
    def headline(self) -> str:
        """ "node-3 is slow: samples/s is 9.7 % below ...", "DRILL: ..." where it was slowed on purpose."""
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
IMPOSSIBLE_WORK = "impossible_work"
NODE_OF_GANGS = "node_ended_gangs"
DRILL_UNDETECTED = "drill_undetected"
BAD_LINK = "bad_link"
ALARMS = frozenset({PART_FAILED, OTHER_WORK, NO_FIGURE, IMPOSSIBLE_WORK, NODE_OF_GANGS, DRILL_UNDETECTED, BAD_LINK})
# Of the marks that keep other work away from red nodes.
MARKED, FREED, NOT_MARKED = "node_marked", "node_freed", "node_not_marked"
OF_MARKS = frozenset({MARKED, FREED, NOT_MARKED})


def by_level(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors first, then warnings; else in their order."""
    order = (Level.ERROR, Level.WARNING, Level.INFO)
    return tuple(sorted(findings, key=lambda finding: order.index(finding.level)))

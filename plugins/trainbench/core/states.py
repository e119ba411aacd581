"""The words of every state, the state of a node now, and the headline of a fleet.

Reports, exit codes, notes, alerts, banners, notices, gauges, pages and docs take their words from `TRAITS`;
docs/states.md shows each reason on each surface.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from trainbench.core.formats import count, listing, signed
from trainbench.core.grouping import grouped
from trainbench.core.natural_order import natural
from trainbench.core.verdicts import Against, Finding, Level, Metric, NodeVerdict, State, Verdict, Why, urgency

FRESH = timedelta(hours=36)  # one nightly check may be left out; an older verdict does not describe the node today
MAX_NAMED = 5  # nodes of one reason in a headline


class Trait(NamedTuple):
    """`code`: its gauge's value: 1 to 9 quiet, 10 to 19 a look, from 20 on red. Dashboards of other people compare with
    it, so none changes; 0 is no reason, as Airflow's OpenTelemetry client sets each new gauge to 0 before its first
    value. `one` and `several` follow the number of nodes: "1 of 4 nodes is slow", "2 are slow". `none`: begins the
    headline where all nodes share a reason for which "All 4 nodes ..." would read as the opposite. `next_step`: a
    sentence where no finding knows a better one.
    """

    state: State
    code: int
    one: str
    several: str
    meaning: str
    next_step: str
    none: str | None = None


TRAITS: Mapping[Why, Trait] = {
    Why.FAILED: Trait(State.RED, 22, "failed", "failed",
        "ran, but gave no valid result", "read the error and the pod's log"),
    Why.MISSING: Trait(State.RED, 21, "is missing", "are missing", "expected, but gave no result",
        "see whether the node is Ready and has free GPUs, and read the events of its pod"),
    Why.BROKEN_GPU: Trait(State.RED, 24, "has a broken GPU", "have a broken GPU",
        "the driver reported an error that means a broken GPU", "drain the node and have the GPU tested"),
    Why.OTHER_NUMBERS: Trait(State.RED, 23,
        "computes other numbers than its peers", "compute other numbers than their peers",
        "its losses differ from those of equal work by more than equal runs do",
        "do not train on it: compare weights, data and image with its peers', then test its GPU memory and ECC"),
    Why.SLOW: Trait(State.RED, 20, "is slow", "are slow",
        "slower than limit and chance allow, in each round",
        "repeat the check on this node and a good one; if it stays slow, look at the host: dmesg, BIOS, cooling"),
    Why.ACKNOWLEDGED: Trait(State.ACKNOWLEDGED, 6, "is red and acknowledged", "are red and acknowledged",
        "red, and somebody said that they know", "repair it as agreed"),
    Why.DRILL: Trait(State.DRILL, 4, "was slowed on purpose", "were slowed on purpose",
        "the latest run slowed it on purpose, as a drill", "nothing: the next check judges it again"),
    Why.HOT: Trait(State.LOOK, 17, "is hotter than expected", "are hotter than expected",
        "hotter than its peers or its own past allow", "check fans, filters and the air flow of the node"),
    Why.HEAVY: Trait(State.LOOK, 16, "takes more memory than expected", "take more memory than expected",
        "allocates more GPU memory than its peers or its own past",
        "compare image, libraries and settings with those of its peers"),
    Why.CHANGED: Trait(State.LOOK, 15, "has become slower, as half of the fleet has",
        "have become slower, and no single node is at fault",
        "at least half of the fleet is slower than its own past: no single node is at fault",
        "undo what changed on one node and run the check again, or accept the new level: "
        "`trainbench baseline accept`"),
    Why.BEHIND: Trait(State.LOOK, 12, "lags behind", "lag behind",
        "slower than expected by more than chance, but not slow by every measure",
        "compare driver, image, clocks and temperature with its peers and with its last good night"),
    Why.PAIR: Trait(State.LOOK, 14, "differs from its only peer", "differ from each other",
        "two nodes differ, and neither a past nor a level says which one is off",
        "check a third node of this kind, or store a known level of its GPU: `trainbench levels accept`"),
    Why.ONCE: Trait(State.LOOK, 13, "was slow once", "were slow once",
        "slow in the planned rounds, and not in the re-runs",
        "nothing now; if it happens again, find what disturbs the node"),
    Why.UNSTEADY: Trait(State.LOOK, 11, "is unsteady", "are unsteady",
        "its figures scatter far more than those of its peers",
        "look for what runs there at times: dmesg, cron, other pods"),
    Why.ABSENT: Trait(State.LOOK, 10, "was not measured", "were not measured",
        "the cluster has or had it, but nothing could run on it",
        "repair the node, or put it into quarantine with the reason"),
    Why.SHARED: Trait(State.NOT_CHECKED, 9, "had to share its GPUs", "had to share their GPUs",
        "another program used its GPU, and it was slow, hot or unsteady",
        "end the other program, or wait for it, and run the check again", "had its GPUs to itself"),
    Why.NOISY: Trait(State.NOT_CHECKED, 8, "is too noisy to check", "are too noisy to check",
        "a slowdown of twice the limit could not be told from chance",
        "run more rounds, without 'quick', or on a quieter machine",
        "is quiet enough to check"),
    Why.NOTHING_TO_COMPARE: Trait(State.NOT_CHECKED, 3,
        "has nothing to be compared with", "have nothing to be compared with",
        "no peer, no past and no level", "run the check again: from the second night on its own past judges it",
        "has anything to be compared with"),
    Why.OTHER_CHOICE: Trait(State.NOT_CHECKED, 7, "chose other settings", "chose other settings",
        "its program chose other settings than those of its peers",
        "set micro-batch and checkpointing yourself instead of 'auto'", "chose the same settings"),
    Why.BUSY: Trait(State.NOT_CHECKED, 2, "was busy", "were busy",
        "its GPUs were taken by other work, or it was drained",
        "run the check when it is free, or reserve a time for it"),
    Why.STALE: Trait(State.NOT_CHECKED, 5, "was not checked lately", "were not checked lately",
        "its latest verdict is older than TRAINBENCH_FRESH_H", "run the check", "was checked lately"),
    Why.WELL: Trait(State.WELL, 1, "is well", "are well", "within its limits, and its verdict is fresh", "nothing"),
}  # fmt: skip
STATE_WORDS: Mapping[State, str] = {state: state.value.replace("_", " ") for state in State}


class NodeState(NamedTuple):
    """The one state of a node. `since`: time at which its notice opened, or of its last verdict; None: unknown, or this
    run. `reason`: a phrase, or "".
    """

    node: str
    state: State
    why: Why
    reason: str = ""
    since: datetime | None = None

    def urgency(self) -> tuple[int, int]:
        return urgency(self.state, self.why)

    @property
    def phrase(self) -> str:
        """ "node-3 is slow: samples/s -9.7 % against its peers"."""
        return f"{self.node} {TRAITS[told(self)].one}" + (f": {self.reason}" if self.reason else "")


LEVELS = {State.RED: Level.ERROR, State.DRILL: Level.ERROR, State.LOOK: Level.WARNING}


def plain_finding(of: NodeState | NodeVerdict, group_id: str | None = None) -> Finding:
    """The finding that explains a state where nothing is known beside it."""
    trait = TRAITS[told(of)]
    return Finding(
        level=LEVELS.get(of.state, Level.INFO),
        category=of.why.value,
        nodes=(of.node,),
        group_id=group_id,
        why=of.why,
        measured=of.why.value,
        expected=Why.WELL.value,
        summary=f"{trait.one}: {of.reason}" if of.reason else trait.one,
        resolution=trait.next_step,
        is_drill=of.state is State.DRILL,
    )


class FleetSummary(NamedTuple):
    """`headline`: one sentence. `counts`: of the states that occur, the worst first."""

    headline: str
    counts: Mapping[State, int]

    @property
    def is_well(self) -> bool:
        return set(self.counts) == {State.WELL}

    @property
    def worst(self) -> State:
        return next(iter(self.counts), State.NOT_CHECKED)


def word(verdict: Verdict | NodeState) -> str:
    """ "red: slow", "not checked: too noisy": the state, and its reason where that says more."""
    state = STATE_WORDS[verdict.state]
    if verdict.why.value in (verdict.state.value, "drill") or verdict.state is State.WELL:
        return state
    return f"{state}: {verdict.why.value.replace('_', ' ').replace('gpu', 'GPU')}"


def state_of(node: str, verdicts: Sequence[Verdict]) -> NodeState:
    """The state of a node from its verdicts of one campaign, one for each work: the worst."""
    worst = min(verdicts, key=Verdict.urgency)
    return NodeState(node, worst.state, worst.why, worst.reason)


def fleet_summary(nodes: Iterable[NodeState], most: int = MAX_NAMED) -> FleetSummary:
    """ "1 of 4 nodes is slow: node-3 (samples/s -9.7 %); 3 are well." `most`: nodes to name for each reason; 0 names
    none. Nodes that are well are only counted.
    """
    ordered = sorted(sorted(nodes, key=lambda node: natural(node.node)), key=NodeState.urgency)
    counts = Counter(node.state for node in ordered)
    if not ordered:
        return FleetSummary("No node was judged.", counts)
    present = grouped(((node.state, told(node)), node) for node in ordered)
    parts = [
        _part(why, members, len(ordered), is_first=not place, most=most)
        for place, ((_, why), members) in enumerate(present.items())
    ]
    return FleetSummary(f"{'; '.join(parts)}.", counts)


def told(node: NodeState | Verdict) -> Why:
    """A drilled node was slowed on purpose, however it was found."""
    return Why.DRILL if node.state is State.DRILL else node.why


def _part(why: Why, members: Sequence[NodeState], total: int, *, is_first: bool, most: int) -> str:
    trait, number = TRAITS[why], len(members)
    verb = trait.one if number == 1 else trait.several
    if total == 1:
        reason = f" ({members[0].reason})" if members[0].reason and why is not Why.WELL else ""
        return f"{members[0].node} {verb}{reason}"
    if number == total == 2:
        head = f"Neither node {trait.none}" if trait.none else f"Both nodes {verb}"
    elif number == total:
        head = f"None of {total:,} nodes {trait.none}" if trait.none else f"All {total:,} nodes {verb}"
    else:
        head = f"{number:,} of {count(total, 'node')} {verb}" if is_first else f"{number:,} {verb}"
    if why is Why.WELL or not most:
        return head
    # Names with their reasons; a reason that all share is written once.
    if len({node.reason for node in members}) == 1:
        reason = f" ({members[0].reason})" if members[0].reason else ""
        return f"{head}: {listing((node.node for node in members), most)}{reason}"
    names = (f"{node.node} ({node.reason})" if node.reason else node.node for node in members)
    return f"{head}: {listing(names, most)}"


AGAINST: Mapping[Against, str] = {
    Against.PEERS: "its peers",
    Against.PAST: "its own past",
    Against.LEVEL: "the known level",
}
METRIC_NAMES: Mapping[Metric, str] = {
    Metric.SAMPLES_PER_SECOND: "samples/s",
    Metric.MEMORY_GB: "memory",
    Metric.TEMPERATURE_C: "temperature",
}
METRIC_UNITS: Mapping[Metric, str] = {  # of a deviation and its limit
    Metric.SAMPLES_PER_SECOND: " %",
    Metric.MEMORY_GB: " %",
    Metric.TEMPERATURE_C: " °C",
}


def deviation_text(metric: Metric | None, against: Against | None, deviation: float | None) -> str:
    """ "samples/s -7.3 % against its peers"; "" where no comparison decided."""
    if metric is None or against is None or deviation is None:
        return ""
    return f"{METRIC_NAMES[metric]} {signed(deviation, METRIC_UNITS[metric])} against {AGAINST[against]}"

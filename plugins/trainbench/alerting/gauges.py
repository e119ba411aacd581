"""The fleet's state as gauges, with or without labels, as the metrics client needs them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from trainbench.core.formats import count, listing
from trainbench.core.states import NodeState
from trainbench.core.verdicts import State, Why
from trainbench.history.fleet_state import FleetState, NodeNow, WorkFigures

FLEET, NODE = "trainbench", "trainbench.node"
IN_NAME = ("node", "work", "probe")  # labels that stand at the end of the name where the client drops labels
MAX_NAMED = 5
# 1 to 9 is quiet, 10 to 19 asks for a look, from 20 on it is red. 0 is no reason: Airflow's OpenTelemetry client sets
# each new gauge to 0 before its first value.
CODES: Mapping[Why, int] = {
    Why.WELL: 1,
    Why.BUSY: 2,
    Why.NOTHING_TO_COMPARE: 3,
    Why.DRILL: 4,
    Why.STALE: 5,
    Why.ACKNOWLEDGED: 6,
    Why.OTHER_CHOICE: 7,
    Why.NOISY: 8,
    Why.SHARED: 9,
    Why.ABSENT: 10,
    Why.UNSTEADY: 11,
    Why.BEHIND: 12,
    Why.ONCE: 13,
    Why.PAIR: 14,
    Why.CHANGED: 15,
    Why.HEAVY: 16,
    Why.HOT: 17,
    Why.SLOW: 20,
    Why.MISSING: 21,
    Why.FAILED: 22,
    Why.OTHER_NUMBERS: 23,
    Why.BROKEN_GPU: 24,
}
RED_FROM = 20
RED_BY_SETTING = 10  # is added where a setting makes a reason for a look red: a hot node is 27 then
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]")


class Gauge(NamedTuple):
    """`labels`: as stored in the history; they may hold any character."""

    name: str
    value: float
    labels: Mapping[str, str] = {}


class GaugePoint(NamedTuple):
    """A gauge as the client gets it; `labels` None: the name holds them, or there are none."""

    name: str
    value: float
    labels: Mapping[str, str] | None

    @property
    def series(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        return self.name, tuple((self.labels or {}).items())


class Client(NamedTuple):
    """The limits of a metrics client. Without labels, node and work become parts of the name. `max_series`: label sets
    per name; `max_chars`: characters of a name with its labels; None: no limit.
    """

    has_labels: bool
    max_series: int | None = None
    max_chars: int | None = None


class Points(NamedTuple):
    """`left_out`: one phrase for each reason why a gauge is not among `points`."""

    points: tuple[GaugePoint, ...]
    left_out: tuple[str, ...]


def gauges(state: FleetState, now: datetime) -> tuple[Gauge, ...]:
    """The gauges, the worst and the most expensive nodes first, because a client's limit leaves out the last ones.
    An unknown value has no gauge.
    """
    worst_first = sorted(state.nodes, key=lambda node: node.state.urgency())
    made = [
        *_known(f"{FLEET}.refreshed_timestamp_seconds", now.timestamp()),
        *_known(f"{FLEET}.last_verdict_timestamp_seconds", _seconds(state.judged_at)),
        *(gauge for node in worst_first for gauge in _of_node(node)),
    ]
    for spend in sorted(state.spends, key=lambda spend: -(spend.usd or 0.0)):
        labels = {"node": spend.node}
        made += _known(f"{NODE}.spend_30d_usd", spend.usd, labels)
        made += _known(f"{NODE}.unpriced_runs_30d", spend.num_unpriced, labels)
    return tuple(made)


def code(node: NodeState) -> int:
    if node.state is State.DRILL:
        return CODES[Why.DRILL]
    known = CODES[node.why]
    return known + RED_BY_SETTING if node.state is State.RED and known < RED_FROM else known


def _of_node(node: NodeNow) -> Iterator[Gauge]:
    labels = {"node": node.node}
    yield Gauge(f"{NODE}.condition", code(node.state), labels)
    for state in State:  # names of their own, because clients take a limited number of series of one name
        yield Gauge(f"{NODE}.state_{state.value}", int(node.state.state is state), labels)
    yield Gauge(f"{NODE}.open_notices", node.num_open_notices, labels)
    yield Gauge(f"{NODE}.marked", int(node.is_marked), labels)
    yield from _known(f"{NODE}.last_verdict_timestamp_seconds", _seconds(node.judged_at), labels)
    for probe, share_pct in node.probe_shares_pct.items():
        yield Gauge(f"{NODE}.probe_share_pct", share_pct, {"node": node.node, "probe": probe})
    for figures in node.works:
        yield from _of_work(node.node, figures)


def _of_work(node: str, figures: WorkFigures) -> Iterator[Gauge]:
    labels = {"node": node, "work": figures.work} | ({"gpu": figures.gpu_name} if figures.gpu_name else {})
    for name in ("samples_per_second", "deviation_pct", "past_deviation_pct", "level_deviation_pct"):
        yield from _known(f"{NODE}.{name}", getattr(figures, name), labels)


def _known(name: str, value: float | None, labels: Mapping[str, str] | None = None) -> Iterator[Gauge]:
    if value is not None:
        yield Gauge(name, value, labels or {})


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def client_points(made: Sequence[Gauge], client: Client) -> Points:
    """The gauges within the client's limits, in the same order, and why the others are left out."""
    pairs = [(gauge, _labelled(gauge) if client.has_labels else _plain(gauge)) for gauge in made]
    num_alike = Counter(point.series for _, point in pairs)
    num_of_name: Counter[str] = Counter()
    kept: list[GaugePoint] = []
    left_out: dict[str, list[Gauge]] = {}
    for gauge, point in pairs:
        why = _refusal(point, num_alike[point.series], client)
        num_of_name[point.name] += not why
        if client.max_series and num_of_name[point.name] > client.max_series:
            why = f"the client takes at most {client.max_series:,} gauges of one name"
        if why:
            left_out.setdefault(why, []).append(gauge)
        else:
            kept.append(point)
    return Points(tuple(kept), tuple(_phrase(why, of) for why, of in left_out.items()))


def _refusal(point: GaugePoint, num_alike: int, client: Client) -> str | None:
    if not math.isfinite(point.value):
        return "the value is not a finite number"
    if num_alike > 1:  # two nodes in one series would show each other's figures
        return "another gauge has the same name and labels"
    length = len(point.name) + sum(len(key) + len(value) + 2 for key, value in (point.labels or {}).items())
    if client.max_chars and length > client.max_chars:
        return f"name and labels have more than {client.max_chars} characters"
    return None


def _labelled(gauge: Gauge) -> GaugePoint:
    return GaugePoint(gauge.name, gauge.value, {key: _clean(value) for key, value in gauge.labels.items()} or None)


def _plain(gauge: Gauge) -> GaugePoint:
    """A dot begins a new part of a name, so one within a part becomes two underscores, as in Airflow's own names."""
    parts = [_clean(gauge.labels[key]).replace(".", "__") for key in IN_NAME if key in gauge.labels]
    return GaugePoint(".".join([gauge.name, *parts]), gauge.value, None)


def _clean(text: str) -> str:
    """Replace each character that StatsD forbids by "_", for every client, so that a node has one name in all."""
    return _NOT_IN_A_NAME.sub("_", text)


def _phrase(why: str, of: Sequence[Gauge]) -> str:
    names = sorted({gauge.labels.get("node", gauge.name) for gauge in of})
    return f"{count(len(of), 'gauge')} of {listing(names, MAX_NAMED)}: {why}"

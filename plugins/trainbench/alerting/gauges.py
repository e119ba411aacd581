"""The fleet's state as gauges, with or without labels, as the metrics client needs them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from trainbench.core.formats import count, listing
from trainbench.core.states import TRAITS, NodeState, told
from trainbench.core.verdicts import State, Why
from trainbench.history.fleet_state import FIGURES, FleetState, NodeNow

FLEET, NODE = "trainbench", "trainbench.node"
IN_NAME = ("node", "work", "probe")  # labels that stand at the end of the name where the client drops labels
MAX_NAMED = 5
CODES: Mapping[Why, int] = {why: trait.code for why, trait in TRAITS.items()}
RED_FROM = 20
RED_BY_SETTING = 10  # is added where a setting makes a reason for a look red: a hot node is 27 then
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]")


class Gauge(NamedTuple):
    """`labels`: as stored in the history, where they may hold any character; of a client's gauge as it takes them."""

    name: str
    value: float
    labels: Mapping[str, str] = {}


class Client(NamedTuple):
    """The limits of a metrics client. Without labels, node and work become parts of the name. `max_series`: label sets
    per name; `max_chars`: characters of a name with its labels; None: no limit.
    """

    has_labels: bool
    max_series: int | None = None
    max_chars: int | None = None


class Points(NamedTuple):
    """`left_out`: one phrase for each reason why a gauge is not among `points`."""

    points: tuple[Gauge, ...]
    left_out: tuple[str, ...]


def gauges(state: FleetState, now: datetime) -> tuple[Gauge, ...]:
    """The gauges, the worst and the most expensive nodes first, because a client's limit leaves out the last ones.
    An unknown value has no gauge.
    """
    made = [
        *_known(f"{FLEET}.refreshed_timestamp_seconds", now.timestamp()),
        *_known(f"{FLEET}.last_verdict_timestamp_seconds", _seconds(state.judged_at)),
    ]
    for node in sorted(state.nodes, key=lambda node: node.state.urgency()):
        made += _of_node(node)
    for spend in sorted(state.spends, key=lambda spend: -(spend.usd or 0.0)):
        labels = {"node": spend.node}
        made += _known(f"{NODE}.spend_30d_usd", spend.usd, labels)
        made += _known(f"{NODE}.unpriced_runs_30d", spend.num_unpriced, labels)
    return tuple(made)


def code(node: NodeState) -> int:
    known = CODES[told(node)]
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
        yield Gauge(f"{NODE}.probe_share_pct", share_pct, labels | {"probe": probe})
    for figures in node.works:
        of_work = labels | {"work": figures.work} | ({"gpu": figures.gpu_name} if figures.gpu_name else {})
        for name in FIGURES:
            yield from _known(f"{NODE}.{name}", getattr(figures, name), of_work)


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _known(name: str, value: float | None, labels: Mapping[str, str] | None = None) -> Iterator[Gauge]:
    if value is not None:
        yield Gauge(name, value, labels or {})


def client_points(made: Sequence[Gauge], client: Client) -> Points:
    """The gauges within the client's limits, in the same order, and why the others are left out."""
    pairs = [(gauge, _point(gauge, client.has_labels)) for gauge in made]
    num_alike = Counter((point.name, *point.labels.items()) for _, point in pairs)
    num_of_name: Counter[str] = Counter()
    kept: list[Gauge] = []
    left_out: dict[str, list[str]] = {}
    for gauge, point in pairs:
        why = _refusal(point, num_alike[point.name, *point.labels.items()], client)
        num_of_name[point.name] += not why
        if client.max_series and num_of_name[point.name] > client.max_series:
            why = f"the client takes at most {client.max_series:,} gauges of one name"
        if why:
            left_out.setdefault(why, []).append(gauge.labels.get("node", gauge.name))
        else:
            kept.append(point)
    phrases = (
        f"{count(len(of), 'gauge')} of {listing(sorted(set(of)), MAX_NAMED)}: {why}" for why, of in left_out.items()
    )
    return Points(tuple(kept), tuple(phrases))


def _refusal(point: Gauge, num_alike: int, client: Client) -> str | None:
    if num_alike > 1:  # two nodes in one series would show each other's figures
        return "another gauge has the same name and labels"
    length = len(point.name) + sum(len(key) + len(value) + 2 for key, value in point.labels.items())
    if client.max_chars and length > client.max_chars:
        return f"name and labels have more than {client.max_chars} characters"
    return None


def _point(gauge: Gauge, has_labels: bool) -> Gauge:
    """The gauge as the client takes it. Each character that StatsD forbids becomes "_", for every client, so that a
    node has one name in all.
    """
    labels = {key: _NOT_IN_A_NAME.sub("_", value) for key, value in gauge.labels.items()}
    if has_labels:
        return gauge._replace(labels=labels)
    # A dot begins a new part of a name, so one within a part becomes two underscores, as in Airflow's own names.
    parts = [labels[key].replace(".", "__") for key in IN_NAME if key in labels]
    return Gauge(".".join([gauge.name, *parts]), gauge.value)

"""One rule: the comparisons of a node -> its state, the reason, and a phrase with the figures that decide.

| peers say | own past says | verdict |
|---|---|---|
| slow | slow, or none | slow, since the date of the change |
| slow | as always | slow, as it always was; well where a person accepted its level |
| as all, or fast | slow, with half of the fleet | changed: the fleet did, and no node is blamed |
| as all, or fast | slow, alone | behind |
| nobody, or one peer that differs | says | the past decides, without one the level |
| one peer, alike | slow, both | changed: the fleet did |
| one peer, alike | none | well, by its level where there is one |

An expectation whose noise would hide a slowdown of twice the limit is no reason to call a node well, and leaves the
decision to the next one. Only slow, hot, heavy and wrong numbers are bad. Slow counts as red only after the re-runs
showed it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trainbench.core.formats import figure, listing, noise_share, share, signed
from trainbench.core.states import METRIC_NAMES, METRIC_UNITS, TRAITS
from trainbench.core.verdicts import Against, Comparison, Metric, State, Tolerances, Why

# A node that is slow by exactly the limit is beyond it on every second night, so re-runs begin below it, and half of
# the limit asks for a look.
SUSPECT_SHARE, LOOK_SHARE = 0.8, 0.5
COARSE = 2.0  # times the limit against peers: noise that hides a slowdown of that size decides nothing


class Facts(NamedTuple):
    """What is known of one node that gave figures. `comparisons`: see `expectations`; a node of several GPUs has those
    of its worst GPU. `only_peer`: the peers are one node.
    """

    comparisons: tuple[Comparison, ...]
    tolerances: Tolerances
    only_peer: bool = False
    pair_cleared: bool = False  # of the two, the one that was slow in the planned rounds was not in its re-runs
    is_drill: bool = False
    fleet_changed: bool = False  # at least half of the fleet is slow against its own past
    has_accepted_level: bool = False  # a person accepted what it makes today
    since: str = ""  # a phrase on the date of its slowdown
    unsteady: str = ""  # a phrase on its scatter, where that is far outside
    shared: str = ""  # a phrase on the other programs on its GPUs
    probes: str = ""  # a phrase on what its probes reach of the data sheet
    asked: tuple[Against, ...] = ()  # the expectations by which its planned rounds asked for re-runs
    no_rerun: str = ""  # a phrase: why none of them decides, where none gave a figure

    def of(self, against: Against) -> Comparison | None:
        rates = (c for c in self.comparisons if c.metric is Metric.SAMPLES_PER_SECOND)
        return next((c for c in rates if c.against is against), None)

    def first(self, *expectations: Comparison | None) -> Comparison | None:
        """The first of them that decides: it shows the node slow, or its noise hides no slowdown of COARSE limits."""
        most = COARSE * self.tolerances.samples_per_second_pct
        return next((c for c in expectations if c and (c.is_off or (c.chance or 0.0) <= most)), None)


class Decision(NamedTuple):
    state: State
    why: Why
    reason: str
    decided_by: tuple[Metric, Against] | None = None  # the comparison that the reason begins with


def is_suspect(planned: Sequence[Comparison]) -> bool:
    """Whether the planned rounds ask for re-runs: slower than anything expected, by more than chance and nearly the
    limit.
    """
    return any(
        c.metric is Metric.SAMPLES_PER_SECOND and c.deviation < -max(SUSPECT_SHARE * c.limit, c.chance or 0.0)
        for c in planned
    )


def decide(facts: Facts) -> Decision:
    found = _slow(facts) or _not_slow(facts)
    if facts.shared and found.state in (State.RED, State.LOOK):  # what others do on its GPU says nothing of the node
        found = _made(Why.SHARED, facts.shared, found.reason)
    elif facts.no_rerun:
        found = found._replace(reason=f"{found.reason}; {facts.no_rerun}")
    if facts.is_drill and found.state is not State.NOT_CHECKED:
        return found._replace(state=State.DRILL, why=Why.SLOW if found.why is Why.SLOW else Why.DRILL)
    return found


def _made(why: Why, *phrases: str, by: Comparison | None = None) -> Decision:
    reason = "; ".join(filter(None, (phrase(by) if by else "", *phrases)))
    return Decision(TRAITS[why].state, why, reason, decided_by=(by.metric, by.against) if by else None)


def _slow(facts: Facts) -> Decision | None:
    """The verdict where the node is slow by the expectation that decides."""
    peers, past, level = (facts.of(against) for against in Against)
    if peers and (facts.is_drill or not facts.only_peer):  # of a drilled node and its peer it is known which one is off
        if not peers.is_off or (past and not past.is_off and facts.has_accepted_level):
            return None
        seen = facts.first(past)
        if seen and not seen.is_off:
            always = f"as it always was ({phrase(seen)}): accept its level if that is meant"
            return _made(Why.SLOW, always, by=peers)
        return _made(Why.SLOW, phrase(seen) if seen else "", facts.since, by=peers)
    if facts.fleet_changed and peers and peers.apart_pct <= peers.visible:
        return None  # it and its only peer have become slower
    decides = facts.first(past, level)
    if decides and decides.is_off:
        return _made(Why.SLOW, facts.since if decides is past else "", by=decides)
    return None


def _not_slow(facts: Facts) -> Decision:
    peers, past, level = (facts.of(against) for against in Against)
    # What the expectations that did not decide say.
    if past and past.is_off:
        return _made(Why.CHANGED if facts.fleet_changed else Why.BEHIND, facts.since, by=past)
    for metric, why in ((Metric.TEMPERATURE_C, Why.HOT), (Metric.MEMORY_GB, Why.HEAVY)):
        if off := [c for c in facts.comparisons if c.metric is metric and c.is_off]:
            worst = max(off, key=lambda c: c.deviation)
            found = _made(why, *(phrase(c) for c in off if c is not worst), by=worst)
            return found._replace(state=State.RED) if metric in facts.tolerances.also_red else found
    if level and level.is_off:
        return _made(Why.BEHIND, by=level)
    is_pair = facts.only_peer and not facts.pair_cleared
    if is_pair and peers and not facts.first(past, level) and peers.apart_pct > peers.visible:
        return _made(Why.PAIR, by=peers)
    if facts.unsteady:
        return _made(Why.UNSTEADY, facts.unsteady)
    for c in (peers, past):
        is_accepted = c is peers and facts.has_accepted_level
        if c and c.deviation < -max(LOOK_SHARE * c.limit, c.chance or 0.0) and not is_accepted:
            return _made(Why.BEHIND, by=c)
    if facts.asked and not facts.no_rerun and not any(c and c.is_off for c in (peers, past, level)):
        return _made(Why.ONCE, *(phrase(c) for c in map(facts.of, facts.asked) if c))
    return _visibly_well(facts)


def _visibly_well(facts: Facts) -> Decision:
    """Well, where a slowdown would have been seen."""
    peers, past, level = (facts.of(against) for against in Against)
    order = (past, level, peers) if facts.only_peer else (peers, past, level)
    known = [c.chance or 0.0 for c in order if c]
    if not known:
        nobody = "no peer, no past, no known level of this GPU at this work"
        return _made(Why.NOTHING_TO_COMPARE, nobody, facts.probes, "from the next night on its own past judges it")
    decides = facts.first(*order)
    if decides is None:
        limit = facts.tolerances.samples_per_second_pct
        return _made(
            Why.NOISY, f"only a slowdown of {share(min(known))} would differ from chance, the limit is {limit:g} %"
        )
    shown = level if decides is past and level and not peers else decides
    return Decision(State.WELL, Why.WELL, well_phrase(shown), decided_by=(shown.metric, shown.against))


def phrase(c: Comparison) -> str:
    """ "samples/s -9.7 % against the median of 3 peers, limit 5 %; -9.8 % first, then -9.1 % and -9.7 %"."""
    unit = METRIC_UNITS[c.metric]
    text = f"{METRIC_NAMES[c.metric]} {signed(c.deviation, unit)} against {c.source}, limit {c.limit:g}{unit}"
    if c.chance is not None and c.chance > c.limit:
        text += f", chance {noise_share(c.chance)}"
    again = [signed(round_, unit) for round_ in c.rounds[1:]]
    return f"{text}; {signed(c.rounds[0], unit)} first, then {listing(again)}" if again else text


def well_phrase(c: Comparison) -> str:
    """ "37.8 samples/s, 99.7 % of the shipped level of NVIDIA H200 (37.9, band 96 to 104 %)"."""
    band = f", band {100 - c.limit:g} to {100 + c.limit:g} %" if c.against is Against.LEVEL else ""
    return f"{figure(c.value, 3)} samples/s, {share(100 + c.deviation)} of {c.source} ({figure(c.expected, 3)}{band})"

"""Good nodes that read fast only because a peer's run was disturbed: the peer's re-run clears them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders.fleets import states
from tests.builders.verdicts import make_group, make_metric, make_node
from trainbench.core.verdicts import (
    Confirmation,
    GroupVerdict,
    Metric,
    NodeVerdict,
    ReferenceMode,
    Side,
    State,
    Tolerances,
)
from trainbench.judging.peers.peer_reruns import settle_peers

LIMITS = Tolerances()


def off(name: str, value: float, reference: float, *more: Any, **fields: Any) -> NodeVerdict:
    """A confirmed breach of samples/s, on the side that the figures say."""
    side = Side.FAST if value > reference else Side.SLOW
    rate = make_metric(value, reference, state=State.BREACH, side=side, reason="samples/s: off")
    confirmed = {"state": State.BREACH, "confirmation": Confirmation.CONFIRMED, "confirm_deviation_pct": 11.0}
    return make_node(name, [rate, *more], **confirmed | fields)


def cleared(name: str, reference: float, again_pct: float | None) -> NodeVerdict:
    """Slow at 8.0 in the first run; its re-run was `again_pct` from the reference. None: it never came."""
    rate = make_metric(8.0, reference, state=State.BREACH, side=Side.SLOW)
    return make_node(
        name, [rate], state=State.NOTICE, confirmation=Confirmation.NOT_CONFIRMED, confirm_deviation_pct=again_pct
    )


def night(*more: Any, fast: float = 10.0, again_pct: float | None = -0.5) -> GroupVerdict:
    """node-1 is slow, node-2's first run was disturbed, nodes 3 and 4 read fast against the median of the others."""
    good = [off(f"node-{i}", fast, 9.0, *more) for i in (3, 4)]
    return make_group([off("node-1", 9.0, 10.0), cleared("node-2", 10.0, again_pct), *good], "group")


def test_those_that_only_read_fast_are_cleared_and_the_slow_one_stays_red() -> None:
    """node-2's re-run is 0.5 % below 10: 9.95. Node-3's others are 9, 9.95 and 10: +0.5 % against their median."""
    actual = settle_peers(night(), LIMITS)
    fast = actual.nodes[2]

    assert states(actual) == [State.BREACH, State.NOTICE, State.NOTICE, State.NOTICE]
    assert (fast.confirmation, fast.metrics[0].state) == (Confirmation.NOT_CONFIRMED, State.NOTICE)
    assert fast.reason == "samples/s: off; but +0.5 % against its peers once their own re-runs count, not confirmed"
    assert actual.nodes[:2] == night().nodes[:2]


@pytest.mark.parametrize(("fast", "is_red"), [(10.5, False), (10.51, True)])
def test_exactly_the_limit_is_within_it(fast: float, is_red: bool) -> None:
    """node-2's re-run at 10, the reference: 10.5 is 5.0 % above it, the limit; 10.51 is 5.1 %."""
    actual = settle_peers(night(fast=fast, again_pct=0.0), LIMITS)
    assert (actual.nodes[2].state is State.BREACH) is is_red


def test_without_a_cleared_peer_nothing_changes() -> None:
    pending = night(again_pct=None)
    assert settle_peers(pending, LIMITS) == pending
    for mode in (ReferenceMode.MEAN, ReferenceMode.MEDIAN, ReferenceMode.FIXED, ReferenceMode.HISTORY):
        assert settle_peers(night(), Tolerances(reference=mode, fixed_samples_per_second=10.0)) == night()


def test_a_node_that_is_hot_as_well_stays_red() -> None:
    hot = make_metric(80.0, 60.0, metric=Metric.TEMPERATURE_C, state=State.BREACH, side=Side.HIGH)
    assert states(settle_peers(night(hot), LIMITS))[2:] == [State.BREACH] * 2


def test_what_could_not_be_judged_of_a_cleared_node_is_not_well() -> None:
    noisy = make_metric(7.2, 7.0, metric=Metric.MEMORY_GB, state=State.INSUFFICIENT, reason="memory: repeats differ")
    actual = settle_peers(night(noisy), LIMITS).nodes[2]
    assert (actual.state, actual.reason) == (State.INSUFFICIENT, "memory: repeats differ")


def test_a_breach_whose_re_run_did_not_come_is_not_cleared() -> None:
    group = night()
    waiting = group.nodes[3].model_copy(update={"confirmation": Confirmation.INCONCLUSIVE})
    actual = settle_peers(group.model_copy(update={"nodes": (*group.nodes[:3], waiting)}), LIMITS)
    assert states(actual) == [State.BREACH, State.NOTICE, State.NOTICE, State.BREACH]


@pytest.mark.parametrize("odd", [{"is_drill": True}, {"is_unsteady": True}])
def test_drilled_and_unsteady_nodes_are_no_reference(odd: dict[str, bool]) -> None:
    """Without node-1 (at 9) the others of node-3 are 9.95 and 10; with it and 5 and 5 besides, 9."""
    group = night()
    bad = [make_node(f"node-{i}", [make_metric(5.0, 9.0)], **odd) for i in (5, 6)]
    actual = settle_peers(group.model_copy(update={"nodes": (*group.nodes, *bad)}), LIMITS)
    assert states(actual)[2:4] == [State.NOTICE] * 2

"""The headline of a fleet."""

from __future__ import annotations

from trainbench.core.states import NodeState, fleet_summary
from trainbench.core.verdicts import State, Why


def test_a_fleet_of_one_node_is_named_and_not_counted() -> None:
    slow = NodeState("gpu-07", State.RED, Why.SLOW, "samples/s −9.1 % against its own past")
    assert fleet_summary([slow]).headline == "gpu-07 is slow (samples/s −9.1 % against its own past)."
    assert fleet_summary([NodeState("gpu-07", State.WELL, Why.WELL)]).headline == "gpu-07 is well."

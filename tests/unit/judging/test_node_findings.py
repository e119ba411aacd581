"""The finding that explains a node's state."""

from __future__ import annotations

from tests.builders import campaigns
from tests.builders.verdicts import make_finding, make_node
from trainbench.core.verdicts import Why
from trainbench.judging.node_findings import finding_of


def test_of_two_works_the_finding_on_the_one_that_is_asked_for_comes_first() -> None:
    node = make_node("node-1", 9.0, peers=10.0, why=Why.SLOW)
    findings = tuple(make_finding("node-1", group_id=work) for work in ("ddp", "single"))
    campaign = campaigns.judged(node, findings=findings)
    (state,) = campaign.node_states
    assert [finding_of(campaign, state, work).group_id for work in ("ddp", "single", "zero3")] == [
        "ddp",
        "single",
        "ddp",
    ]

"""Each fault of tests/kube/faults.toml that one node of a night suffers, and what holds after it: no result is lost,
none counts twice, no pod stays, the run is not green without the node's figure, and one sentence says why.
"""

from __future__ import annotations

import re

import pytest

from bench_image.contract.result import Status
from tests.kube.faults import Fault, one_sentence, sick_nodes
from tests.kube.production.conftest import Night, node_of
from trainbench.core.verdicts import Level, NodeVerdict

pytestmark = pytest.mark.slow
NOT_RED = ("busy", "absent")  # reported, as a warning or as information


@pytest.fixture(params=sick_nodes(), ids=lambda fault: fault.name)
def fault(request: pytest.FixtureRequest) -> Fault:
    made: Fault = request.param
    return made


def verdict(night: Night, fault: Fault) -> NodeVerdict | None:
    return next((node for node in night.campaign.nodes if node.node == fault.node), None)


def reasons(night: Night, fault: Fault) -> list[str]:
    own = verdict(night, fault)
    named = [finding.text for finding in night.campaign.findings if fault.node in finding.nodes]
    return [*([own.reason] if own else []), *named]


def test_the_node_s_verdict_has_its_reason(night: Night, fault: Fault) -> None:
    own, sick = verdict(night, fault), fault.night
    assert sick is not None

    assert (own.why.value if own else "absent") == sick.why, own


def test_no_result_is_lost_and_none_counts_twice(night: Night, fault: Fault) -> None:
    own = [result for result in night.campaign.results if result.spec.identity.node == fault.node]
    planned = [result for result in own if result.spec.identity.round == 1]  # a well node may be a control, too
    sick = fault.night
    assert sick is not None

    assert len(planned) == (0 if sick.why == "absent" else 1)
    assert [result for result in night.stored.results if result.spec.identity.node == fault.node] == own
    assert all(result.status is Status.OK for result in own) or sick.why != "well"


def test_no_pod_stays(night: Night, fault: Fault) -> None:
    assert [pod for pod in night.pods if node_of(pod) == fault.node and not fault.leaves_pod] == []


def test_a_pod_that_stays_is_named(night: Night) -> None:
    """The machine died under its pod, which nobody can end; Kubernetes' 300 s of tolerance are 3 s here."""
    (dead,) = (fault for fault in sick_nodes() if fault.leaves_pod)
    own = verdict(night, dead)
    (left,) = (pod for pod in night.pods if node_of(pod) == dead.node)

    assert own
    assert f"node {dead.node} stopped answering (not ready since" in own.reason
    assert "could not be removed and its program may still run there" in own.reason
    assert left["metadata"]["name"] in own.reason


def test_it_is_not_green_without_the_node_s_figure(night: Night, fault: Fault) -> None:
    sick = fault.night
    assert sick is not None
    levels = {finding.level for finding in night.campaign.findings if fault.node in finding.nodes}

    if sick.why in NOT_RED:
        assert levels
    elif sick.why != "well":
        assert Level.ERROR in levels


def test_the_cause_is_one_sentence(night: Night, fault: Fault) -> None:
    sick = fault.night
    assert sick is not None
    if sick.why == "well":
        assert not any(f.level is Level.ERROR for f in night.campaign.findings if fault.node in f.nodes)
        return
    text = next((reason for reason in reasons(night, fault) if re.search(sick.cause, reason)), None)

    assert text, reasons(night, fault)
    assert all(one_sentence(text).values()), (one_sentence(text), text)

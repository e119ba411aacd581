"""Each fault of tests/kube/faults.toml that one node of a night suffers, and what holds after it: no result is lost,
none counts twice, no pod stays, the run is not green without the node's figure, and one sentence says why.
"""

from __future__ import annotations

import re

import pytest

from bench_image.contract.result import Status
from tests.kube.after_fault import after_fault
from tests.kube.faults import Fault, sick_nodes
from tests.kube.production.conftest import Night, node_of
from trainbench.core.verdicts import Level

pytestmark = pytest.mark.slow
ABSENT = "absent"  # reported, and not red


@pytest.mark.parametrize("fault", sick_nodes(), ids=lambda fault: fault.name)
def test_what_holds_after_the_fault_of_one_node(night: Night, fault: Fault) -> None:
    sick = fault.night
    assert sick is not None
    own = next((node for node in night.campaign.nodes if node.node == fault.node), None)
    findings = [finding for finding in night.campaign.findings if fault.node in finding.nodes]
    results = [result for result in night.campaign.results if result.spec.identity.node == fault.node]
    planned = [result for result in results if result.spec.identity.round == 1]  # a well node may be a control, too
    left = [pod["metadata"]["name"] for pod in night.pods if node_of(pod) == fault.node]
    is_red = any(finding.level is Level.ERROR for finding in findings)

    assert (own.why.value if own else ABSENT) == sick.why, own
    assert len(planned) == (sick.why != ABSENT)
    assert [result for result in night.stored.results if result.spec.identity.node == fault.node] == results
    after_fault(fault.name, pods=() if fault.leaves_pod else left)
    if sick.why == "well":
        assert all(result.status is Status.OK for result in results)
        assert not is_red
        return
    assert findings if sick.why == ABSENT else is_red
    reasons = [*([own.reason] if own else []), *(finding.text for finding in findings)]
    causes = [reason for reason in reasons if re.search(sick.cause, reason)]
    assert causes, reasons
    after_fault(fault.name, cause=causes[0])


def test_a_pod_that_stays_is_named(night: Night) -> None:
    """The machine died under its pod, which nobody can end; Kubernetes' 300 s of tolerance are 3 s here."""
    (dead,) = (fault for fault in sick_nodes() if fault.leaves_pod)
    own = next(node for node in night.campaign.nodes if node.node == dead.node)
    (left,) = (pod for pod in night.pods if node_of(pod) == dead.node)

    assert f"node {dead.node} stopped answering (not ready since" in own.reason
    assert "could not be removed and its program may still run there" in own.reason
    assert left["metadata"]["name"] in own.reason

"""An open warning tonight, when the history no longer holds the level before the step."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.builders import make_result
from trainbench.core.verdicts import RateChange
from trainbench.judging.over_time.lasting_slowdowns import Slowdown, lasting, lasting_slowdown_findings
from trainbench.judging.over_time.node_history import NodeRecord, records_of
from trainbench.judging.warning_findings import KIND_OF, WarningKind

WORK = make_result().effective_spec.fingerprint
DAY = datetime(2026, 11, 1, 3, tzinfo=UTC)


def slowdown(node: str = "node-1", *, before: float = 10.0, day: int = 1, work: str = WORK) -> Slowdown:
    change = RateChange(node=node, fingerprint=work, before=before, after=8.0, limit_pct=1.5)
    return Slowdown(change, DAY + timedelta(days=day - 1))


def tonight(**rates: float) -> tuple[NodeRecord, ...]:
    return records_of([make_result(node.replace("_", "-"), rate) for node, rate in rates.items()], DAY)


@pytest.mark.parametrize(("rate", "is_still_slower"), [(8.0, True), (9.92, True), (9.925, False), (10.5, False)])
def test_it_lasts_until_the_rate_is_within_half_of_the_limit_of_the_level_before(
    rate: float, is_still_slower: bool
) -> None:
    """1.5 % / 2 below 10 is 9.925, where the warning is closed as well."""
    still = lasting([slowdown()], tonight(node_1=rate), ())
    assert [each.change.after for each in still] == ([rate] if is_still_slower else [])


def test_a_slowdown_reported_tonight_or_unmeasured_is_not_repeated() -> None:
    assert lasting([slowdown()], tonight(node_1=8.0), {("node-1", WORK)}) == ()
    assert lasting([slowdown("node-2")], tonight(node_1=8.0), ()) == ()
    assert lasting([slowdown(work="other")], tonight(node_1=8.0), ()) == ()


def test_a_node_that_is_back_does_not_end_the_warnings_of_others() -> None:
    """node-1 was warned of first, and is back; node-2 is not."""
    still = lasting([slowdown("node-1"), slowdown("node-2", day=2)], tonight(node_1=10.0, node_2=8.0), ())
    assert [each.change.node for each in still] == ["node-2"]


def test_of_a_renamed_node_the_warning_under_its_old_name_lasts_once() -> None:
    both = [slowdown("new", before=9.0, day=5), slowdown("old", day=2)]
    (still,) = lasting(both, tonight(new=8.0), (), {"old": "new"})
    assert (still.change.node, still.change.before, still.since.day) == ("new", 10.0, 2)


def test_nodes_that_were_warned_of_on_one_day_share_a_sentence() -> None:
    """8 / 10 - 1 = -20 %; 8.5 / 10 - 1 = -15 %."""
    before = [slowdown("node-1"), slowdown("node-2"), slowdown("node-3", day=2)]
    first, second = lasting_slowdown_findings(lasting(before, tonight(node_1=8.0, node_2=8.5, node_3=9.0), ()))
    assert f"{first.subject} {first.summary}" == (
        "node-1 and node-2 are still 15.0 to 20.0 % slower than before 1 Nov 2026"
    )
    assert (first.measured, first.expected) == ("8.000 samples/s, on node-1", "10.00 samples/s, as before 1 Nov 2026")
    assert f"{second.subject} {second.summary}" == "node-3 is still 10.0 % slower than before 2 Nov 2026"
    assert KIND_OF[first.category] is WarningKind.SLOW
    assert [change.node for change in first.changes] == ["node-1", "node-2"]

"""Accepted baselines: what was before is no past of that node and work, and of no other; it can be taken back."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bench_image.contract.result import RunResult
from tests.builders import make_failed, make_result
from tests.builders.nights import ENDED_AT, night
from tests.builders.recorded_nights import past as past_of
from tests.builders.recorded_nights import records, stored
from trainbench.core.user_error import EntryError, UnknownEntryError
from trainbench.core.verdicts import Why
from trainbench.history.history import History, open_history
from trainbench.history.tables import notices
from trainbench.results.campaign import Campaign

NODES = ("node-1", "node-2")
WHO, WHY = "ada", "the new power limit is intended"


@pytest.fixture
def blank(url: str) -> History:
    return open_history(url)


@pytest.fixture
def history(blank: History) -> History:
    """Three nights at 10 samples/s, then three at 9 of both nodes: behind their past, told of in the second of them."""
    for day in range(1, 7):
        blank.record(checked(day, {node: make_result(node, 9.0 if day > 3 else 10.0) for node in NODES}))
    return blank


def checked(day: int, runs: dict[str, RunResult], **fields: Any) -> Campaign:
    """A night of these runs: what is slower than 10 samples/s is behind its past."""
    results = [run.model_copy(update={"spec": run.spec.changed(identity={"node": node})}) for node, run in runs.items()]
    slow = [node for node, run in runs.items() if (run.performance.samples_per_second or 0.0) < 10.0]
    expected = {node: {"past": 10.0} for node in slow}
    return night(day, results, dict.fromkeys(slow, Why.BEHIND), reference=9.0, expected=expected, **fields)


def on(day: int, **hours: float) -> datetime:
    return ENDED_AT + timedelta(days=day - 1, **hours)


def tonight(node: str = "node-1", **changes: Any) -> RunResult:
    return make_result(node, **changes).model_copy(update={"started_at": on(7)})


def past(history: History, node: str = "node-1", **changes: Any) -> list[float]:
    return past_of(history, tonight(node, **changes), node)


def trail(history: History, node: str) -> list[float]:
    return [record.samples_per_second for record in records(history, tonight(), node)]


def ends(history: History) -> dict[str, str | None]:
    return {row["node"]: row["ended"] for row in stored(history, notices)}


def test_without_a_notice_the_last_night_is_the_new_level(blank: History) -> None:
    for day in (1, 2):
        blank.record(checked(day, {"node-1": make_result("node-1", 10.0)}))
    assert blank.accept_baseline("node-1", WHO, WHY, on(2, hours=5)).since == on(2, minutes=-29)


def test_a_slow_run_that_began_when_its_level_was_accepted_counts(history: History) -> None:
    """The run of night 6 began 29 minutes before the night's end."""
    history.accept_baseline("node-1", WHO, WHY, on(6, minutes=-29))
    assert past(history) == [9.0, 9.0]


@pytest.mark.both_databases
def test_an_accepted_level_begins_with_the_night_that_was_told_of_and_its_nights_count(
    history: History,
) -> None:
    accepted = history.accept_baseline("node-1", WHO, WHY, on(6, hours=5))
    assert (accepted.node, accepted.who, accepted.why, accepted.since.date()) == ("node-1", WHO, WHY, on(5).date())
    assert past(history) == [9.0, 9.0]
    assert trail(history, "node-1") == [9.0, 9.0]
    assert accepted.description == f"Baseline of node-1 since 5 Nov 2026, accepted by ada on 6 Nov 2026: {WHY}"


def test_one_accepted_baseline_does_nothing_to_the_others(history: History) -> None:
    history.accept_baseline("node-1", WHO, WHY, on(6, hours=5))
    assert past(history, "node-2") == [10.0] * 3
    assert trail(history, "node-2") == [10.0] * 3 + [9.0] * 3
    assert ends(history) == {"node-1": f"accepted as the new level by ada: {WHY}", "node-2": None}


def test_of_all_nodes_it_holds_for_each_of_them(history: History) -> None:
    history.accept_baseline(None, WHO, WHY, on(6, hours=5))
    assert [past(history, node) for node in NODES] == [[9.0, 9.0]] * 2
    assert set(ends(history).values()) == {f"accepted as the new level by ada: {WHY}"}


@pytest.mark.both_databases
def test_of_one_work_it_says_nothing_of_another(history: History) -> None:
    history.record(night(6, [make_result("node-1", 5.0, seq_length=2048)], campaign_id="other", suite="other"))
    other = make_result(seq_length=2048).effective_spec.fingerprint
    history.accept_baseline("node-1", WHO, WHY, on(6, hours=5), since=on(6, hours=4), fingerprint=other)
    assert past(history) == [10.0] * 3
    assert past(history, seq_length=2048) == []
    assert ends(history)["node-1"] is None


def test_what_is_slow_after_a_level_was_accepted_is_no_part_of_it(history: History) -> None:
    history.accept_baseline("node-1", WHO, WHY, on(5, hours=5))
    assert past(history) == [9.0]


def test_since_can_be_given(history: History) -> None:
    history.accept_baseline("node-1", WHO, WHY, on(6, hours=5), since=on(3, hours=-2))
    assert past(history) == [10.0, 9.0, 9.0, 9.0]


def test_an_older_campaign_is_judged_by_its_own_past(history: History) -> None:
    history.accept_baseline("node-1", WHO, WHY, on(6, hours=5))
    early = make_result("node-1").model_copy(update={"started_at": on(4)})
    assert past_of(history, early) == [10.0] * 3


def test_taken_back_the_past_counts_again_and_both_are_kept(history: History) -> None:
    accepted = history.accept_baseline("node-1", WHO, WHY, on(6, hours=5))
    revoked = history.revoke_baseline(accepted.id, "bob", on(6, hours=6))
    assert past(history) == [10.0] * 3
    assert history.baselines() == (revoked,)
    assert (revoked.who, revoked.revoked_by, revoked.revoked_at) == (WHO, "bob", on(6, hours=6))

    with pytest.raises(EntryError, match="taken back by bob on 2026-11-06"):
        history.revoke_baseline(accepted.id, "bob", on(6, hours=7))


@pytest.mark.parametrize(
    ("node", "who", "why", "since", "message"),
    [
        ("node-9", WHO, WHY, None, "nothing was ever measured on 'node-9': choose from node-1, node-2"),
        ("node-1", WHO, "  ", None, "the reason has 0 characters: 1 to 500"),
        ("node-1", WHO, "x" * 501, None, "the reason has 501 characters"),
        ("node-1", WHO, "a\x00b", None, "in plain text"),
        ("node-1", "", WHY, None, "the name of who accepts has 0 characters"),
        ("node-1", WHO, WHY, on(9), "lies in the future"),
    ],
)
def test_what_is_refused_says_why(
    history: History, node: str, who: str, why: str, since: datetime | None, message: str
) -> None:
    with pytest.raises(EntryError, match=message):
        history.accept_baseline(node, who, why, on(6, hours=5), since)
    assert history.baselines() == ()
    assert set(ends(history).values()) == {None}


def test_a_history_without_runs_offers_none(tmp_path: Path) -> None:
    with pytest.raises(UnknownEntryError, match="on 'node-9': no run of this installation is recorded"):
        open_history(f"sqlite:///{tmp_path / 'new.db'}").accept_baseline("node-9", WHO, WHY, on(6), None)


def test_an_unknown_number_or_work_names_what_there_is(history: History) -> None:
    with pytest.raises(UnknownEntryError, match="there is no baseline 7: choose from none"):
        history.revoke_baseline(7, WHO, on(6))
    with pytest.raises(UnknownEntryError, match="the work 'abc' was never measured there"):
        history.accept_baseline("node-1", WHO, WHY, on(6, hours=5), fingerprint="abc")


# --- renamed nodes ----------------------------------------------------------------------------------------------------


def renamed(day: int, name: str, rate: float, machine: str = "machine-a", **fields: Any) -> Campaign:
    """A night of one machine under some name."""
    return checked(day, {name: make_result(machine, rate)}, **fields)


def test_a_renamed_node_s_old_past_is_put_aside_by_the_baseline_that_was_accepted_for_it(blank: History) -> None:
    """Three nights at 10 as old, three at 9 as new, which is the same GPU: the past under the old name goes as well."""
    for day in range(1, 7):
        blank.record(renamed(day, "old", 10.0) if day < 4 else renamed(day, "new", 9.0))
    assert past(blank, "old") == [10.0] * 3
    accepted = blank.accept_baseline("new", WHO, WHY, on(6, hours=5))

    assert accepted.other_names == ("old",)
    assert accepted.description.startswith("Baseline of new (the same GPUs were named old) since 5 Nov 2026")
    assert blank.baselines() == (accepted,)
    assert past(blank, "old") == []
    assert (trail(blank, "old"), trail(blank, "new")) == ([], [9.0, 9.0])

    blank.revoke_baseline(accepted.id, WHO, on(6, hours=6))
    assert past(blank, "old") == [10.0] * 3


def test_a_notice_under_the_old_name_is_closed_and_dates_the_level_that_is_accepted(blank: History) -> None:
    for day in range(1, 7):
        blank.record(renamed(day, "old" if day < 6 else "new", 10.0 if day < 4 else 9.0))
    accepted = blank.accept_baseline("new", WHO, WHY, on(6, hours=5))

    assert accepted.since.date() == on(5).date()
    assert set(ends(blank).values()) == {f"accepted as the new level by ada: {WHY}"}


def test_a_name_that_is_in_use_beside_it_is_another_node_although_it_had_one_of_its_gpus(blank: History) -> None:
    """A GPU that was moved from one node to another makes them no single node."""
    blank.record(renamed(1, "node-1", 10.0, "machine-a", campaign_id="a"))
    blank.record(renamed(2, "node-2", 10.0, "machine-a", campaign_id="b"))
    blank.record(renamed(3, "node-1", 10.0, "machine-b", campaign_id="c"))

    assert blank.accept_baseline("node-2", WHO, WHY, on(6)).other_names == ()
    assert blank.accept_baseline("node-1", WHO, WHY, on(6)).other_names == ()


def test_a_node_that_was_renamed_twice_has_three_names_whichever_of_them_is_given(blank: History) -> None:
    for day, name in enumerate(("first", "second", "third"), start=1):
        blank.record(renamed(day, name, 10.0))
    blank.record(checked(4, {"third": make_failed("machine-a")}))  # whose GPUs nobody knows

    assert blank.accept_baseline("third", WHO, WHY, on(6)).other_names == ("first", "second")
    assert blank.accept_baseline("first", WHO, WHY, on(6)).other_names == ("second", "third")

"""A notice has a message when it opens, turns red and ends; a failed one is sent again, a sent one is not."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import insert, select

from tests.builders.nights import ENDED_AT, night
from trainbench.alerting.notice_text import Event, Message
from trainbench.alerting.outbox import Due, Outbox, Sent, send_due
from trainbench.core.verdicts import Level, Why
from trainbench.history.history import History
from trainbench.history.tables import acknowledgements, messages
from trainbench.settings.channels import Channel, Mail, Webhook

RATES = {"node-1": 10.0, "node-2": 9.0, "node-3": 10.1}
WELL = RATES | {"node-2": 10.0}
RED = {"node-2": Why.SLOW}
SLOW = "node-2 is slow: samples/s −10.0 % against its peers (node_consistency)"
AGAIN = "node-2: well again (node_consistency)"
MAIL = Mail(kind="mail", to=("oncall@example.org",))
HOOK = Webhook(kind="webhook", connection="oncall", at_least=Level.WARNING)
DAG = "node_consistency"


class Post:
    """Keeps what was sent; a channel whose name is in `broken` refuses."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self.broken: dict[str, Exception] = {}

    def __call__(self, channel: Channel, content: Message) -> None:
        if channel.name in self.broken:
            raise self.broken[channel.name]
        self.sent.append((channel.kind, content.subject.removeprefix("[trainbench] ")))


@pytest.fixture
def post() -> Post:
    return Post()


def on(day: int) -> datetime:
    return ENDED_AT + timedelta(days=day - 1, minutes=5)


def tell(history: History, post: Post, day: int, *channels: Channel, dag_id: str = DAG) -> Sent:
    return send_due(Outbox(history.engine), dag_id, channels or (MAIL,), None, on(day), post)


def run(history: History, post: Post, *nights: dict[str, Why], channels: tuple[Channel, ...] = (MAIL,)) -> None:
    """Record the nights and tell of each. node-2 is at 9 samples/s in those in which it is not well."""
    for day, whys in enumerate(nights, start=1):
        history.record(night(day, RATES if whys else WELL, whys))
        tell(history, post, day, *channels)


def test_once_when_it_opens_and_once_when_it_is_over_and_nothing_in_between(history: History, post: Post) -> None:
    for day, whys in enumerate([{}, RED, RED, {}, RED, {}, {}, {}], start=1):
        history.record(night(day, RATES if whys else WELL, whys))
        tell(history, post, day)
        tell(history, post, day)

    assert post.sent == [("mail", SLOW), ("mail", AGAIN)]


def test_a_look_that_turns_red_is_told_once_more_and_newly_to_who_hears_of_red(history: History, post: Post) -> None:
    look = {"node-2": Why.BEHIND}
    run(history, post, look, look, look, RED, RED, look, RED, {}, {}, channels=(MAIL, HOOK))

    behind = "node-2 lags behind: samples/s −10.0 % against its peers (node_consistency)"
    assert [subject for kind, subject in post.sent if kind == "mail"] == [SLOW, AGAIN]
    assert [subject for kind, subject in post.sent if kind == "webhook"] == [behind, f"now red: {SLOW}", AGAIN]


def test_who_acknowledged_a_look_hears_that_it_turned_red(history: History, post: Post) -> None:
    look = {"node-2": Why.BEHIND}
    for day, whys in enumerate([look, look, RED], start=1):
        history.record(night(day, RATES, whys))
        if day == 2:
            acknowledge(history)
        tell(history, post, day, HOOK)

    assert [subject for _, subject in post.sent] == [SLOW]


@pytest.mark.both_databases
def test_a_failed_notice_is_sent_by_the_next_try_and_the_others_not_twice(history: History, post: Post) -> None:
    history.record(night(1, RATES, RED))
    post.broken[MAIL.name] = ConnectionRefusedError("no route to https://hooks.example.org/services/SECRET")
    failed = tell(history, post, 1, MAIL, HOOK)
    post.broken.clear()
    again = tell(history, post, 1, MAIL, HOOK)

    assert failed.problems == (f"{MAIL.name}: 1 notice (opened): ConnectionRefusedError: no route to …",)
    assert again.problems == ()
    assert [kind for kind, _ in post.sent] == ["webhook", "mail"]
    with history.engine.connect() as connection:
        tries = {row.channel: row.num_tries for row in connection.execute(select(messages))}
    assert tries == {HOOK.name: 1, MAIL.name: 2}


def test_a_sender_that_was_stopped_leaves_a_notice_that_is_reported_and_not_sent_twice(
    history: History, post: Post
) -> None:
    history.record(night(1, RATES, RED))
    Outbox(history.engine).take(DAG, MAIL, on(1))
    outcome = tell(history, post, 2)

    assert post.sent == []
    assert len(outcome.lines) == 1
    assert "the notice on node-2 (opened) may not have been sent" in outcome.lines[0]


def test_an_acknowledged_notice_sends_no_more(history: History, post: Post) -> None:
    history.record(night(1, RATES, RED))
    acknowledge(history)
    tell(history, post, 1)
    for day in (2, 3):
        history.record(night(day, WELL))
    tell(history, post, 3)

    assert post.sent == []


def test_what_was_acknowledged_after_its_message_is_reported_as_closed(history: History, post: Post) -> None:
    history.record(night(1, RATES, RED))
    tell(history, post, 1)
    acknowledge(history)
    for day in (2, 3):
        history.record(night(day, WELL))
    tell(history, post, 3)

    assert [subject for _, subject in post.sent] == [SLOW, AGAIN]


def test_what_opened_and_closed_while_the_channel_failed_sends_nothing(history: History, post: Post) -> None:
    post.broken[MAIL.name] = TimeoutError("no answer")
    history.record(night(1, {"node-1": 10.0}, {"node-2": Why.MISSING}))
    tell(history, post, 1)
    post.broken.clear()
    history.record(night(2, WELL))

    assert tell(history, post, 2).lines == ()
    assert post.sent == []


@pytest.mark.parametrize(("day", "num_sent"), [(7, 1), (8, 0)])
def test_what_is_older_than_seven_days_of_a_rebuilt_history_is_not_sent(
    day: int, num_sent: int, history: History, post: Post
) -> None:
    """Five minutes after the night of day 8 that of day 1 is over seven days ago."""
    history.record(night(1, RATES, RED))
    tell(history, post, day)

    assert len(post.sent) == num_sent


def test_each_dag_tells_of_its_own(history: History, post: Post) -> None:
    history.record(night(1, RATES, RED))
    tell(history, post, 1, dag_id="another_dag")

    assert post.sent == []


def test_the_message_of_a_drill_says_that_it_is_one(history: History, post: Post) -> None:
    history.record(night(1, RATES, RED, drilled=["node-2"]))
    tell(history, post, 1)

    assert [subject for _, subject in post.sent] == [f"DRILL: {SLOW}"]


def test_many_notices_of_a_night_are_one_message_and_each_is_marked(history: History, post: Post) -> None:
    rates = {f"node-{i}": 9.0 for i in range(30)}
    history.record(night(1, rates, dict.fromkeys(rates, Why.SLOW)))
    tell(history, post, 1)

    assert len(post.sent) == 1
    with history.engine.connect() as connection:
        rows = connection.execute(select(messages)).all()
    assert len(rows) == 30
    assert {(row.event, row.sent_at, row.num_tries) for row in rows} == {(Event.OPENED.value, on(1), 1)}


def test_unsent_notices_are_listed_with_their_problem(history: History, post: Post) -> None:
    history.record(night(1, RATES, RED))
    post.broken[MAIL.name] = TimeoutError("no answer")
    tell(history, post, 1, MAIL, HOOK)
    (row,) = Outbox(history.engine).unsent(on(0), on(2))

    assert (row.channel, row.node, row.event, row.problem) == (
        MAIL.name, "node-2", "opened", "TimeoutError: no answer",
    )  # fmt: skip
    assert Outbox(history.engine).unsent(on(0), on(1)) == ()


def acknowledge(history: History) -> None:
    (notice,) = history.open_notices()
    values: dict[str, Any] = {"notice_id": notice.id, "node": notice.node, "state": notice.state.value}
    with history.engine.execution_options(is_write=True).begin() as connection:
        connection.execute(insert(acknowledgements).values(values | {"who": "ada", "at": on(1), "reason": "known"}))


def test_of_a_node_that_was_taken_out_nobody_says_that_it_is_well(history: History, post: Post) -> None:
    history.record(night(1, RATES, RED))
    tell(history, post, 1)
    history.record(night(9, {"node-1": 10.0, "node-3": 10.1}))
    tell(history, post, 9)

    assert post.sent[-1] == ("mail", "node-2: no longer in the cluster (node_consistency)")


@pytest.mark.both_databases
def test_of_two_senders_at_once_one_sends(history: History, post: Post) -> None:
    """Two DAG runs whose tasks `notify` overlap, for a new notice and for one that failed before."""
    history.record(night(1, RATES, RED))
    outbox = Outbox(history.engine)

    def taken_by_four() -> list[Due]:
        at_once = threading.Barrier(4)

        def take(_: int) -> tuple[Due, ...]:
            at_once.wait()
            return outbox.take(DAG, MAIL, on(1))

        with ThreadPoolExecutor(4) as senders:
            return [due for taken in senders.map(take, range(4)) for due in taken]

    for _ in range(5):
        (due,) = taken_by_four()
        outbox.end([due], MAIL, on(1), "refused")

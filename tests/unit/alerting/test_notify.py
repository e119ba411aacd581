"""A breach has one notice when it opens and one when it is over; a failed one is sent again, a sent one is not."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select

from tests.builders.breaches import make_breach
from tests.builders.databases import DATABASES, empty_database
from tests.builders.nights import ENDED_AT, night
from tests.builders.verdicts import slower_than_it_was
from trainbench.alerting.notice_text import Event, Message, Notice, message
from trainbench.alerting.notify import Sent, _notifier, send_due
from trainbench.alerting.outbox import Outbox
from trainbench.core.verdicts import NO_FIGURE, Finding, Level, State
from trainbench.history.history import History, open_history
from trainbench.history.notice_tables import notices
from trainbench.history.run_tables import breaches
from trainbench.history.summary_tables import acknowledgements
from trainbench.settings.channels import Channel, Mail, Slack, Webhook

RATES = {"node-1": 10.0, "node-2": 9.0, "node-3": 10.1}
RED = {"node-2": State.BREACH}
MAIL = Mail(kind="mail", to=("oncall@example.org",))
HOOK = Webhook(kind="webhook", connection="oncall", at_least=Level.WARNING)
DAG = "node_consistency"


@pytest.fixture(params=DATABASES)
def history(request: pytest.FixtureRequest, tmp_path: Path) -> History:
    return open_history(empty_database(request.param, tmp_path))


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


def test_once_when_it_opens_and_once_when_it_is_over_and_nothing_in_between(history: History, post: Post) -> None:
    for day, states in enumerate([{}, RED, RED, RED, {}, {}], start=1):
        history.record(night(day, RATES, states))
        tell(history, post, day)
        tell(history, post, day)

    assert post.sent == [
        ("mail", "node-2: samples/s −10.0 % against its peers (node_consistency)"),
        ("mail", "node-2: well again (node_consistency)"),
    ]


def test_a_node_that_breaks_again_is_a_new_breach(history: History, post: Post) -> None:
    for day, states in enumerate([RED, {}, RED], start=1):
        history.record(night(day, RATES, states))
        tell(history, post, day)

    assert [subject.split(":")[1].split(" ")[1] for _, subject in post.sent] == ["samples/s", "well", "samples/s"]


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
        tries = {row.channel: row.num_tries for row in connection.execute(select(notices))}
    assert tries == {HOOK.name: 1, MAIL.name: 2}


def test_a_sender_that_was_stopped_leaves_a_notice_that_is_reported_and_not_sent_twice(
    history: History, post: Post
) -> None:
    history.record(night(1, RATES, RED))
    Outbox(history.engine).take(DAG, MAIL, on(1))
    outcome = tell(history, post, 2)

    assert post.sent == []
    assert len(outcome.lines) == 1
    assert "the notice on node-2 (breach opened) may not have been sent" in outcome.lines[0]


def test_an_acknowledged_breach_sends_no_more_notices(history: History, post: Post) -> None:
    history.record(night(1, RATES, RED))
    acknowledge(history)
    tell(history, post, 1)
    history.record(night(2, RATES))
    tell(history, post, 2)

    assert post.sent == []


def test_a_breach_that_was_acknowledged_after_its_notice_is_reported_as_closed(history: History, post: Post) -> None:
    history.record(night(1, RATES, RED))
    tell(history, post, 1)
    acknowledge(history)
    history.record(night(2, RATES))
    tell(history, post, 2)

    assert [subject for _, subject in post.sent][1:] == ["node-2: well again (node_consistency)"]


def test_a_breach_that_opened_and_closed_while_the_channel_failed_sends_nothing(history: History, post: Post) -> None:
    post.broken[MAIL.name] = TimeoutError("no answer")
    history.record(night(1, RATES, RED))
    tell(history, post, 1)
    post.broken.clear()
    history.record(night(2, RATES))

    assert tell(history, post, 2).lines == ()
    assert post.sent == []


@pytest.mark.parametrize(("day", "end"), [(91, "well again"), (92, "as fast again as before")])
def test_the_end_of_a_breach_waits_for_that_of_the_nodes_warning_at_most_90_days(
    day: int, end: str, history: History, post: Post
) -> None:
    """The breach ends on day 2. Five minutes after the night of day 91 that is 89 days ago, on day 92 more than 90."""
    slower = (slower_than_it_was("node-2"),)
    for at, states, findings in ((1, RED, slower), (2, {}, slower), (day, {}, ())):
        history.record(night(at, RATES, states, findings=findings))
        tell(history, post, at, HOOK)

    assert [subject for _, subject in post.sent][2:] == [f"node-2: {end} (node_consistency)"]


@pytest.mark.parametrize(("day", "num_sent"), [(7, 1), (8, 0)])
def test_breaches_older_than_seven_days_of_a_rebuilt_history_send_no_notices(
    day: int, num_sent: int, history: History, post: Post
) -> None:
    """Five minutes after the night of day 8 that of day 1 is over seven days ago."""
    history.record(night(1, RATES, RED))
    tell(history, post, day)

    assert len(post.sent) == num_sent


def test_each_dag_notifies_of_its_own_breaches(history: History, post: Post) -> None:
    history.record(night(1, RATES, RED))
    tell(history, post, 1, dag_id="another_dag")

    assert post.sent == []


def test_warnings_go_to_their_subscribers(history: History, post: Post) -> None:
    slower = slower_than_it_was("node-3")
    for day, findings in enumerate([[slower], [slower], []], start=1):
        history.record(night(day, RATES, findings=tuple(findings)))
        tell(history, post, day, MAIL, HOOK)

    assert post.sent == [
        ("webhook", "node-3: is slower than it was (node_consistency)"),
        ("webhook", "node-3: as fast again as before (node_consistency)"),
    ]


def test_an_alarm_of_a_whole_run_goes_to_every_channel_and_ends_with_the_next_run(history: History, post: Post) -> None:
    alarm = Finding(
        level=Level.ERROR,
        category=NO_FIGURE,
        item="night-1",
        measured="no figure",
        expected="a figure",
        summary="no run gave a figure",
        cause="4 runs found no free node",
        resolution="run it again when nodes are free",
    )
    for day, findings in enumerate([[alarm], [alarm], []], start=1):
        history.record(night(day, RATES, findings=tuple(findings)))
        tell(history, post, day, MAIL)

    assert post.sent == [
        ("mail", "night-1: no run gave a figure (node_consistency)"),
        ("mail", "night-1: a later run gave figures (node_consistency)"),
    ]


def test_the_notice_of_a_drill_says_that_it_is_one(history: History, post: Post) -> None:
    history.record(night(1, RATES, RED, drilled=["node-2"]))
    tell(history, post, 1)

    assert post.sent[0][1].startswith("DRILL: node-2: ")


def test_many_breaches_of_a_night_are_one_message_and_each_is_marked(history: History, post: Post) -> None:
    rates = {f"node-{i}": 9.0 for i in range(30)}
    history.record(night(1, rates, dict.fromkeys(rates, State.BREACH)))
    tell(history, post, 1)

    assert len(post.sent) == 1
    with history.engine.connect() as connection:
        rows = connection.execute(select(notices)).all()
    assert len(rows) == 30
    assert {(row.event, row.sent_at, row.num_tries) for row in rows} == {(Event.OPENED.value, on(1), 1)}


def test_the_doctor_lists_unsent_notices(history: History, post: Post) -> None:
    history.record(night(1, RATES, RED))
    post.broken[MAIL.name] = TimeoutError("no answer")
    tell(history, post, 1, MAIL, HOOK)
    (row,) = Outbox(history.engine).unsent(on(0), on(2))

    assert (row.channel, row.node, row.event, row.problem) == (
        MAIL.name, "node-2", "opened", "TimeoutError: no answer",
    )  # fmt: skip
    assert Outbox(history.engine).unsent(on(0), on(1)) == ()


def acknowledge(history: History) -> None:
    with history.engine.execution_options(is_write=True).begin() as connection:
        breach: Any = connection.execute(select(breaches)).one()
        values = {"breach_id": breach.id, "node": breach.node, "group_id": breach.group_id}
        connection.execute(insert(acknowledgements).values(values | {"who": "ada", "at": on(1), "reason": "known"}))


def test_of_a_node_that_was_taken_out_nobody_says_that_it_is_well(history: History, post: Post) -> None:
    history.record(night(1, RATES, RED))
    tell(history, post, 1)
    history.record(night(9, {"node-1": 10.0, "node-3": 10.1}))
    tell(history, post, 9)

    assert post.sent[-1] == ("mail", "node-2: no longer in the cluster (node_consistency)")


@pytest.mark.parametrize(("channel", "notifier"), [(None, "SlackWebhookNotifier"), ("#gpu", "SlackNotifier")])
def test_slack_gets_it_by_its_webhook_or_with_a_channel_by_its_api(channel: str | None, notifier: str) -> None:
    content = message([(make_breach("node-3"),)], None)
    made = _notifier(Slack(kind="slack", connection="sink", channel=channel), content)

    assert (type(made).__name__, made.text) == (notifier, content.slack)


def test_of_two_senders_at_once_one_sends(history: History, post: Post) -> None:
    """Two DAG runs whose tasks `notify` overlap, for a new notice and for one that failed before."""
    history.record(night(1, RATES, RED))
    outbox = Outbox(history.engine)

    def taken_by_four() -> list[Notice]:
        at_once = threading.Barrier(4)

        def take(_: int) -> tuple[Notice, ...]:
            at_once.wait()
            return outbox.take(DAG, MAIL, on(1))

        with ThreadPoolExecutor(4) as senders:
            return [notice for taken in senders.map(take, range(4)) for notice in taken]

    for _ in range(5):
        (notice,) = taken_by_four()
        outbox.failed([notice], MAIL, "refused")

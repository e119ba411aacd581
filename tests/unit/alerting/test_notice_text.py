"""The text about notices: the same on every channel, whatever a result may hold."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tests.builders.notices import make_notice
from tests.conftest import Golden
from trainbench.alerting.notice_text import Event, message
from trainbench.core.verdicts import DRILL_UNDETECTED, Level, State, Why
from trainbench.history.notices import Notice

HOSTILE = "<script>alert('x')</script> {{ 7 * 7 }} <!channel>\r\nBcc: x@example.org"
OPENED, WORSENED, CLOSED = Event


def slow(node: str = "node-3", **changes: Any) -> Notice:
    fields: dict[str, Any] = {
        "id": 12,
        "reason": "samples/s −9.7 % against the median of 3 peers, confirmed by a re-run",
        "cause": "The GPU of node-3 slows itself down because it is hot",
        "resolution": "Check fans, filters and the air flow of node-3, then run it again",
        "gpu_name": "NVIDIA H200", "model": "mistral-7b", "recipe": "qlora", "strategy": "single",
        "opened_at": datetime(2026, 11, 21, 2, 12, tzinfo=UTC),
    }  # fmt: skip
    return make_notice(node, Why.SLOW, -9.66, **fields | changes)


def closed(**changes: Any) -> Notice:
    closed_at = datetime(2026, 11, 22, 2, 12, tzinfo=UTC)
    return slow(**{"closed_at": closed_at, "ended": "well again"} | changes)


def subject(*notices: Notice, event: Event = OPENED) -> str:
    text = message(notices, event, None).subject
    assert text.startswith("[trainbench] ")
    assert text.endswith(" (node_consistency)")
    return text.removeprefix("[trainbench] ").removesuffix(" (node_consistency)")


def test_the_subject_says_node_state_and_figure() -> None:
    one = "node-3 is slow: samples/s −9.7 % against its peers"
    assert subject(slow()) == one
    assert subject(slow(is_drill=True)) == f"DRILL: {one}"
    assert subject(slow(), event=WORSENED) == f"now red: {one}"
    assert subject(closed(), event=CLOSED) == "node-3: well again"
    assert subject(closed(), closed(node="node-4"), event=CLOSED) == "node-3 and node-4: well again"
    failed = [make_notice(f"node-{i}", Why.FAILED, reason="out of memory") for i in (4, 5, 6)]
    assert subject(slow(), failed[0]) == f"2 to look at: {one} and node-4 failed: out of memory"
    assert subject(*failed, make_notice("node-7")) == (
        "4 to look at: node-4 failed: out of memory, node-5 failed: out of memory, node-6 failed: out of memory and "
        "1 more"
    )


def test_an_alarm_of_a_run_names_the_run() -> None:
    alarm = {"state": State.RED, "why": None, "node": "", "category": "no_figure"}
    assert subject(make_notice(item="night-1", summary="no run gave a figure").model_copy(update=alarm)) == (
        "night-1: no run gave a figure"
    )
    missed = make_notice(is_drill=True, summary="was slowed on purpose, and the check did not detect it")
    missed = missed.model_copy(update=alarm | {"category": DRILL_UNDETECTED})
    assert subject(missed) == "DRILL: node-3 was slowed on purpose, and the check did not detect it"


def test_a_change_of_the_fleet_is_one_entry() -> None:
    names = tuple(f"node-{i}" for i in range(256))
    summary = "have become slower since 21 Nov 2026: samples/s −5.0 to −6.1 %"
    notices = [make_notice(name, Why.CHANGED, -5.0, nodes=names, summary=summary, id=i) for i, name in enumerate(names)]
    for said in (notices, notices[:1]):  # the others may have been acknowledged
        content = message(said, OPENED, "https://airflow.example.org")
        assert content.text.count("Next: ") == 1
        assert content.payload["notices"][0]["links"]["notice"].endswith("/notices/0")
        assert content.subject.startswith(
            "[trainbench] node-0, node-1, node-2, node-3, node-4 and 251 more have become"
        )
        assert len(content.payload["notices"][0]["nodes"]) == len(said)


def test_a_change_of_several_works_is_told_by_the_first() -> None:
    changed = partial(make_notice, why=Why.CHANGED)
    content = message(
        [
            changed("node-1", deviation=-5.0, summary="became slower", model="mistral-7b", id=1),
            changed("node-2", deviation=-6.0, summary="lost a tenth", model="tier-a", id=2),
        ],
        OPENED,
        None,
    )
    assert "node-1 and node-2 became slower" in content.text
    assert "Since 21 Nov 2026 00:00 UTC, mistral-7b." in content.text


def test_a_notice_as_text_and_as_mail(golden: Golden) -> None:
    look = make_notice("node-5", Why.BEHIND, -3.4, id=3)
    content = message([slow(), look], OPENED, "https://airflow.example.org/bench")

    golden("notice.txt", content.text)
    golden("notice.html", content.html)
    assert (
        "https://airflow.example.org/bench/dags/node_consistency/runs/scheduled__2026-11-21T02%3A00%3A00%2B00%3A00/"
        in content.text
    )


def test_a_look_that_turned_red_says_since_when() -> None:
    turned = slow(worsened_at=datetime(2026, 11, 23, 2, 12, tzinfo=UTC))
    assert "Red since 23 Nov 2026 02:12 UTC." in message([turned], WORSENED, None).text
    assert message([turned], WORSENED, None).message_id != message([turned], OPENED, None).message_id
    two = message([turned, slow(id=13, node="node-4")], OPENED, None)
    assert two.message_id == "<notice-12-opened-20261121021200-2@trainbench>"


def test_without_an_address_of_airflow_there_are_no_links() -> None:
    content = message([slow()], OPENED, None)

    assert "http" not in content.text + content.slack + content.html
    assert content.payload["page"] is None


def test_hostile_text_stays_text() -> None:
    content = message([slow(HOSTILE, summary=HOSTILE, cause=HOSTILE, reason=HOSTILE)], OPENED, "https://a.example.org")

    assert "\n" not in content.subject
    assert "\r" not in content.subject
    assert "<script" not in content.html
    assert "&lt;script" in content.html
    assert "<!channel>" not in content.slack
    assert "&lt;!channel&gt;" in content.slack
    assert json.loads(json.dumps(content.payload))["notices"][0]["node"] == HOSTILE


def test_what_a_webhook_gets_can_be_matched_with_what_it_gets_later() -> None:
    (began,) = message([slow()], OPENED, None).payload["notices"]
    (ended,) = message([closed()], CLOSED, None).payload["notices"]

    assert (began["id"], ended["id"]) == ("notice-12-opened", "notice-12-closed")
    assert (began["level"], began["node"], began["event"]) == (Level.ERROR, "node-3", "opened")
    assert (began["state"], began["why"], began["what"]) == (
        "red", "slow", "node-3 is slow: samples/s −9.7 % against its peers",
    )  # fmt: skip


def test_many_at_once_are_one_message_of_bounded_size() -> None:
    content = message([slow(f"node-{i}", id=i) for i in range(1000)], OPENED, None)

    assert content.subject.startswith("[trainbench] 1000 to look at: node-0")
    assert len(content.subject) <= 180
    assert content.payload["left_off"] == 980
    assert content.text.rstrip().endswith("and 980 more: see the Benchmarks page")


def test_the_end_says_what_it_was_and_how_long() -> None:
    assert message([closed(ended="no longer in the cluster")], CLOSED, None).text.splitlines()[2:] == [
        "node-3: no longer in the cluster (22 Nov 2026 02:12 UTC)",
        "It was: node-3 is slow: samples/s −9.7 % against its peers. Open since 21 Nov 2026 02:12 UTC.",
    ]

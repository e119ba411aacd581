"""The text about breaches: the same on every channel, whatever a result may hold."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from tests.builders.breaches import make_breach
from tests.builders.verdicts import make_metric
from tests.conftest import Golden
from trainbench.alerting.breach_text import breach_phrase
from trainbench.alerting.notice_text import Notice, message
from trainbench.core.verdicts import Level, Metric, State
from trainbench.history.breach import BreachKind

HOSTILE = "<script>alert('x')</script> {{ 7 * 7 }} <!channel>\r\nBcc: x@example.org"


def notice(node: str = "node-3", **changes: Any) -> Notice:
    rate = make_metric(9.034, 10.0, state=State.BREACH)  # -9.66 %
    fields: dict[str, Any] = {
        "id": 12,
        "evidence": (rate,),
        "reason": "samples/s: deviation −9.7 %, limit 5.0 %; re-run −9.0 %",
        "cause": "The GPU of node-3 slows itself down because it is hot",
        "resolution": "Check fans, filters and the air flow of node-3, then run it again",
        "gpu_name": "NVIDIA H200", "model": "mistral-7b", "recipe": "qlora", "strategy": "single",
        "opened_at": datetime(2026, 11, 21, 2, 12, tzinfo=UTC),
    }  # fmt: skip
    return (make_breach(node, **fields | changes),)


def closed(**changes: Any) -> Notice:
    closed_at = datetime(2026, 11, 22, 2, 12, tzinfo=UTC)
    return notice(**{"closed_at": closed_at, "ended": "well again"} | changes)


WARNING: dict[str, Any] = {
    "kind": BreachKind.WARNING, "level": Level.WARNING, "state": None, "evidence": (), "reason": "", "cause": None,
}  # fmt: skip


def test_the_phrase_of_a_breach() -> None:
    def text_of(**changes: Any) -> str:
        return breach_phrase(notice(**changes)[0])

    assert text_of() == "samples/s −9.7 % against its peers"
    hot = make_metric(72.0, 60.0, metric=Metric.TEMPERATURE_C, state=State.BREACH, deviation=12.0)
    assert text_of(evidence=(hot,)) == "temperature +12.0 °C against its peers"
    assert text_of(state=State.FAILED, evidence=()) == "gave no valid result"
    assert text_of(state=State.MISSING, evidence=()) == "did not run"
    assert text_of(**WARNING, summary="is 3.4 % slower than it was") == "is 3.4 % slower than it was"


def test_the_subject_says_node_deviation_and_dag() -> None:
    def subject(*notices: Notice) -> str:
        return message(notices, None).subject

    assert subject(notice()) == "[trainbench] node-3: samples/s −9.7 % against its peers (node_consistency)"
    assert subject(notice(is_drill=True)).startswith("[trainbench] DRILL: node-3: samples/s")
    assert subject(closed()) == "[trainbench] node-3: well again (node_consistency)"
    assert subject(notice(), notice("node-4", state=State.MISSING, evidence=())) == (
        "[trainbench] 2 to look at: node-3 (samples/s −9.7 % against its peers) and node-4 (did not run) "
        "(node_consistency)"
    )
    missing = [notice(f"node-{i}", state=State.MISSING, evidence=()) for i in (3, 4, 5, 6)]
    assert subject(*missing) == (
        "[trainbench] 4 to look at: node-3 (did not run), node-4 (did not run), node-5 (did not run) and 1 more "
        "(node_consistency)"
    )


def test_a_breach_as_text_and_as_mail(golden: Golden) -> None:
    warning = notice("node-5", **WARNING | {"id": 3, "summary": "is 3.4 % slower than it was", "gpu_name": None,
                     "model": None, "recipe": None, "strategy": None})  # fmt: skip
    content = message([notice(), warning], "https://airflow.example.org/bench")

    golden("notice.txt", content.text)
    golden("notice.html", content.html)
    assert (
        "https://airflow.example.org/bench/dags/node_consistency/runs/scheduled__2026-11-21T02%3A00%3A00%2B00%3A00/"
        in (content.text)
    )


def test_without_an_address_of_airflow_there_are_no_links() -> None:
    content = message([notice()], None)

    assert "http" not in content.text + content.slack + content.html
    assert content.payload["page"] is None


def test_hostile_text_stays_text() -> None:
    content = message([notice(HOSTILE, **WARNING | {"summary": HOSTILE, "cause": HOSTILE})], "https://a.example.org")

    assert "\n" not in content.subject
    assert "\r" not in content.subject
    assert "<script" not in content.html
    assert "&lt;script" in content.html
    assert "<!channel>" not in content.slack
    assert "&lt;!channel&gt;" in content.slack
    assert json.loads(json.dumps(content.payload))["notices"][0]["node"] == HOSTILE


def test_what_a_webhook_gets_can_be_matched_with_what_it_gets_later() -> None:
    (began,) = message([notice()], None).payload["notices"]
    (ended,) = message([closed()], None).payload["notices"]

    assert (began["id"], ended["id"]) == ("breach-12-opened", "breach-12-closed")
    assert (began["level"], began["node"], began["event"]) == (Level.ERROR, "node-3", "opened")


def test_many_at_once_are_one_message_of_bounded_size() -> None:
    content = message([notice(f"node-{i}", id=i) for i in range(1000)], None)

    assert content.subject.startswith("[trainbench] 1000 to look at: node-0")
    assert len(content.subject) <= 180
    assert content.payload["left_off"] == 980
    assert content.text.rstrip().endswith("and 980 more: see the Benchmarks page")


def test_a_warning_that_is_over_is_not_called_well_again() -> None:
    content = message([closed(**WARNING, ended="this is over", summary="is 3.4 % slower")], None)

    assert "well again" not in content.text
    assert "node-3: this is over since 22 Nov 2026 02:12 UTC" in content.text

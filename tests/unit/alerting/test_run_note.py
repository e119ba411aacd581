"""The note on a run's page: what is said, that it fits, that people's words stay, and that nothing can go wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders import campaigns
from trainbench.alerting import run_note as run_notes
from trainbench.alerting import run_summary
from trainbench.alerting.run_note import MAX_CHARS, RULE, joined, write_note
from trainbench.alerting.run_summary import alerts
from trainbench.core.verdicts import Finding, Level, Why

RUN = "scheduled__2026-11-21T02:00:00+00:00"
TAB = "dags/node_consistency/runs/scheduled__2026-11-21T02%3A00%3A00%2B00%3A00/plugin/trainbench-run"


def note(campaign: Any) -> str:
    raised = alerts(campaign)
    return run_summary.note(campaign, raised, "node_consistency", RUN, "https://airflow.example.org/bench")


def test_the_verdict_the_red_nodes_and_the_way_to_the_report() -> None:
    assert note(campaigns.slow_node()) == (
        "**Benchmark.** 1 of 4 nodes is slow: node-3 (samples/s −9.7 % against the median of 3 peers, −9.0 % in the "
        "re-run, limit 5.0 %); 3 are well.\n"
        "- node-3: Check fans, filters and the air flow of node-3, then run it again\n"
        "\n"
        f"[Report]({TAB}) · [Benchmarks](plugin/trainbench/bench/trainbench/)"
    )


@pytest.mark.parametrize(
    ("about", "line"),
    [
        ({"nodes": ("a",), "item": "run-1"}, "run-1: computed other work"),
        ({"nodes": ("a", "b")}, "a and b computed other work"),
        ({"nodes": ("a", "b"), "why": Why.CHANGED}, "a and b: look"),
        ({"nodes": ("a",)}, "a: look"),  # as of a mark on a node
    ],
)
def test_what_the_headline_does_not_say_of_nodes_is_told_as_a_whole(about: dict[str, Any], line: str) -> None:
    of = {"category": "c", "measured": "", "expected": "", "summary": "computed other work", "resolution": "look"}
    alert = Finding(level=Level.ERROR, **about, **of)
    assert f"\n- {line}\n" in run_summary.note(campaigns.healthy(), [alert], "node_consistency", RUN, None)


@pytest.mark.parametrize(("too_many", "end"), [(0, "x"), (1, "- and 1 more")])
def test_the_note_is_filled_to_its_last_character(too_many: int, end: str) -> None:
    """Five alerts, the first four of 100 characters. The last one has what is left beside "and 1 more"."""

    def text(*lengths: int) -> str:
        common: dict[str, Any] = {
            "level": Level.ERROR,
            "category": "c",
            "item": "run",
            "measured": "",
            "expected": "",
            "resolution": "",
        }
        raised = [Finding(**common, summary="x" * (length - len("- run: "))) for length in lengths]
        return run_summary.note(campaigns.healthy(), raised, "node_consistency", RUN, None)

    left = 700 - len(text(*[100] * 4)) - len("\n" + "\n- and 1 more")
    *_, last, _, _ = text(*[100] * 4, left + too_many).split("\n")

    assert last.endswith(end)


def test_hostile_names_make_no_markup() -> None:
    text = note(campaigns.all_failed())

    assert "<b>" not in text
    assert "<script" not in text


def test_what_people_wrote_stays_and_an_older_note_of_ours_goes() -> None:
    first = joined("**Benchmark.** red", "ask Ada")
    assert first == f"**Benchmark.** red{RULE}ask Ada"
    assert joined("**Benchmark.** green", first) == f"**Benchmark.** green{RULE}ask Ada"
    assert joined("**Benchmark.** green", None) == "**Benchmark.** green"


def test_a_note_by_people_is_not_cut_for_ours() -> None:
    room = MAX_CHARS - len("**Benchmark.** red" + RULE)
    assert joined("**Benchmark.** red", "x" * room) == f"**Benchmark.** red{RULE}{'x' * room}"
    assert joined("**Benchmark.** red", "x" * (room + 1)) is None


@pytest.mark.parametrize("end", [run_notes.on_dag_run_success, run_notes.on_dag_run_failed])
def test_what_the_task_left_is_written_when_the_run_ends(end: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = SimpleNamespace(run_id=RUN, note="ask Ada")
    for left, note in ((None, "ask Ada"), ("**Benchmark.** red", f"**Benchmark.** red{RULE}ask Ada")):
        monkeypatch.setattr(run_notes, "_left_by_the_task", lambda _, left=left: left)
        end(run, "")
        assert run.note == note


def test_whatever_goes_wrong_the_scheduler_goes_on() -> None:
    class Broken:
        run_id = "r"

        @property
        def note(self) -> str:
            raise RuntimeError("the database went away")

    write_note(Broken())
    write_note(None)


def test_it_listens_to_the_end_of_a_run_and_to_nothing_else() -> None:
    items = [name for name in dir(run_notes) if hasattr(getattr(run_notes, name), "airflow_impl")]

    assert items == ["on_dag_run_failed", "on_dag_run_success"]


def test_the_extra_of_the_asset_events_is_bounded_and_says_what_to_do_next() -> None:
    campaign = campaigns.slow_node()
    raised = alerts(campaign)
    where = ("node_consistency", RUN, "https://airflow.example.org")
    extra = run_summary.breaches_extra(campaign, raised, *where)

    assert (extra["num_red"], extra["num_alerts"], extra["left_off"]) == (1, 1, 0)
    assert extra["alerts"][0]["nodes"] == ["node-3"]
    assert extra["links"]["report"] == f"https://airflow.example.org/{TAB}"
    assert extra["nodes"] == {"judged": 4, "red": 1, "well": 3}
    many = run_summary.breaches_extra(campaign, raised * 1000, *where)
    assert (len(many["alerts"]), many["num_red"], many["left_off"]) == (50, 1000, 950)
    results = run_summary.results_extra(campaign, *where)
    assert results["runs"]["total"] == len(campaign.results)
    assert results["campaign_id"] == campaign.campaign_id

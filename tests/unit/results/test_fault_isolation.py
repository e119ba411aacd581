"""One broken member changes nothing for the others: nights of four nodes, one of them wrong in one field."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bench_image.contract.result import RunResult
from tests.builders import STARTED_AT, make_independent, make_result
from tests.builders.pipelines import assessed
from tests.kube.after_fault import after_night, is_green
from trainbench import pipeline
from trainbench.alerting.run_summary import alerts
from trainbench.core.verdicts import PART_FAILED, Level, State, Why
from trainbench.history import summaries
from trainbench.history.history import open_history
from trainbench.judging import diagnose, judge
from trainbench.params.campaign_params import parse_params
from trainbench.pipeline import report
from trainbench.planning.nodes import Fleet
from trainbench.planning.plan import Plan, make_plan
from trainbench.reporting import data_files, plots
from trainbench.reporting import report as report_documents
from trainbench.results import priced_runs
from trainbench.results.artefacts import open_store
from trainbench.results.campaign import Campaign
from trainbench.results.collect import collect

NODES = ("node-1", "node-2", "node-3", "node-4")
BAD = "node-3"
CASES = 100  # of each kind of night
EXTREMES: tuple[Any, ...] = (
    1e308, -1e308, 5e-324, 0, -1, 0.0, 2**53, 2**63, 10**400, 1e9, 1e-9, 1e5, 1e-6, 250, None, "", "x" * 5000, "\0",
    "NaN", [], {}, [[]], True, "9999-12-31T23:59:59.999999-12:00", "0001-01-01T00:00:00+14:00", "1970-01-01T00:00:00Z",
    ["a"] * 50,
)  # fmt: skip
Path_ = tuple[str | int, ...]


def plan(**params: Any) -> Plan:
    return make_plan(parse_params({"nodes": NODES, "usd_per_gpu_hour": 2.0, **params}), Fleet(), "campaign-1")


PLAN = plan()
ALL_GPUS = plan(strategies=["independent"], gpus_per_node=2)


def documents(planned: Plan = PLAN) -> list[Any]:
    """The results of four healthy pods, in the plan's order."""
    made = [
        make_independent(spec.identity.node, (9.5, 9.5))
        if planned is ALL_GPUS
        else make_result(spec.identity.node, 9.5)
        for spec in planned.specs
    ]
    pairs = zip(made, planned.specs, strict=True)
    return [json.loads(result.model_copy(update={"spec": spec}).model_dump_json()) for result, spec in pairs]


AT = STARTED_AT + timedelta(minutes=9)


def night(payloads: list[Any]) -> Campaign:
    return judged(collect(PLAN.specs, [*map(json.dumps, payloads)], AT))


def judged(results: Sequence[RunResult], planned: Plan = PLAN) -> Campaign:
    return assessed(planned, results)


def of_others(campaign: Campaign) -> list[tuple[str, State]]:
    return [(node.node, node.state) for node in campaign.nodes if node.node != BAD]


def places(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Where each value of a JSON document lies; of each list the first two."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def put(document: Any, path: Path_, value: Any) -> None:
    for step in path[:-1]:
        document = document[step]
    document[path[-1]] = value


@pytest.mark.parametrize("planned", [PLAN, ALL_GPUS], ids=["single", "independent"])
@pytest.mark.usefixtures("no_plots")
def test_whatever_one_field_of_one_result_holds_the_other_nodes_keep_their_verdicts(
    planned: Plan, tmp_path: Path
) -> None:
    """Seeded: each case puts one extreme value into one field of node-3's result, and publishes and records."""
    draw, bad = random.Random(13), slice(NODES.index(BAD), NODES.index(BAD) + 1)
    texts = [*map(json.dumps, documents(planned))]
    text, results = texts[bad][0], list(collect(planned.specs, texts, AT))
    store, history = open_store(str(tmp_path / "store")), open_history(f"sqlite:///{tmp_path / 'history.db'}")
    expected, everywhere = of_others(judged(results, planned)), list(places(json.loads(text)))
    assert {state for _, state in expected} == {State.WELL}
    for case in range(CASES):
        payload = json.loads(text)
        path, value = draw.choice(everywhere), draw.choice(EXTREMES)
        put(payload, path, value)
        results[bad] = collect(planned.specs[bad], [json.dumps(payload)], AT)
        campaign = judged(results, planned)

        case_text = f"case {case}: {path} = {value!r:.60}"
        assert of_others(campaign) == expected, case_text
        assert not campaign.alarms, case_text
        if case % 25 == 0:
            assert report(campaign, store), case_text
            history.record(campaign)
            assert store.read_campaign("campaign-1") == campaign, case_text


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("performance", "samples_per_second"), 1e308, "performance.samples_per_second: Input should be less than"),
        (("performance", "samples_per_second"), 5e-324, "performance.samples_per_second: Input should be greater"),
        (("memory", "peak_during_training"), 1e308, "memory.peak_during_training: Input should be less than"),
        (("finished_at",), "9999-12-31T23:59:59-12:00", "finished_at: the date must lie between 1970 and 2100"),
        (("performance", "step_time", "p95_s"), 1e308, "performance.step_time.p95_s: Input should be less than"),
        (("startup", "total_s"), -1e308, "startup.total_s: Input should be greater than or equal to 0"),
        (("chosen", "micro_batch_size"), 2**63, "chosen.micro_batch_size: Input should be less than or equal to"),
        (("performance", "samples_per_second"), 19.0, "performance.tokens_per_second is 4864, but 19 samples/s"),
    ],
)
@pytest.mark.usefixtures("no_plots")
def test_one_impossible_figure_is_one_red_node(path: Path_, value: Any, message: str, tmp_path: Path) -> None:
    """[J10], [S2]: each of them left the whole fleet without a verdict."""
    payloads = documents()
    put(payloads[NODES.index(BAD)], path, value)
    campaign = night(payloads)
    (bad,) = (node for node in campaign.nodes if node.node == BAD)

    assert bad.why is Why.FAILED
    assert message in bad.reason
    assert of_others(campaign) == of_others(night(documents()))
    assert report(campaign, open_store(str(tmp_path)))
    assert [alert.nodes for alert in alerts(campaign) if alert.level is Level.ERROR] == [(BAD,)]
    after_night("impossible", planned=NODES, campaign=campaign, is_green=is_green(campaign))


def fails_for(bad: str, real: Callable[..., Any]) -> Callable[..., Any]:
    """`real`, with a defect that only the results of one node bring to light."""

    def broken(first: Any, *rest: Any, **named: Any) -> Any:
        results = [first] if isinstance(first, RunResult) else first
        if any(result.spec.identity.node == bad and result.performance.samples_per_second for result in results):
            raise ZeroDivisionError("a defect")
        return real(first, *rest, **named)

    return broken


PARTS = (
    (priced_runs.run_cost, "priced", "pricing failed"),
    (pipeline, "doubts_of_run", "checking figures failed"),
    (data_files, "_row", "computing its figures failed"),
    (summaries, "_row", "recording in the history failed"),
)


@pytest.mark.parametrize(("module", "name", "message"), PARTS, ids=[name for _, name, _ in PARTS])
@pytest.mark.usefixtures("no_plots")
def test_a_defect_that_one_run_brings_to_light_is_a_red_finding_of_that_run(
    module: Any, name: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, name, fails_for(BAD, getattr(module, name)))
    store, history = open_store(str(tmp_path / "store")), open_history(f"sqlite:///{tmp_path / 'history.db'}")
    report(night(documents()), store)
    campaign = store.read_campaign("campaign-1")
    history.record(campaign)
    (alarm,) = campaign.alarms

    assert (alarm.category, alarm.subject) == (PART_FAILED, PLAN.specs[2].identity.run_id)
    assert alarm.summary.startswith(message)
    assert alarm.cause == "ZeroDivisionError: a defect"
    assert [node.state for node in campaign.nodes] == [State.WELL] * 4
    assert [alert.text for alert in alerts(campaign) if alert.level is Level.ERROR] == [
        f"{alarm.subject}: {alarm.summary}. ZeroDivisionError: a defect"
    ]


@pytest.mark.parametrize("name", ["by_group", "shared_by"])  # at once, and for the verdict
def test_a_result_that_judging_fails_for_is_a_failed_run_and_its_peers_are_judged(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(judge, name, fails_for(BAD, getattr(judge, name)))
    campaign = night(documents())

    assert [(node.node, node.state) for node in campaign.nodes if node.node != BAD] == [
        (name, State.WELL) for name in NODES if name != BAD
    ]
    assert [node.reason for node in campaign.nodes if node.node == BAD] == [
        "round 1 error: its result could not be judged: ZeroDivisionError: a defect"
    ]
    assert campaign.results[2].error is not None
    assert campaign.results[2].error.kind == "broken_result"
    assert "Traceback" in caplog.text


def test_what_fails_without_any_result_is_nobodys_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ValueError("a defect of ours")

    monkeypatch.setattr(judge, "by_group", broken)
    with pytest.raises(ValueError, match="a defect of ours"):
        night(documents())


@pytest.mark.parametrize(
    ("module", "name", "lost"),
    [
        (plots, "draw", "plots/node_variance.png"),
        (report_documents, "report_html", "report.html"),
        (data_files, "metrics_csv", "metrics.csv"),
    ],
)
def test_a_file_that_cannot_be_written_is_reported_in_the_others(
    module: Any, name: str, lost: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a defect")

    campaign, store = night(documents()), open_store(str(tmp_path))
    whole = set(report(campaign, store))
    monkeypatch.setattr(module, name, broken)
    files = report(campaign, store)

    assert lost in whole - set(files)
    assert "RuntimeError: a defect" in Path(files["BENCHMARK_REPORT.md"]).read_text()
    assert [alarm.category for alarm in store.read_campaign("campaign-1").alarms] == [PART_FAILED]


def test_a_source_of_findings_that_fails_costs_its_own_findings_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(diagnose, "diagnose", broken)
    campaign = night([*documents()[:3], "broken"])

    assert [alarm.summary.split(",")[0] for alarm in campaign.alarms] == ["diagnosis failed"]
    assert [node.why for node in campaign.nodes] == [Why.WELL, Why.WELL, Why.WELL, Why.FAILED]

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from markdown_it import MarkdownIt

from tests.builders import campaigns
from trainbench.core.baselines import Baseline
from trainbench.reporting.report import benchmark_report, report_html
from trainbench.results.campaign import Campaign

FILES = ("BENCHMARK_REPORT.md", "COST_REPORT.md", "metrics.csv", "plots/node_variance.png", "report.html")


@pytest.mark.parametrize("make", campaigns.REPORTED)
def test_the_report(make: Callable[[], Campaign], golden: Callable[[str, str], None]) -> None:
    golden(f"report-{make.__name__.replace('_', '-')}.md", benchmark_report(make(), FILES))


def test_only_files_that_exist_are_linked() -> None:
    campaign = campaigns.slow_node()
    assert "](" not in benchmark_report(campaign)
    run_id = campaign.results[0].spec.identity.run_id
    linked = benchmark_report(campaign, [f"../runs/{run_id}/result.json"])
    assert f"[node-1-r1](../runs/{run_id}/result.json)" in linked
    # verdict, throughput, seconds, probes, telemetry and the cost of its node: of this run
    assert linked.count("](") == 6


def test_hostile_text_stays_text() -> None:
    html = MarkdownIt("gfm-like", {"linkify": False}).render(benchmark_report(campaigns.all_failed()))
    assert "<script" not in html
    assert "<b>" not in html
    assert "&lt;script&gt;alert('x')&lt;/script&gt; | a | b # not a heading `rm`" in html


def test_findings_of_one_kind_are_folded_as_on_the_page() -> None:
    campaign = campaigns.slow_node()
    of_run = campaign.findings[0].model_copy(update={"nodes": (), "item": "run-0"})
    alike = [of_run.model_copy(update={"item": f"run-{number}"}) for number in range(5)]
    text = benchmark_report(campaign.model_copy(update={"findings": tuple(alike)}))
    shown, folded = text.split("<details><summary>4 more like this one</summary>\n\n")
    assert "### error: run-0" in shown
    assert "### error: run-1" not in shown
    rows = folded.split("\n</details>")[0]
    assert [number for number in range(5) if f"| run-{number} |" in rows] == [1, 2, 3, 4]
    page = MarkdownIt("gfm-like", {"linkify": False}).render(text)
    assert page.index("<details>") < page.index("<td>run-1</td>") < page.index("</details>")


def test_an_accepted_baseline_stands_in_the_section_about_the_past() -> None:
    at = datetime(2026, 11, 20, 2, tzinfo=UTC)
    accepted = Baseline(id=1, node=None, fingerprint=None, since=at, who="ada", why="new *driver*", accepted_at=at)
    campaign = campaigns.healthy()
    plain, accepting = (campaign.model_copy(update={"baselines": of}) for of in ((), (accepted,)))

    assert "accepted by" not in benchmark_report(plain)
    assert (
        "Baseline of all nodes since 20 Nov 2026, accepted by ada on 20 Nov 2026: new \\*driver\\*."
        in benchmark_report(accepting)
    )
    assert "accepted by ada on 20 Nov 2026: new *driver*." in report_html(accepting, {})

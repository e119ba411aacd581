"""The tables of a search for bad links: each group's best rates, and the curve over the sizes."""

from __future__ import annotations

from bench_image.contract.links import LinkSweep
from tests.builders import make_links, make_result
from tests.builders.campaigns import make_campaign
from tests.builders.verdicts import make_finding
from trainbench.core.tables import Table, csv_text
from trainbench.core.verdicts import BAD_LINK, Finding
from trainbench.params.campaign_kind import CampaignKind
from trainbench.reporting import link_tables, plots, verdict_text
from trainbench.reporting.comparison_sections import comparison_sections
from trainbench.reporting.document import Closed
from trainbench.reporting.report import report_sections
from trainbench.results.campaign import Campaign


def search(*findings: Finding) -> Campaign:
    """Of a gang of seven nodes, which reaches 300 GB/s, and of two that reach 360."""
    gang = make_result("a", strategy="ddp", nodes=7, peers=tuple("cdefgh"))
    pair = make_result("a", strategy="ddp", nodes=2, peers=("c",))
    runs = [
        made.model_copy(update={"spec": made.spec.model_copy(update={"link_sweep": LinkSweep()}), "links": links})
        for made, links in ((pair, make_links(360.0)), (gang, make_links(300.0)))
    ]
    params = {"link_slower_pct": 8.0}
    return make_campaign(runs, findings=findings, campaign_kind=CampaignKind.INTERCONNECT, params=params)


def test_groups_and_the_curve_by_size() -> None:
    """The smaller size of a made sweep has a fiftieth of the larger one's rate; the median of 300 and 360 is 330."""
    groups, curve = link_tables.tables(search())

    assert [row.texts[1:5] for row in groups.rows] == [
        ("a, c, d, e, f and 2 more", "on", "300.0", "300.0"),
        ("a and c", "on", "360.0", "360.0"),
    ]
    assert [row.texts[:2] for row in curve.rows] == [("8.00 KiB", "6.600"), ("1.00 GiB", "330.0")]
    assert [row.texts[-1] for row in curve.rows] == ["6.000", "300.0"]
    assert "latency" in csv_text(groups)
    assert groups.notes[-1].startswith("Slow is more than 8 % below the other groups of the round")
    assert list(link_tables.tables(make_campaign([make_result("a")]))) == []


def test_a_search_begins_with_whom_it_blames_and_compares_no_strategies() -> None:
    blamed = make_finding("c", category=BAD_LINK, summary="makes gangs slow", resolution="look at its cables")
    campaign = search(blamed)
    assert verdict_text.verdict(campaign) == "c makes gangs slow. 2 of 2 runs gave a figure."
    assert verdict_text.next_lines(campaign) == ("Next for c: look at its cables.",)
    assert [section.title for section in comparison_sections(campaign)] == ["Links between the nodes"]
    assert set(plots.draw(campaign)) == set()
    assert verdict_text.verdict(search()).startswith("No bad node and no bad link was found.")


def test_of_many_groups_the_slowest_are_open() -> None:
    few = search()
    many = few.model_copy(update={"results": few.results * 21})
    groups, rest, curve = next(iter(report_sections(many, ()))).parts
    assert isinstance(groups, Table)
    assert [row.texts[3] for row in groups.rows] == ["300.0"] * 21 + ["360.0"] * 19
    assert isinstance(rest, Closed)
    assert (rest.table.title, len(rest.table.rows)) == ("2 more rows", 2)
    assert isinstance(curve, Table)

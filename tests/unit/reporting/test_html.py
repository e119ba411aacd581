from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files

import pytest

from tests.builders import campaigns
from tests.unit.reporting.parsed_page import Page
from trainbench.reporting import plots
from trainbench.reporting.report import report_html
from trainbench.results.campaign import Campaign


def test_a_whole_page(golden: Callable[[str, str], None]) -> None:
    """But for its style sheet, which is the one that we ship. Of the other campaigns the report in Markdown, which is
    made from the same sections, is compared.
    """
    text = report_html(campaigns.slow_node(), {})
    style = (files("trainbench.reporting") / "templates" / "report.css").read_text(encoding="utf-8")
    assert style in text
    golden("report-slow-node.html", text.replace(style, ""))


@pytest.mark.parametrize("make", campaigns.REPORTED)
def test_every_page_is_valid(make: Callable[[], Campaign]) -> None:
    Page(report_html(make(), {}))


def test_nothing_comes_from_the_network_and_nothing_runs() -> None:
    campaign = campaigns.scaling()
    text = report_html(campaign, plots.draw(campaign))
    page = Page(text)
    assert page.tags.isdisjoint({"script", "link", "iframe", "object", "form"})
    assert page.loads == []
    assert text.count("</svg>") == 4
    assert all(link.startswith(("#", "../runs/")) for link in page.links)
    assert re.search(r"url\((?!#)|@import|https?://(?!www.w3.org/1999/xlink)", text) is None


def test_many_findings_of_one_kind_are_one_card_and_a_table() -> None:
    campaign = campaigns.slow_node()
    finding = campaign.findings[0]
    alike = [finding.model_copy(update={"item": f"run-{number}"}) for number in range(5)]
    text = report_html(campaign.model_copy(update={"findings": (*alike, *campaign.findings[1:])}), {})
    assert text.count('<article class="finding') == len(campaign.findings)
    assert "<summary>4 more like this one</summary>" in text
    assert all(f"run-{number}" in text for number in range(5))


def test_hostile_names_and_messages_are_text() -> None:
    text = report_html(campaigns.all_failed(), {})
    page = Page(text)
    assert page.tags.isdisjoint({"script", "b"})
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; | a | b # not a heading `rm`" in text
    assert "node-&lt;b&gt;9|" in text


def test_no_control_character_of_a_name_or_message_reaches_the_page() -> None:
    campaign = campaigns.healthy().model_copy(update={"title": "\x1b[31m\x9b\u202egone"})
    page = report_html(campaign, {})
    assert "gone" in page
    assert not [c for c in page if not c.isprintable() and c != "\n"]


def test_the_banner_names_its_colour_as_text() -> None:
    assert 'class="banner good"' in report_html(campaigns.healthy(), {})
    assert "All well" in report_html(campaigns.healthy(), {})
    assert "Action needed" in report_html(campaigns.slow_node(), {})
    assert "Look closer" in report_html(campaigns.two_nodes(), {})

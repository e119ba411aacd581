"""The tables of a search for bad links: each group's best rates, and the curve over the sizes."""

from __future__ import annotations

from bench_image.contract.links import LinkSweep
from tests.builders import make_links, make_result
from tests.builders.campaigns import make_campaign
from trainbench.core.tables import csv_text
from trainbench.reporting import link_tables


def test_groups_and_the_curve_by_size() -> None:
    """The smaller size of a made sweep has a fiftieth of the larger one's rate; the median of 300 and 360 is 330."""
    gang = make_result("a", strategy="ddp", nodes=7, peers=tuple("cdefgh"))
    runs = [
        made.model_copy(update={"spec": made.spec.model_copy(update={"link_sweep": LinkSweep()}), "links": links})
        for made, links in ((make_result("b"), make_links(360.0)), (gang, make_links(300.0)))
    ]
    groups, curve = link_tables.tables(make_campaign(runs))

    assert [row.texts[1:5] for row in groups.rows] == [
        ("a, c, d, e, f and 2 more", "on", "300.0", "300.0"),
        ("b", "on", "360.0", "360.0"),
    ]
    assert [row.texts[:2] for row in curve.rows] == [("8.00 KiB", "6.600"), ("1.00 GiB", "330.0")]
    assert "latency" in csv_text(groups)
    assert list(link_tables.tables(make_campaign([make_result("a")]))) == []

"""Three nights for the tests of the pages' reads, and every read of them.

node_consistency: four nodes, the reference is 10 samples/s.
    day 1: node-3 is slow with 9.0 (-10 %);  day 2: all well, node-10 at 9.8 (-2 %);  day 3: the same, but node-2 is
    missing: node-3's notice is over, after two good nights.
somebody_elses, which the reader may not see: on day 3 node-9 is slow, with gpt2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

from tests.builders import make_result
from tests.builders.nights import night
from trainbench.core.states import FRESH
from trainbench.core.verdicts import Why
from trainbench.history.history import History
from trainbench.pages.reads import fleet
from trainbench.pages.reads.comparisons import costs, strategies
from trainbench.pages.reads.filters import Filters
from trainbench.pages.reads.fleet import heat_map
from trainbench.pages.reads.node_trends import node_page
from trainbench.pages.reads.notices import closed_notices, open_notices
from trainbench.pages.reads.queries import Pages, choices
from trainbench.pages.reads.rows import NodePage, Overview
from trainbench.pages.reads.run_list import runs_csv, runs_page

SEEN, HIDDEN = "node_consistency", "somebody_elses"
DAY_3 = date(2026, 11, 3)
ALL = Filters()
HOSTILE = "=cmd|' /C calc'!A0\n<script>alert(1)</script>"


def three_nights(history: History) -> History:
    well = {"node-1": 10.1, "node-2": 10.0, "node-3": 10.0, "node-10": 10.0}
    history.record(night(1, well | {"node-3": 9.0}, {"node-3": Why.SLOW}))
    history.record(night(2, well | {"node-10": 9.8}))
    history.record(night(3, {name: rate for name, rate in well.items() if name != "node-2"}, {"node-2": Why.MISSING}))
    others = [make_result("node-9", 4.0, model="gpt2", gpu_name="NVIDIA A10")]
    history.record(night(3, others, {"node-9": Why.SLOW}, suite=HIDDEN, campaign_id="hidden-3", gpu_name="NVIDIA A10"))
    return history


def every_read(pages: Pages, filters: Filters) -> Iterator[Any]:
    yield pages.read(choices, Filters())
    yield overview_of(pages, filters, DAY_3)
    yield pages.read(heat_map, filters, DAY_3)
    yield pages.read(open_notices, filters)
    yield pages.read(closed_notices, filters)
    yield pages.read(strategies, filters)
    yield pages.read(costs, filters)
    yield pages.read(runs_page, filters)
    yield from (node_of(pages, f"node-{i}", filters) for i in (1, 2, 3, 9, 10))
    yield "".join(pieces(pages, runs_csv, filters))


def overview_of(pages: Pages, filters: Filters, day: date, now: datetime | None = None) -> Overview:
    """`now`: by default the end of that day."""
    now = now or datetime.combine(day + timedelta(days=1), datetime.min.time(), UTC)
    return pages.read(fleet.overview, filters, day, now, FRESH)


def node_of(pages: Pages, name: str, filters: Filters) -> NodePage | None:
    return pages.read(node_page, filters, name, datetime.now(UTC), FRESH)


def pieces(pages: Pages, read: Callable[..., Iterator[str]], filters: Filters, *args: Any) -> Iterator[str]:
    """A read that gives its text in pieces."""
    with pages.reading(filters) as here:
        yield from read(*here, *args)

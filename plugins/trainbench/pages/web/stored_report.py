"""The report of a campaign as a page, rendered from its stored verdict; stored HTML is never served."""

from __future__ import annotations

import threading
from functools import lru_cache

from trainbench.pages.render.page import POLICY
from trainbench.reporting import plots
from trainbench.reporting.html import InAirflow, report_html
from trainbench.results.artefacts import Store
from trainbench.results.store_files import StoreError

# As for other pages, but with inline style.
REPORT_POLICY = {**POLICY, "style-src": "'unsafe-inline'", "form-action": "'none'"}
MAX_SHOWN_BYTES = 64_000_000  # 8,000 runs on one GPU each, which take a gigabyte of memory to render
_one_at_a_time = threading.Lock()  # so that several readers of a large report do not each hold it in memory


def stored_report(store: Store, campaign_id: str, suite: str, page: InAirflow) -> str | None:
    """HTML of the report; None: the campaign is another DAG's, as the ids of two DAGs' runs can make one folder's name.
    Raises StoreError.
    """
    stamp = store.campaign_stamp(campaign_id)
    if stamp[1] > MAX_SHOWN_BYTES:
        place = store.summary_address(campaign_id, "report.html")
        raise StoreError(f"The report of {campaign_id} is too large to be shown here; its file is {place}")
    with _one_at_a_time:
        return _rendered(store, campaign_id, suite, page, stamp)


@lru_cache(maxsize=8)
def _rendered(store: Store, campaign_id: str, suite: str, page: InAirflow, _stamp: tuple[float, int]) -> str | None:
    campaign = store.read_campaign(campaign_id)
    return report_html(campaign, plots.draw(campaign), page=page) if campaign.suite == suite else None

"""A drill, then a slow node as one on call meets it: notified, explained, acknowledged, over; in this order."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from urllib.parse import quote

from playwright.sync_api import FrameLocator, Page, expect

from tests.browser.conftest import DRILLED, Visit, open_home
from tests.browser.site import DAG_ID, NODES, Site
from tests.builders.nights import night
from trainbench.history.history import open_history

REASON = "our drill: <b>leave it</b> until Monday"
PHRASE = f"{DRILLED} is slow: samples/s −20.0 % against its peers"
MOST_KEYS = 80  # from the top of Airflow's page to anything in ours


def ours(page: Page) -> FrameLocator:
    """Our page within Airflow's."""
    return page.frame_locator("iframe")


def press_until(page: Page, key: str, focused: str) -> None:
    """As somebody without a mouse; `focused`: the text of what has the focus in our page at last."""
    active = "() => document.activeElement?.textContent.trim()"
    for _ in range(MOST_KEYS):
        if focused in [frame.evaluate(active) for frame in page.frames]:
            return
        page.keyboard.press(key)
    raise AssertionError(f"{MOST_KEYS} times {key} do not lead to '{focused}'")


def test_a_drill_needs_no_attention_once_its_run_is_over(site: Site, drill: str, visit: Visit) -> None:
    page = visit("vera")
    open_home(page, site, DRILLED, is_shown=False)
    page.goto(f"{site.base}/plugin/trainbench")
    expect(ours(page).locator("h1")).to_have_text(f"1 of 3 nodes was slowed on purpose: {DRILLED}; 2 are well.")


def test_the_home_page_shows_it_with_links_that_work(site: Site, slow: str, drill: str, visit: Visit) -> None:
    page = visit("vera")
    open_home(page, site, "is slow: samples/s −20.0 % against its peers")
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Notice", exact=True).click()
    expect(ours(opened.value).locator("h1")).to_have_text(PHRASE)
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Report", exact=True).click()

    expect(opened.value).to_have_url(f"{site.base}/dags/{DAG_ID}/runs/{quote(drill)}/plugin/trainbench-run")
    expect(ours(opened.value).locator("body")).to_contain_text(f"trainbench slowed {DRILLED} by 75 % on purpose")


def test_the_benchmarks_page_shows_cause_and_next_step(site: Site, slow: str, visit: Visit) -> None:
    page = visit("vera")
    page.goto(f"{site.base}/")
    page.get_by_role("link", name="Benchmarks").click()
    card = ours(page).get_by_role("article").filter(has_text=DRILLED)

    expect(ours(page).locator("h1")).to_have_text(f"1 of 3 nodes is slow: {DRILLED}; 2 are well.")
    expect(card).to_contain_text("Likely cause:")
    expect(card).to_contain_text("the node was slowed on purpose by 75 %")
    expect(card).to_contain_text("Next: nothing: the next check judges it again.")
    expect(ours(page).locator("td a").filter(has_text="−20")).to_have_accessible_name(re.compile(f"^{DRILLED}, "))
    card.get_by_role("link", name="DAG run").click()
    expect(page).to_have_url(re.compile(f"/dags/{DAG_ID}/runs/{re.escape(quote(slow))}"))


def test_the_node_s_page_draws_the_trend_and_lists_what_happened(site: Site, slow: str, visit: Visit) -> None:
    page = visit("vera")
    page.goto(f"{site.base}/plugin/trainbench")
    ours(page).get_by_role("article").get_by_role("link", name="Node", exact=True).click()

    expect(ours(page).locator("h1")).to_contain_text(DRILLED)
    expect(ours(page).locator(".chart svg").first).to_be_visible()
    ours(page).get_by_text("Figures", exact=True).click()
    figures = ours(page).locator("details").get_by_role("row")
    expect(figures.filter(has_text="−20.0")).to_have_count(2)  # the drill, and the slow node made of it
    events = ours(page).get_by_role("region", name="Events")
    expect(events).to_contain_text("red: slow")
    expect(events).to_contain_text("drill")


def test_a_task_shows_what_its_pod_handed_back(site: Site, slow: str, visit: Visit) -> None:
    page = visit("vera")
    page.goto(f"{site.base}/dags/{DAG_ID}/runs/{quote(slow)}/tasks/benchmark/mapped/0")
    page.get_by_role("link", name="Result").click()
    expect(ours(page).locator("h1")).to_have_text(re.compile(r"^gpu-a · well 10\.00 samples/s in this run; the node "))
    raw = ours(page).get_by_role("link", name="raw result (JSON)").get_attribute("href")
    inner = next(frame for frame in page.frames if "/trainbench/" in frame.url and frame != page.main_frame)
    stored = json.loads(inner.evaluate("async (address) => (await fetch(address)).text()", raw))

    assert (stored["spec"]["identity"]["node"], stored["status"]) == ("gpu-a", "ok")


def test_who_acknowledges_by_keyboard_is_kept_with_the_reason(site: Site, slow: str, visit: Visit) -> None:
    page = visit("ada")
    page.goto(f"{site.base}/plugin/trainbench")
    ours(page).get_by_role("article").wait_for()  # the only one: the drill's
    press_until(page, "Tab", "Acknowledge")
    page.keyboard.press("Enter")
    expect(ours(page).get_by_role("dialog")).to_be_visible()
    page.keyboard.type(REASON)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    kept = ours(page).locator("#acknowledged")
    expect(kept).to_have_text(re.compile(r"^by ada, \d{4}-\d\d-\d\d \d\d:\d\d UTC: " + re.escape(REASON)))
    expect(ours(page).get_by_role("button", name="Acknowledge")).to_have_count(0)
    expect(ours(page).locator("h1")).not_to_contain_text("well again")  # seen is not repaired
    open_home(page, site, "samples/s −20.0 %", is_shown=False)


def test_two_good_runs_end_it(site: Site, slow: str, visit: Visit) -> None:
    history = open_history(site.history_url)
    for day in (1, 2):  # a single good night may be chance
        well = night(day, dict.fromkeys(NODES, 10.0), suite=DAG_ID)
        history.record(well.model_copy(update={"finished_at": datetime.now(UTC)}))
    page = visit("vera")
    page.goto(f"{site.base}/plugin/trainbench")

    expect(ours(page).locator("h1")).to_have_text("All 3 nodes are well.")
    ours(page).get_by_text("2 notices closed in 30 days").click()
    ours(page).get_by_role("listitem").get_by_role("link", name=DRILLED).first.click()
    ended = f"{DRILLED}: well again; was red: slow, samples/s −20.0 % against its peers"
    expect(ours(page).locator("h1")).to_have_text(ended)
    expect(ours(page).locator("#acknowledged")).to_contain_text(REASON)

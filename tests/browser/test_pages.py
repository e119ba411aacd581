"""All pages of ours: readable for any eye, hand, screen, name, login and address."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import inspect, text

from tests.browser.conftest import DRILLED, Visit, open_home
from tests.browser.site import DAG_ID, PREFIX, Site
from tests.builders.nights import night
from trainbench.alerting.links import in_airflow
from trainbench.core.verdicts import Why
from trainbench.history.history import History, open_history

HOSTILE = "<img src=x onerror=alert(1)>[x](javascript:alert(2))"
PHONE = {"width": 390, "height": 844}
OURS = ("", f"nodes/{DRILLED}", "strategies", "costs", "runs", "notices/1", f"dags/{DAG_ID}")
DARK, LIGHT = "rgb(18, 21, 24)", "rgb(250, 250, 249)"
WHAT_IS_WRONG = (Path(__file__).parent / "readable.js").read_text()
TABLES_TOO_WIDE = """[...document.querySelectorAll('.scroll')]
    .filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.ariaLabel)"""
WHAT_IS_PALE = (Path(__file__).parent / "contrast.js").read_text()


@pytest.fixture(scope="module")
def hostile(site: Site, drill: str) -> Iterator[int]:
    """The open notice of a node whose name no cluster would allow: its id. At the end the history is as before."""
    history = open_history(site.history_url)
    with closing(sqlite3.connect(site.history_path)) as live, closing(sqlite3.connect(":memory:")) as before:
        live.backup(before)
        yield record_hostile(history, drill)
        before.backup(live)


def record_hostile(history: History, drill: str) -> int:
    rates = {"evil": 8.0, "well": 10.0, "fine": 10.0}
    now = {"finished_at": datetime.now(UTC)}  # only the newest campaign of a DAG opens notices
    campaign = night(1, rates, {"evil": Why.SLOW}, suite=DAG_ID, dag_run_id=drill)
    history.record(campaign.model_copy(update=now))
    schema = inspect(history.engine)
    with history.engine.begin() as connection:
        for table in schema.get_table_names():
            if "node" in {column["name"] for column in schema.get_columns(table)}:
                rename = text(f"UPDATE {table} SET node = :hostile WHERE node = 'evil'")
                connection.execute(rename, {"hostile": HOSTILE})
        return int(connection.scalar(text("SELECT id FROM notices WHERE node = :node"), {"node": HOSTILE}) or 0)


def test_our_pages_follow_airflow_s_colour_mode(site: Site, drill: str, visit: Visit) -> None:
    page = visit("vera", color_scheme="light")
    page.goto(f"{site.base}/plugin/trainbench")
    body = page.frame_locator("iframe").locator("body")
    for chosen, colour in (("Dark Mode", DARK), ("Light Mode", LIGHT)):
        page.get_by_role("button", name="User").click()
        page.get_by_role("menuitem", name="Appearance").click()
        page.get_by_text(chosen, exact=True).click()
        expect(body).to_have_css("background-color", colour)
        page.keyboard.press("Escape")


def test_on_a_phone_no_page_scrolls_sideways(site: Site, hostile: int, visit: Visit) -> None:
    page = visit("vera", viewport=PHONE, is_mobile=True, has_touch=True)
    for path in (*OURS, f"notices/{hostile}", f"nodes/{quote(HOSTILE, safe='')}"):
        open_ours(page, site, path)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE["width"], f"/{path} is {width} px wide"
        assert (path, page.evaluate(TABLES_TOO_WIDE)) == (path, [])


def test_every_page_can_be_read_aloud_and_walked_by_keyboard(site: Site, hostile: int, visit: Visit) -> None:
    page = visit("ada", refusals={404})
    for path in (*OURS, f"notices/{hostile}", "nodes/unknown"):
        open_ours(page, site, path)
        assert (path, page.evaluate(WHAT_IS_WRONG)) == (path, [])
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_stands_out_from_its_background(
    site: Site, drill: str, hostile: int, visit: Visit, scheme: Literal["light", "dark"]
) -> None:
    page = visit("ada", refusals={404}, color_scheme=scheme)
    for path in (*OURS, f"notices/{hostile}", "nodes/unknown", f"dags/{DAG_ID}/runs/{quote(drill)}"):
        open_ours(page, site, path)
        assert (path, [pale for frame in page.frames for pale in frame.evaluate(WHAT_IS_PALE)]) == (path, [])
    stranger = visit(None, refusals={401}, color_scheme=scheme)
    stranger.goto(f"{site.base}/trainbench/notices/1")
    assert stranger.evaluate(WHAT_IS_PALE) == []


def test_a_node_is_searched_by_keyboard_and_the_view_has_an_address_to_send(
    site: Site, drill: str, visit: Visit
) -> None:
    page = visit("vera")
    page.goto(f"{site.base}/plugin/trainbench")
    inside = page.frame_locator("iframe")
    inside.get_by_label("Node", exact=True).focus()
    page.keyboard.type(DRILLED)
    page.keyboard.press("Enter")
    expect(inside.locator("tbody th")).to_have_count(1)
    expect(inside.get_by_label("Node", exact=True)).to_have_value(DRILLED)
    inside.get_by_role("link", name="Link to this view").click()

    expect(page).to_have_url(f"{site.base}/trainbench/?node={DRILLED}&days=30")
    expect(page.get_by_label("Node", exact=True)).to_have_value(DRILLED)


def test_names_from_outside_are_text(site: Site, hostile: int, visit: Visit) -> None:
    page = visit("ada")
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    for path in ("", f"notices/{hostile}", f"nodes/{quote(HOSTILE, safe='')}", "runs"):
        open_ours(page, site, path)
        expect(page.get_by_text(HOSTILE).first).to_be_attached()
        assert page.locator("img, [onerror], a[href^='javascript:']").count() == 0
    open_home(page, site, HOSTILE)
    banner = page.get_by_test_id("dashboard-alert-content").filter(has_text=HOSTILE)
    assert banner.locator("img, a[href^='javascript:']").count() == 0
    assert dialogs == []


def test_who_is_not_logged_in_is_asked_to_and_comes_back(site: Site, drill: str, visit: Visit) -> None:
    page = visit(None, refusals={401}, color_scheme="dark")
    page.goto(f"{site.base}/trainbench/notices/1")
    expect(page.locator("body")).not_to_contain_text(DRILLED)
    expect(page.locator("body")).to_have_css("background-color", DARK)
    page.get_by_role("link", name="Log in").click()
    page.get_by_label("Username").fill("vera")
    page.get_by_label("Password").fill("vera")
    page.get_by_role("button", name="Sign in").click()

    expect(page.locator("h1")).to_contain_text(DRILLED)
    expect(page).to_have_url(f"{site.base}/trainbench/notices/1")


def test_every_link_holds_behind_a_prefix(site: Site, drill: str, hostile: int, visit: Visit) -> None:
    page = visit("vera")
    open_home(page, site, HOSTILE)
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Notice", exact=True).click()
    notice = opened.value
    expect(notice).to_have_url(f"{site.base}/{in_airflow(f'notices/{hostile}', PREFIX)}")
    expect(notice.frame_locator("iframe").locator("h1")).to_contain_text(HOSTILE)
    notice.frame_locator("iframe").get_by_role("link", name="DAG run").click()
    expect(notice).to_have_url(f"{site.base}/dags/{DAG_ID}/runs/{quote(drill)}")
    notice.get_by_role("link", name="Benchmark", exact=True).click()
    expect(notice.frame_locator("iframe").locator("body")).to_contain_text("slowed gpu-b by 75 % on purpose")

    page.get_by_role("link", name="Benchmarks").click()
    inside = page.frame_locator("iframe")
    for name in ("Strategies", "Costs", "Runs", "Fleet"):
        inside.get_by_role("link", name=name, exact=True).click()
        expect(inside.get_by_role("link", name=name, exact=True)).to_have_attribute("aria-current", "page")
    expect(page).to_have_url(re.compile(re.escape(f"{site.base}/plugin/trainbench")))


def open_ours(page: Page, site: Site, path: str) -> None:
    """As a page of its own."""
    page.goto(f"{site.base}/trainbench/{path}")
    page.locator("main").wait_for()

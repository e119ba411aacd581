"""One Airflow with one drill for all tests of this folder, and pages of a real Chromium that are watched."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from chromium import NoChromium, chromium, find_chromium
from tests.browser.site import NODES, PATIENCE_S, Site
from tests.builders.needed import missing
from trainbench.history.history import open_history
from trainbench.results.artefacts import open_store
from trainbench.results.campaign import Campaign

DRILLED = NODES[1]
DESK = {"width": 1280, "height": 800}
SIGHT_MS = 180_000  # until something is to be seen: the machine may be busy
expect.set_options(timeout=SIGHT_MS)
Visit = Callable[..., Page]


@pytest.fixture(scope="session")
def is_there() -> None:
    """Before anything else is started."""
    try:
        find_chromium()
    except NoChromium as error:
        missing(str(error))


@pytest.fixture(scope="session")
def site(is_there: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("airflow")) as started:
        started.wait_until_healthy()
        yield started


@pytest.fixture(scope="session")
def drill(site: Site) -> str:
    """The id of a run that slowed a node on purpose, found it and turned red."""
    run_id, state = site.run(drill_node=DRILLED)
    assert state == "failed"
    return run_id


@pytest.fixture(scope="session")
def slow(site: Site, drill: str) -> str:
    """The drill's campaign recorded once more as if nobody had slowed the node: an open notice. Its run's id."""
    store = open_store(str(site.state / "store"))
    campaign = store.read_campaign(store.campaign_ids()[-1])
    text = campaign.model_dump_json()
    for drilled, red in (('"is_drill":true', '"is_drill":false'), ('"state":"drill"', '"state":"red"')):
        text = text.replace(drilled, red)
    real = Campaign.model_validate_json(text)
    results = [run.model_copy(update={"spec": run.spec.model_copy(update={"drill": None})}) for run in real.results]
    night = {"campaign_id": "the-night-after", "results": tuple(results)}
    open_history(site.history_url).record(real.model_copy(update=night))
    return drill


@pytest.fixture(scope="session")
def browser(site: Site) -> Iterator[Browser]:
    with chromium() as started:  # within the site's life: Airflow's end would take it along
        yield started


@pytest.fixture
def visit(site: Site, browser: Browser) -> Iterator[Visit]:
    """`visit("ada")`: a page of a browser of her own, logged in; None: of somebody who is not.

    At the end of the test: nothing was asked of another machine, no answer was an error but the expected `refusals`
    (statuses), and no script failed.
    """
    opened: list[BrowserContext] = []
    calls: list[str] = []
    wrong: list[str] = []

    def open_page(user: str | None = "ada", refusals: Collection[int] = (), **options: Any) -> Page:
        context = browser.new_context(**{"viewport": DESK} | options)
        opened.append(context)
        context.set_default_timeout(SIGHT_MS)
        if user:
            context.add_cookies([{"name": "_token", "value": site.token(user), "url": f"{site.base}/"}])
        context.on("request", lambda request: calls.append(request.url))
        context.on(
            "response",
            lambda reply: (
                wrong.append(f"{reply.status} {reply.url}")
                if reply.status >= 400 and reply.status not in refusals
                else None
            ),
        )
        # an answer that is an error is counted above
        context.on("console", lambda entry: wrong.append(entry.text) if _is_failure(entry.type, entry.text) else None)
        context.on("weberror", lambda error: wrong.append(str(error.error)))
        return context.new_page()

    yield open_page
    for context in opened:
        context.close()
    assert [url for url in calls if not url.startswith(("http://127.0.0.1:", "blob:http://127.0.0.1:", "data:"))] == []
    assert wrong == []


def open_home(page: Page, site: Site, banner: str, *, is_shown: bool = True) -> None:
    """Airflow's home page when the banner is there, or is not: it never waits for one, and keeps it for seconds."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        page.goto(f"{site.base}/")
        page.get_by_role("heading", name="Welcome").wait_for()
        if bool(page.get_by_test_id("dashboard-alert-content").filter(has_text=banner).count()) == is_shown:
            return
        assert time.monotonic() < give_up, f"'{banner}' on the home page: {not is_shown}"


def _is_failure(kind: str, text: str) -> bool:
    return kind == "error" and not text.startswith("Failed to load resource")

"""Links out of Airflow's frame, which our script follows in Airflow's own document: to pages of this server only.

The frame is a real Chromium's, sandboxed as Airflow sandboxes it; the server is a table of four pages.
"""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, Route

from tests.browser.conftest import SIGHT_MS

BASE = "http://airflow.test"
SCRIPT = Path(__file__).parents[2] / "plugins" / "trainbench" / "pages" / "render" / "static" / "pages.js"
SANDBOX = "allow-scripts allow-same-origin allow-forms"
PAGES = {
    f"{BASE}/": f'<iframe sandbox="{SANDBOX}" src="/inner"></iframe>',
    f"{BASE}/inner": """<script src="/pages.js"></script><main>
        <a target="_top" href="javascript:window.ran = true">script</a>
        <a target="_top" href="http://elsewhere.test/">elsewhere</a>
        <a target="_top" href="/ours">ours</a></main>""",
    f"{BASE}/ours": "ours",
    "http://elsewhere.test/": "elsewhere",
}


def answer(route: Route) -> None:
    if route.request.url.endswith("/pages.js"):
        route.fulfill(body=SCRIPT.read_text(), content_type="text/javascript")
    else:
        route.fulfill(body=PAGES.get(route.request.url, ""), content_type="text/html")


def test_a_link_out_of_the_frame_leads_to_this_server_and_runs_no_script(browser: Browser) -> None:
    with browser.new_context() as context:
        context.set_default_timeout(SIGHT_MS)
        page = context.new_page()
        page.route("**/*", answer)
        page.goto(f"{BASE}/")
        inside = page.frame_locator("iframe")
        for name in ("script", "elsewhere"):
            inside.get_by_role("link", name=name).click()
            assert (page.evaluate("window.ran"), page.url) == (None, f"{BASE}/")
        inside.get_by_role("link", name="ours").click()
        page.wait_for_url(f"{BASE}/ours")

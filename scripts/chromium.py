"""A real Chromium, driven by Playwright: Debian's, or any other that is there. Nothing but packages is downloaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

NAMED_BY = "TRAINBENCH_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
START_MS = 300_000  # the machine may be busy
# Root in a container has no sandbox, and nothing may use the network.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class NoChromium(RuntimeError):
    """One sentence: what is missing and what to do."""


def find_chromium() -> str:
    """Its path. Raises NoChromium."""
    if named := os.environ.get(NAMED_BY):
        if path := shutil.which(named):
            return path
        raise NoChromium(f"{NAMED_BY} is '{named}', which is no program: name one, or unset it")
    if path := next(filter(None, map(shutil.which, NAMES)), None):
        return path
    raise NoChromium(f"no Chromium here: install the package chromium, or name one with {NAMED_BY}=/path/to/it")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Headless, with a fresh profile that goes with it. Raises NoChromium."""
    path = find_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS, timeout=START_MS)
        try:
            yield browser
        finally:
            browser.close()

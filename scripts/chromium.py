"""A real Chromium, driven by Playwright: Debian's, or any other that is there. Nothing but packages is downloaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from debian import NoPackage, install

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
    """Its path; as root on Debian it is installed if need be. Raises NoChromium."""
    if named := os.environ.get(NAMED_BY):
        if path := shutil.which(named):
            return path
        raise NoChromium(f"{NAMED_BY} is '{named}', which is no program: name one, or unset it")
    path = _on_path()
    if not path:
        try:
            install("chromium")
        except NoPackage as error:
            raise NoChromium(f"no Chromium here: {error}, or name one with {NAMED_BY}=/path/to/it") from None
        path = _on_path()
    if not path:
        raise NoChromium(f"the package chromium brought no program: name one with {NAMED_BY}=/path/to/it")
    return path


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


def _on_path() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)

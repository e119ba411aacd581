"""Shared by all tests: golden files, and how often Python looks for cycles."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Protocol

import pytest

GOLDEN_DIR = Path(__file__).parent / "golden"


class Golden(Protocol):
    def __call__(self, name: str, text: str, folder: Path = GOLDEN_DIR) -> None: ...


def pytest_configure() -> None:
    gc.set_threshold(200_000, 50, 100)  # looking for cycles takes 5 % of the unit tests, which import much


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="store_true", help="rewrite the golden files instead of comparing with them")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden("report.md", text)` compares `text` with tests/golden/report.md; `pytest --golden` rewrites the file."""
    rewrite = request.config.getoption("--golden")

    def check(name: str, text: str, folder: Path = GOLDEN_DIR) -> None:
        path = folder / name
        if rewrite:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"there is no {path.name}: write it with `pytest --golden {request.node.nodeid}`"
        assert text == path.read_text(encoding="utf-8"), f"{path.name} differs; if that is meant: `pytest --golden`"

    return check

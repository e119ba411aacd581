"""Fixtures of the history's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.databases import DATABASES, empty_database
from trainbench.history.history import History, open_history


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    return empty_database(request.param, tmp_path)


@pytest.fixture
def history(url: str) -> History:
    return open_history(url)

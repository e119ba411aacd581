"""A database with three nights, to be read only."""

from __future__ import annotations

import pytest

from tests.builders.databases import empty_database
from tests.builders.three_nights import SEEN, three_nights
from trainbench.history.history import History, open_history
from trainbench.pages.reads.queries import Pages


@pytest.fixture(scope="package")
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> History:
    """To be read only."""
    url = empty_database(getattr(request, "param", "sqlite"), tmp_path_factory.mktemp("pages"))
    return three_nights(open_history(url))


@pytest.fixture
def pages(recorded: History) -> Pages:
    return Pages(recorded.engine, {SEEN, "a DAG that never ran"})

"""Commands run in the test's process, with their own standard output and error."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def handlers_of_this_test() -> Iterator[None]:
    """A command that imports Airflow configures its logging, whose handlers keep the command's closed streams."""
    before = list(logging.root.handlers)
    yield
    logging.root.handlers[:] = before

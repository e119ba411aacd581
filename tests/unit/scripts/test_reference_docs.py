"""The reference pages that are made from the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from reference_docs import PAGES


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_page_is_that_of_the_code(path: Path) -> None:
    """`python scripts/reference_docs.py` writes it."""
    assert path.read_text() == PAGES[path]()

"""Each null of a result has its reason."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.result import SECTIONS
from tests.unit.image.contract.documents import NULL_HERE, Document, parse, paths_of, put, refusal, result_document


def nullable_paths() -> list[tuple[Any, ...]]:
    """All fields of the measured sections that may be null, by trying."""
    measured = [path for path in paths_of(result_document()) if path and path[0] in SECTIONS]
    return [path for path in measured if "null without a reason" in refusal(with_null(path))]


def with_null(path: tuple[Any, ...]) -> Document:
    document = result_document()
    document["missing"] = dict(NULL_HERE)
    return put(document, path, None)


@pytest.mark.parametrize("path", nullable_paths(), ids=lambda path: ".".join(map(str, path)))
def test_a_null_needs_a_reason(path: tuple[Any, ...]) -> None:
    where = ".".join(map(str, path))
    document = with_null(path)

    assert f"{where} is null without a reason" in refusal(document)
    if where == "performance.samples_per_second":
        return  # a good result has one, reason or not
    document["missing"][where] = "the driver does not tell"
    assert parse(document).missing[where] == "the driver does not tell"


def test_the_search_for_nullable_fields_finds_them() -> None:
    """Each section that is measured has some, and so has each GPU."""
    actual = nullable_paths()

    assert {path[0] for path in actual} == set(SECTIONS) - {"cost"}
    assert ("telemetry", "gpus", 0, "remapped_rows") in actual

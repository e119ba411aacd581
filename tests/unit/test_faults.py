"""tests/kube/faults.toml: each row is run somewhere, and docs/kubernetes.md has the table that is made from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import Golden
from tests.kube.faults import PLACES, Fault, faults, table

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "kubernetes.md"
TABLE = re.compile(r"^\| fault \|.*?\n(?=\n)", re.MULTILINE | re.DOTALL)


@pytest.fixture(params=faults(), ids=lambda fault: fault.name)
def fault(request: pytest.FixtureRequest) -> Fault:
    made: Fault = request.param
    return made


def test_there_are_forty_faults_with_names_of_their_own() -> None:
    names = [fault.name for fault in faults()]

    assert len(names) >= 40
    assert len(set(names)) == len(names)


def test_it_is_run_where_it_says(fault: Fault) -> None:
    assert fault.places
    assert set(fault.places) <= set(PLACES)
    assert ("night" in fault.places) == (fault.night is not None)
    assert ("operator" in fault.places) == bool(fault.cases)
    assert fault.tests or fault.night


def test_its_tests_exist(fault: Fault) -> None:
    for test in fault.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file(), test
        assert not name or f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8"), test


def test_the_page_has_the_table(request: pytest.FixtureRequest, golden: Golden) -> None:
    """`pytest --golden` rewrites it."""
    text = PAGE.read_text(encoding="utf-8")
    golden("kubernetes.md", TABLE.sub(lambda _: table(faults()), text, count=1), PAGE.parent)

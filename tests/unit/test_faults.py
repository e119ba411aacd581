"""tests/kube/faults.toml: each row is run somewhere, and docs/internals/kubernetes.md has its table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import Golden
from tests.kube.faults import Fault, faults, table

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "internals" / "kubernetes.md"
TABLE = re.compile(r"^\| fault \|.*?\n(?=\n)", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault.name)
def test_a_row_is_run_by_tests_that_exist(fault: Fault) -> None:
    assert fault.tests or fault.night
    for test in fault.tests:
        path, _, name = test.partition("::")
        assert not name or f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8"), test


def test_the_page_has_the_table(golden: Golden) -> None:
    """`pytest --golden` rewrites it."""
    text = PAGE.read_text(encoding="utf-8")
    golden("kubernetes.md", TABLE.sub(lambda _: table(faults()), text, count=1), PAGE.parent)

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
OPERATOR = ROOT / "tests" / "kube" / "test_operator.py"


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault.name)
def test_a_row_is_run_by_tests_or_cases_that_exist(fault: Fault) -> None:
    """A case that is not there would be skipped as one that needs the stand-in."""
    assert fault.tests or fault.cases or fault.night
    for test in fault.tests:
        path, _, name = test.partition("::")
        assert not name or f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8"), test
    for case in fault.cases:
        assert re.search(rf'Case\(\s*"{case}"', OPERATOR.read_text(encoding="utf-8")), case


def test_the_page_has_the_table(golden: Golden) -> None:
    """`pytest --golden` rewrites it."""
    text = PAGE.read_text(encoding="utf-8")
    golden("kubernetes.md", TABLE.sub(lambda _: table(faults()), text, count=1), PAGE.parent)

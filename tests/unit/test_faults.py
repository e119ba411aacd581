"""tests/kube/faults.toml: each row is run somewhere, its tests show all invariants that apply to it, and
docs/internals/kubernetes.md has the table that is made from it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import Golden
from tests.kube.faults import INVARIANTS, Fault, faults, table

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "internals" / "kubernetes.md"
TABLE = re.compile(r"^\| fault \|.*?\n(?=\n)", re.MULTILINE | re.DOTALL)
OPERATOR = ROOT / "tests" / "kube" / "test_operator.py"
# `after_fault` shows those that it is called with.
SHOWN_BY = {
    "after_night": {"results", "green", "cause"},
    "after_gang": set(INVARIANTS),
    "after_marking": {"results", "green", "cause"},
}


@pytest.fixture(params=faults(), ids=lambda fault: fault.name)
def fault(request: pytest.FixtureRequest) -> Fault:
    made: Fault = request.param
    return made


@cache
def module(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def rows_of(call: ast.Call, tree: ast.Module) -> set[str]:
    """The rows that a call of `after_fault` or of one of SHOWN_BY names, by strings or by `*CONSTANT`."""
    constants = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    names: set[str] = set()
    for argument in call.args:
        if isinstance(argument, ast.Starred) and isinstance(argument.value, ast.Name):
            names |= set(ast.literal_eval(constants[argument.value.id]))
        elif isinstance(argument, ast.Constant):
            names.add(str(argument.value))
    return names


def calls(test: str) -> Iterator[tuple[ast.Call, ast.Module]]:
    """Those within one test function, or within a whole file."""
    path, _, name = test.partition("::")
    tree = module(ROOT / path)
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and name in ("", function.name):
            yield from ((node, tree) for node in ast.walk(function) if isinstance(node, ast.Call))


def shown(row: Fault) -> set[str]:
    """The invariants that the row's own tests assert."""
    names: set[str] = set()
    for test in row.tests:
        for call, tree in calls(test):
            called = call.func.id if isinstance(call.func, ast.Name) else ""
            if called in ("after_fault", *SHOWN_BY) and row.name in rows_of(call, tree):
                names |= SHOWN_BY.get(called, {keyword.arg or "" for keyword in call.keywords})
    return names


def test_its_tests_exist(fault: Fault) -> None:
    assert fault.tests or fault.cases or fault.night
    for test in fault.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file(), test
        assert not name or f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8"), test


def test_its_cases_exist(fault: Fault) -> None:
    """A case that is not there would be skipped as one that needs the stand-in."""
    text = OPERATOR.read_text(encoding="utf-8")
    for case in fault.cases:
        assert re.search(rf'Case\(\s*"{case}"', text), case


def test_each_invariant_is_shown_or_does_not_apply(fault: Fault) -> None:
    """Night and operator show all four for each of their rows."""
    everywhere = fault.night or fault.cases
    does_not_apply = set(fault.does_not_apply)

    assert does_not_apply <= set(INVARIANTS)
    assert not (everywhere and does_not_apply)
    assert (set(INVARIANTS) if everywhere else shown(fault) | does_not_apply) == set(INVARIANTS)
    assert shown(fault).isdisjoint(does_not_apply)


def test_the_page_has_the_table(request: pytest.FixtureRequest, golden: Golden) -> None:
    """`pytest --golden` rewrites it."""
    text = PAGE.read_text(encoding="utf-8")
    golden("kubernetes.md", TABLE.sub(lambda _: table(faults()), text, count=1), PAGE.parent)

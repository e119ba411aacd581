"""docs/internals/cost.md names functions and tests that exist and computes what it says; docs/cost.md has a price."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

from trainbench.prices.price_tables import PRICES_FILE, read_prices

ROOT = Path(__file__).parents[3]
INTERNALS = ROOT / "docs" / "internals" / "cost.md"
PAGE = INTERNALS.read_text(encoding="utf-8")
FORMULAS = re.findall(r"^\|.*\| `([\w.]+)` \| `(\w+)\.(test_\w+)\.(test_\w+)` \|$", PAGE, re.MULTILINE)


def test_every_formula_names_its_function_and_test() -> None:
    table = PAGE.split("| figure |", 1)[1].split("\n\n", 1)[0]
    assert len(FORMULAS) == len(table.splitlines()) - 2


@pytest.mark.parametrize(("function", "package", "module", "test"), FORMULAS)
def test_the_function_and_the_test_are_there(function: str, package: str, module: str, test: str) -> None:
    of, where, *names = function.split(".")
    result: object = importlib.import_module(f"trainbench.{of}.{where}")
    for name in names:
        result = getattr(result, name)
    tests = ROOT / "tests" / "unit" / package / f"{module}.py"
    assert re.search(rf"^ *def {test}\(", tests.read_text(), re.MULTILINE)


def test_the_worked_examples_compute_what_they_say() -> None:
    failed, tried = doctest.testfile(str(INTERNALS), module_relative=False)
    assert (failed, tried) == (0, 13)


def test_the_example_of_an_own_table_can_be_read(tmp_path: Path) -> None:
    (table,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "cost.md").read_text(), re.DOTALL)
    path = tmp_path / "own.toml"
    path.write_text(table)
    (price,) = read_prices(path)
    assert price.usd_per_gpu_hour == pytest.approx(1.60)


def test_every_source_of_the_table_is_documented() -> None:
    """By repository and date: `github.com/owner/name`."""
    for price in read_prices(PRICES_FILE):
        assert str(price.as_of) in PAGE or "published" in price.source, price
        for repository in re.findall(r"github\.com/([\w-]+/[\w-]+)", price.source):
            assert repository in PAGE, price

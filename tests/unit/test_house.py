"""Short functions and short files, and tests that lie where their module lies."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_FUNCTION_LINES, MAX_FILE_LINES, MAX_TEST_FILE_LINES = 40, 400, 500
# A migration lists each column once.
LONG_FUNCTIONS = {"plugins/trainbench/history/migrations"}


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def long_functions(text: str) -> list[str]:
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    sizes = ((node.name, (node.end_lineno or node.lineno) - node.lineno + 1) for node in functions)
    return [f"{name}: {lines} lines" for name, lines in sizes if lines > MAX_FUNCTION_LINES]


@pytest.mark.parametrize("folder", ["plugins", "dags", "bench_image", "scripts", "studies"])
def test_no_function_is_longer_than_a_screen(folder: str) -> None:
    long = {
        str(path.relative_to(ROOT)): actual
        for path in sources(folder)
        if (actual := long_functions(path.read_text()))
        and not any(str(path.relative_to(ROOT)).startswith(excepted) for excepted in LONG_FUNCTIONS)
    }

    assert long == {}


def test_no_file_is_longer_than_four_hundred_lines() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources("plugins", "bench_image")
    }

    assert {name: lines for name, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_forty_lines_pass_and_forty_one_do_not() -> None:
    """A signature and 39 statements are 40 lines."""
    assert long_functions("def short():\n" + "    pass\n" * 39) == []
    assert long_functions("def long():\n" + "    pass\n" * 40) == ["long: 41 lines"]


def test_no_test_file_is_longer_than_five_hundred_lines() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources("tests")}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_TEST_FILE_LINES} == {}


# Tests of a subject of their package, not of one module.
SUBJECTS = {
    "alerting/test_nights_of_notices.py",
    "image/contract/test_equal_work.py",
    "image/contract/test_nulls.py",
    "judging/test_properties.py",
    "pages/render/test_parts.py",
    "pages/test_condition_surfaces.py",
    "planning/test_gpu_resources.py",
    "pods/test_pod_template_examples.py",
    "prices/test_cost_doc.py",
}


def test_each_unit_test_lies_where_its_module_lies() -> None:
    """tests/unit/PACKAGE/test_MODULE.py: in `cli` one for each command, at the top what concerns several packages."""
    unit = ROOT / "tests" / "unit"
    strays = set()
    for test in unit.glob("*/**/test_*.py"):
        package, *rest = test.relative_to(unit).parts[:-1]
        home = {"image": ROOT / "bench_image", "scripts": ROOT / "scripts", "studies": ROOT / "studies"}
        module = home.get(package, ROOT / "plugins" / "trainbench" / package).joinpath(*rest, test.name[len("test_") :])
        if package != "cli" and not module.exists():
            strays.add(str(test.relative_to(unit)))
    assert strays == SUBJECTS

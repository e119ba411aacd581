"""The stand-in cluster could be lifted out of this repository: it imports nothing of it, and shows only its surface."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import tests.standin

TESTS = Path(tests.standin.__file__).parents[1]
NEEDS = {"aiohttp", "kubernetes_validate", "yaml"}  # besides Python's own library


def imports(folder: Path) -> Iterator[tuple[Path, str, tuple[str, ...]]]:
    """(file, module, names) of each import statement below `folder`."""
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "tests.standin" in text or "standin" in path.parts else ():
            if isinstance(node, ast.ImportFrom):
                assert node.module, f"{path}: import by the whole name"
                yield path, node.module, tuple(alias.name for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from ((path, alias.name, ()) for alias in node.names)


def test_it_imports_nothing_of_what_it_tests() -> None:
    modules = {module for _, module, _ in imports(TESTS / "standin") if not f"{module}.".startswith("tests.standin.")}
    assert {module.split(".")[0] for module in modules} - sys.stdlib_module_names == NEEDS


def test_it_names_no_product() -> None:
    code = "\n".join(path.read_text() for path in (TESTS / "standin").glob("*.py"))
    assert "trainbench" not in code
    assert "bench_image" not in code


def test_everybody_else_uses_its_public_names() -> None:
    inside = TESTS / "standin"
    used = [(path, module, names) for path, module, names in imports(TESTS) if inside not in path.parents]
    used += imports(TESTS.parent / "studies")
    assert [(path.name, module) for path, module, _ in used if module.startswith("tests.standin.")] == []
    names = {name for _, module, names in used if module == "tests.standin" for name in names}
    assert names <= set(tests.standin.__all__)
    assert names

"""The documents name what exists: links, paths and packages."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
INTERNALS = DOCS / "internals"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.glob("*.md"), *INTERNALS.rglob("*.md")])
GUIDES = [INTERNALS / "architecture.md", DOCS / "index.md", DOCS / "glossary.md", *sorted(INTERNALS.glob("*/*.md"))]
LINK = re.compile(r"\]\(([^)#\s]+)")
SOURCES = ("bench_image/", "dags/", "docker/", "docs/", "plugins/", "scripts/", "studies/", "tests/")
PATH = re.compile(rf"`((?:{'|'.join(SOURCES)})[\w./-]*)`")

TEST = re.compile(r"^ *def (test_\w+)", re.MULTILINE)
NAME = re.compile(r"(?<![*\w])(?:\w+\.py|test_\w+)\b")
FOREIGN = {"benchmark.py", "train.py"}  # what users call their own program


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_link_leads_to_a_file(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_anchor_is_a_heading(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8"))
    ours = [(path, anchor) for path, anchor in links if "://" not in path]
    assert [each for each in ours if each[1] not in anchors((page.parent / each[0]) if each[0] else page)] == []


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_each_named_path_exists(page: Path) -> None:
    paths = PATH.findall(page.read_text(encoding="utf-8"))
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "mutation.md"], ids=name_of)
def test_each_named_module_and_test_exists(page: Path) -> None:
    """mutation.md lists code as it was when its sample was drawn."""
    assert {*NAME.findall(page.read_text(encoding="utf-8"))} - known_names() <= FOREIGN


@cache
def known_names() -> set[str]:
    modules = {path.name for folder in SOURCES for path in (ROOT / folder).rglob("*.py")}
    tests = {name for path in (ROOT / "tests").rglob("test_*.py") for name in TEST.findall(path.read_text())}
    return modules | tests | {name.removesuffix(".py") for name in modules}


@pytest.mark.parametrize("folder", ["plugins/trainbench", "bench_image"])
def test_architecture_describes_each_package(folder: str) -> None:
    text = (INTERNALS / "architecture.md").read_text(encoding="utf-8")
    packages = sorted(package.parent.name for package in (ROOT / folder).glob("*/__init__.py"))
    assert packages
    assert [package for package in packages if f"\n| `{package}` | " not in text] == []


def test_architecture_answers_twenty_questions() -> None:
    table = (INTERNALS / "architecture.md").read_text(encoding="utf-8").split("## Where is ...?\n")[1]
    answers = re.findall(rf"^\| [^|]+ \| {PATH.pattern} \|$", table, flags=re.MULTILINE)
    assert len(answers) >= 20
    assert [path for path in answers if not (ROOT / path).is_file()] == []


def test_the_index_leads_to_every_page() -> None:
    """That of the internals to theirs."""
    indices = {DOCS / "index.md", INTERNALS / "README.md"}
    links = {(index.parent / link).resolve() for index in indices for link in LINK.findall(index.read_text())}
    assert [name_of(page) for page in PAGES if page.is_relative_to(DOCS) and page not in links | indices] == []

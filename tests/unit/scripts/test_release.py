"""A release: one version, all files in the wheel, a README that can be read outside of the repository."""

from __future__ import annotations

import re
import tomllib
import zipfile
from pathlib import Path

from release import absolute_readme, missing_files, the_version

ROOT = Path(__file__).resolve().parents[3]
IMAGE = re.compile(
    r"(?:trainbench|registry\.example/ml)/(?:bench|airflow|airflow-local):(\d[\w.]*)|[tT]ag: \"(\d[\w.]*)\""
)
FOLLOW = (
    "docker/.env.example",
    "docker/airflow/local.Dockerfile",
    "docker/compose.local.yaml",
    "docker/compose.yaml",
    "docker/helm/values.yaml",
    "docs/deploy.md",
    "docs/settings.md",
    "CONTRIBUTING.md",
    "tests/kube/e2e.py",
)


def test_files_that_cannot_compute_the_version_hold_it() -> None:
    for name in FOLLOW:
        versions = {first or second for first, second in IMAGE.findall((ROOT / name).read_text())}
        assert versions == {the_version()}, f"{name} names {versions}: write {the_version()} there"


def test_the_changelog_has_the_version_below_what_is_not_released() -> None:
    sections = re.findall(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sections[:2] == ["Unreleased", the_version()]


def test_the_readme_of_the_packages_leads_to_the_repository_at_the_tag() -> None:
    text = absolute_readme((ROOT / "README.md").read_text(), "https://example.org/x", "1.2.3")

    assert '<img alt="The page' in text
    assert 'src="https://example.org/x/raw/v1.2.3/docs/images/benchmarks-light.png"' in text
    assert 'srcset="https://example.org/x/raw/v1.2.3/docs/images/benchmarks-dark.png"' in text
    assert "(https://example.org/x/blob/v1.2.3/docs/index.md)" in text
    assert "git clone https://example.org/x trainbench" in text
    assert re.findall(r'\]\((?!https://)[^)]*\)|src(?:set)?="(?!https://)', text) == []


def test_without_an_address_the_readme_has_neither_links_nor_pictures() -> None:
    text = absolute_readme(
        "See [this](docs/a.md), [that](https://x.org).\n<picture><img src='a'></picture>\nEnd.", "", "1"
    )

    assert text == "See this, [that](https://x.org).\nEnd."
    assert "](docs" not in absolute_readme((ROOT / "README.md").read_text(), "", "1")


def test_a_file_that_the_wheel_lacks_is_named(tmp_path: Path) -> None:
    for name in ("dags/a.py", "docs/schemas/b.json", "plugins/trainbench/x.css", "bench_image/y.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    wheel = tmp_path / "trainbench-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("trainbench-1.2.3.data/data/share/trainbench/dags/a.py", "")
        archive.writestr("bench_image/y.py", "")

    schema = "trainbench-1.2.3.data/data/share/trainbench/schemas/b.json"
    assert missing_files(wheel, tmp_path) == [schema, "trainbench/x.css"]


def test_every_file_of_the_packages_is_package_data() -> None:
    """`make release` looks into the wheel; this sees a new folder of templates before."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    held = set()
    for package, patterns in settings.items():
        folder = ROOT / "plugins" / package.replace(".", "/")
        folder = folder if folder.is_dir() else ROOT / package.replace(".", "/")
        held |= {path for pattern in patterns for path in folder.glob(pattern)}
    files = [path for base in ("plugins/trainbench", "bench_image") for path in (ROOT / base).rglob("*.*")]
    assert [path for path in files if path.is_file() and path.suffix not in (".py", ".pyc") and path not in held] == []

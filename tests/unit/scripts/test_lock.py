"""The requirement files: each package with hashes, and everything that pyproject.toml and the packages ask for; base
images by digest."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lock import LOCKS, PIN, Lock, pins_of

ROOT = Path(__file__).resolve().parents[3]
PYTHONS = ("3.11", "3.12", "3.13")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
BY_NAME = {lock.name: lock for lock in LOCKS}
# What is installed together; `given`: what comes otherwise.
CLOSED = (
    ("requirements/control.txt",),
    ("requirements/control.txt", "requirements/dev.txt"),
    ("requirements/control.txt", "docker/airflow/requirements.txt"),
    (
        "requirements/image.txt",
        "requirements/image-cuda.txt",
        "requirements/image-source.txt",
        "requirements/image-dev.txt",
    ),
)


def versions(names: tuple[str, ...], python: str) -> dict[str, str]:
    """Of the packages that pip installs there on Linux, by their names."""
    environment = {**default_environment(), "python_version": python, "python_full_version": f"{python}.9"}
    requirements = [Requirement(pin.split(" \\\n")[0]) for name in names for pin in pins_of(name)]
    wanted = [each for each in requirements if each.marker is None or each.marker.evaluate(environment)]
    actual = {canonicalize_name(each.name): str(each.specifier).removeprefix("==") for each in wanted}
    assert len(actual) == len(wanted), "a package is named twice"
    return actual


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_package_has_its_hashes_and_no_line_names_an_index(lock: Lock) -> None:
    text = (ROOT / lock.name).read_text()
    rest = [line for line in PIN.sub("", text).splitlines() if line and not line.startswith("#")]

    assert pins_of(lock.name)
    for pin in pins_of(lock.name):
        first, *hashes = re.split(r" \\\n    ", pin)
        assert re.match(r"[a-z0-9-]+==[\w.]+( ; .+)?$", first), first
        assert hashes, f"{first} has no hash"
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), first
    assert rest == re.findall(r"^-r .*$", lock.note, re.MULTILINE)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("names", CLOSED, ids=lambda names: names[-1])
def test_the_files_hold_what_pyproject_requires(names: tuple[str, ...], python: str) -> None:
    locked = versions(names, python)
    extras = {extra for name in names for extra in BY_NAME[name].extras}
    more = [requirement for name in names for requirement in BY_NAME[name].more]
    for text in [requirement for extra in extras for requirement in EXTRAS[extra]] + more:
        wanted = Requirement(text)
        assert wanted.specifier.contains(locked[canonicalize_name(wanted.name)]), text


@pytest.mark.parametrize("python", PYTHONS)
def test_nothing_that_a_locked_package_needs_is_missing(python: str) -> None:
    """As the packages installed here say; pip would refuse a need without a hash."""
    locked = versions(("requirements/control.txt", "requirements/dev.txt"), python)
    environment = {**default_environment(), "python_version": python, "python_full_version": f"{python}.9", "extra": ""}
    missing = []
    for name in locked:
        try:
            needs = [Requirement(text) for text in requires(name) or []]
        except PackageNotFoundError:  # for another Python or system
            continue
        for need in needs:
            if need.marker is None or need.marker.evaluate(environment):
                version = locked.get(canonicalize_name(need.name))
                if version is None or not need.specifier.contains(version, prereleases=True):
                    missing.append(f"{name} needs {need}; locked: {version}")

    assert missing == []


def test_base_images_are_named_by_digest() -> None:
    """By tag too, for people; our own images, which a registry of the installation holds, carry none."""
    files = [*(ROOT / "docker").glob("*/*Dockerfile"), *(ROOT / "docker").rglob("*.yaml")]
    images = [image for path in files for image in re.findall(r"\bdocker\.io/\S+", path.read_text())]

    assert len(images) >= 3
    assert [image for image in images if not re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", image)] == []

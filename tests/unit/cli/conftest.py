"""Commands run in the test's process, with their own standard output and error."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.image_server import as_python, image_server
from trainbench.reporting import plots


@pytest.fixture(autouse=True)
def handlers_of_this_test() -> Iterator[None]:
    """A command that imports Airflow configures its logging, whose handlers keep the command's closed streams."""
    before = list(logging.root.handlers)
    yield
    logging.root.handlers[:] = before


@pytest.fixture
def with_plots() -> None:
    """For tests that need the plots: see `no_plots`."""


@pytest.fixture(autouse=True)
def no_plots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without plots, which take half of a command's time and have tests of their own."""
    if "with_plots" not in request.fixturenames:
        monkeypatch.setattr(plots, "draw", lambda campaign: {})


@pytest.fixture(scope="package")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with image_server(tmp_path_factory.mktemp("image"), "tests.unit.cli.fake_image") as server:
        yield server


@pytest.fixture
def home(image: Path, no_settings: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, four nodes, and the stand-in program as the image's interpreter."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "image").mkdir()
    python = as_python(tmp_path / "image", image, HANGS=f"{tmp_path}/hangs.pid")
    monkeypatch.setenv("TRAINBENCH_LOCAL_PYTHON", str(python))
    return tmp_path

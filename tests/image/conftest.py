"""Fixtures of several modules, made once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders.distributed_runs import run_all


@pytest.fixture(scope="session")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The records of both ranks in every case of `distributed_runs`."""
    return run_all(tmp_path_factory.mktemp("ranks"))

"""Fixtures of several modules, made once, and one thread for each process."""

from __future__ import annotations

import os
from typing import Any

import pytest

# Before torch is imported. Of models this small a second thread computes nothing: it spins, for half of the CPU time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from tests.builders.distributed_runs import run_all  # imports torch


@pytest.fixture(scope="session")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The records of both ranks in every case of `distributed_runs`."""
    return run_all(tmp_path_factory.mktemp("ranks"))

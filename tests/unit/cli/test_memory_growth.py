"""The memory of a command grows so little with each result that 1,000 nodes with 8 GPUs each need less than 1 GB.

Counted are the bytes that Python allocates, not the process's memory, which depends on the machine.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.builders import make_result
from trainbench.cli.app import app
from trainbench.history import history
from trainbench.reporting import plots

FEW, MANY, GOAL = 10, 30, 8_000  # results: 1,000 nodes, each of their 8 GPUs measured by itself
MOST_BYTES = 1_000_000_000
PROGRAM_BYTES = 250_000_000  # modules and libraries; the largest is report with 180 MB
NODES = 10


@pytest.fixture(scope="module")
def growth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, float]]:
    """Command -> bytes of its peak for each further result."""
    folder = tmp_path_factory.mktemp("growth")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "draw", lambda campaign: {})  # takes as much memory for few results as for many
        patch.setattr(history, "ROWS_AT_ONCE", history.ROWS_AT_ONCE // 50)  # in proportion to so few results
        patch.setenv("TRAINBENCH_STORE", str(folder / "store"))
        _peaks(folder / "first", NODES, is_traced=False)  # imports modules, and makes what is kept from then on
        few, many = (_peaks(folder / str(number), number, is_traced=True) for number in (FEW, MANY))
        yield {command: (many[command] - few[command]) / (MANY - FEW) for command in many}


@pytest.mark.parametrize("command", ["check", "report", "reindex"])
def test_1000_nodes_with_8_gpus_need_less_than_1_gb(command: str, growth: dict[str, float]) -> None:
    assert growth[command] > 1000, "the peak does not come from the results: the test measures something else"
    assert PROGRAM_BYTES + growth[command] * GOAL < MOST_BYTES


def _peaks(folder: Path, num_results: int, is_traced: bool) -> dict[str, int]:
    """Of the commands over that many results, each with a rate, windows and step times of its own."""
    for number in range(num_results):
        rate = 9.5 + number / 100_000
        result = make_result(f"node-{number % NODES}", rate, round=number // NODES + 1, windows=(1.0, 0.999, 1.001))
        path = folder / "results" / str(number) / "result.json"
        path.parent.mkdir(parents=True)
        path.write_text(result.model_dump_json())
    results, published = str(folder / "results"), str(folder / "published")
    commands = (("check", results), ("report", results, "--output", published), ("reindex", "--store", published))
    return {arguments[0]: _peak_bytes(arguments, is_traced) for arguments in commands}


def _peak_bytes(arguments: Sequence[str], is_traced: bool) -> int:
    gc.collect()
    if is_traced:
        tracemalloc.start()
    try:
        done = CliRunner().invoke(app, [*arguments, "--json"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert done.exit_code == 0, done.output
    return peak

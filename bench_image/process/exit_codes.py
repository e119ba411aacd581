"""Exit codes: of this program by status, and of the ranks' processes as their supervisor saw them end."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from bench_image.contract.parse import explain
from bench_image.contract.result import Status
from bench_image.data.atomic_file import write_atomic

EXIT_CODES = {
    Status.OK: 0,
    Status.ERROR: 1,
    Status.OOM: 3,
    Status.INVALID_LOSS: 4,
    Status.TIMEOUT: 5,
    Status.INCOMPLETE: 6,
}
BAD_SPEC = 2
RANK_EXITS_FILE = "rank-exits.json"


class ProcessExits(NamedTuple):
    """How the processes of one pod ended: rank -> exit code, negative for a signal."""

    codes: Mapping[int, int]
    timed_out: bool = False
    stopped_by: str | None = None  # the signal that stopped the supervisor
    cut_off: frozenset[int] = frozenset()  # ranks that still ran when the supervisor ended them
    patience_s: float | None = None  # not timeout_s ended them, but this long after a neighbour had done equal work


def write_exit_codes(folder: Path, codes: Mapping[int, int]) -> None:
    """Writes the exit codes of the ranks that failed first; a negative one is a signal."""
    write_atomic(folder / RANK_EXITS_FILE, json.dumps(codes))


def read_exit_codes(folder: Path) -> dict[int, int]:
    """The exit codes that `write_exit_codes` wrote; empty where no rank failed, or where the file was cut: the
    reports still say how the ranks ended.
    """
    path = folder / RANK_EXITS_FILE
    try:
        return TypeAdapter(dict[int, int]).validate_json(path.read_bytes()) if path.exists() else {}
    except ValidationError as error:
        sys.stderr.write(f"{path.name} is broken: {explain(error)}\n")
        return {}


def signal_name(exit_code: int) -> str:
    """SIGKILL for -9."""
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"

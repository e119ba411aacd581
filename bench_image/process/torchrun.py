"""Runs torchrun and writes which ranks failed first, with which exit code or signal.

torchrun itself always exits with 1 and names the rank only in its log.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench_image.contract.pod_io import OUTPUT_DIR_ENV
from bench_image.process.exit_codes import write_exit_codes
from bench_image.process.parent_death import die_with_parent


def main(arguments: list[str]) -> int:
    """Runs torchrun with its own command-line arguments. Returns 0, or 1 after a rank failed."""
    die_with_parent()
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    try:
        run(parse_args(arguments))  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        write_exit_codes(Path(os.environ[OUTPUT_DIR_ENV]), first_exit_codes(error.failures))
        return 1
    return 0


def first_exit_codes(failures: Mapping[int, Any]) -> dict[int, int]:
    """Rank -> exit code of those that failed first: torchrun adds the ranks that it killed itself, half a minute later
    where they waited on their GPU.
    """
    first = min(failure.timestamp for failure in failures.values())
    return {rank: failure.exitcode for rank, failure in failures.items() if failure.timestamp == first}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

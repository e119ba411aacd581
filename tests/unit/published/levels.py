"""The shipped levels, computed anew from the results that each names."""

from __future__ import annotations

from datetime import date

from bench_image.contract.parse import parse_result
from tests.unit.published.measured import ROOT
from trainbench.judging.levels import KnownLevel, made_levels

AA = "docs/results/aa-h200-2026-11-22"
FILES = (
    (f"{AA}/nights/night-independent-*", f"{AA}/presets/tuned-*", f"{AA}/redesign/tuned-*",
     f"{AA}/redesign-nights/night-independent-*"),
    (f"{AA}/ddp/night-ddp-*", f"{AA}/redesign-nights/night-ddp-*"),
)  # fmt: skip
PROGRAM, AS_OF = "0.1.0", date(2026, 11, 22)


def levels() -> tuple[KnownLevel, ...]:
    """One for each of FILES: the two works of the nightly check."""
    made: list[KnownLevel] = []
    for patterns in FILES:
        paths = [path for pattern in patterns for path in sorted(ROOT.glob(f"{pattern}/result.json"))]
        made += made_levels([parse_result(path.read_bytes()) for path in paths], PROGRAM, AS_OF, patterns)
    return tuple(made)

"""The shipped levels, computed anew from the results that each names."""

from __future__ import annotations

from datetime import date

from bench_image.contract.parse import parse_result
from committed import PACKED, committed
from trainbench.judging.levels import KnownLevel, made_levels

AA = "aa-h200-2026-11-22"
FILES = (
    ("nights/night-independent-*", "presets/tuned-*", "redesign/tuned-*", "redesign-nights/night-independent-*"),
    ("ddp/night-ddp-*", "redesign-nights/night-ddp-*"),
)
PROGRAM, AS_OF = "0.1.0", date(2026, 11, 22)


def levels() -> tuple[KnownLevel, ...]:
    """One for each of FILES: the two works of the nightly check."""
    made: list[KnownLevel] = []
    for patterns in FILES:
        texts = [text for pattern in patterns for text in committed(f"{AA}/{pattern}/result.json").values()]
        named = tuple(f"docs/results/{AA}/{PACKED}: {pattern}" for pattern in patterns)
        made += made_levels([parse_result(text.encode()) for text in texts], PROGRAM, AS_OF, named)
    return tuple(made)

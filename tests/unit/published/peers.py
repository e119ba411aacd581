"""Figures of the comparison with other programs: `studies/compare_peers.py`."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from tests.unit.published.measured import document, row

PEERS = "peers-h200-2026-11-23"
SKIPPED = 2  # steps at the beginning of a turn, as in the study


def program(job: str, name: str) -> Any:
    return document(f"{PEERS}/{job}.json")["programs"][name]


def counted(job: str, name: str) -> list[Any]:
    """The turns that were timed without a profiler."""
    return [turn for turn in program(job, name)["turns"] if "profile" not in turn]


def rates(job: str, name: str) -> list[float]:
    """Tokens/s of each turn, by its median step."""
    work = document(f"{PEERS}/{job}.json")["job"]
    tokens = work["micro_batch_size"] * work["seq_length"]
    return [tokens / statistics.median(turn["step_s"][SKIPPED:]) for turn in counted(job, name)]


def ahead(job: str, name: str) -> float:
    """How many times as fast `tuned` is."""
    return statistics.fmean(rates(job, "tuned")) / statistics.fmean(rates(job, name))


def peak_gb(job: str, name: str) -> float:
    of = program(job, name)
    return max(turn["peak_allocated_gb"] for turn in of["first_turns"] + of["turns"])


def losses(job: str, name: str) -> list[float]:
    """Of the first process, from the first step on."""
    of = program(job, name)
    return [*of["first_turns"][0]["losses"], *counted(job, name)[0]["losses"]]


def farthest_loss_pct(job: str, name: str) -> float:
    """The largest difference of a step's loss from that of `tuned`."""
    pairs = zip(losses(job, "tuned"), losses(job, name), strict=True)
    return max(100 * abs(theirs / ours - 1) for ours, theirs in pairs)

"""Figures of the notes beside the result files (docs/results/*/README.md)."""

from __future__ import annotations

from collections.abc import Iterator

from committed import committed
from tests.unit.published.measured import document


def hostile_inputs(folder: str) -> Iterator[str]:
    studies = [document(path) for path in committed(f"{folder}/*.json")]
    yield f"{sum(study['inputs'] for study in studies):,} damaged documents"
    yield f"{sum(study['cpu_s'] for study in studies):,} CPU seconds"

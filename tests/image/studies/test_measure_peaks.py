"""The sweep of studies/measure_peaks.py needs a GPU; that its configurations are valid and distinct does not."""

from __future__ import annotations

from bench_image.contract.fingerprint import fingerprint
from bench_image.contract.memory_estimate import memory_need_bytes
from measure_peaks import configurations


def test_the_configurations_are_valid_and_distinct() -> None:
    specs = configurations()

    assert len({fingerprint(spec.work, spec.placement) for spec in specs}) == len(specs) >= 20
    assert all(memory_need_bytes(spec).total > 0 for spec in specs)

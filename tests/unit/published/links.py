"""Figures of the links of two and four H200s: the sweep and the training beside it, with NVLink and without."""

from __future__ import annotations

from collections.abc import Iterator

from tests.unit.published.measured import GANGS, performance, row, run

RUNS = {
    "2, with NVLink": "sweep-2", "2, without": "inner-link-off-2",
    "4, with NVLink": "sweep-4", "4, without": "inner-link-off-4",
}  # fmt: skip
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
LEAST_BYTES, MOST_BYTES = 2**13, 2**30


def interconnect() -> Iterator[str]:
    for label, folder in RUNS.items():
        links = run(f"{GANGS}/{folder}").links
        assert links is not None
        figures = {(each.collective, each.num_bytes): each for each in links.figures}
        rates = [f"{figures[name, MOST_BYTES].bus_gb_per_s:,.1f}" for name in COLLECTIVES]
        latency_us = 1e6 * figures["all_reduce", LEAST_BYTES].latency_s
        rate = performance(f"{GANGS}/{folder}").samples_per_second
        yield row(label, *rates, f"{latency_us:.0f} us", f"{rate:.1f} samples/s")

"""The tables of a search for bad links: what each group reached, and the curve over the sizes of messages."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from functools import partial

from bench_image.contract.links import Collective
from bench_image.contract.result import RunResult
from trainbench.core.formats import NA, figure, listing, share
from trainbench.core.grouping import grouped
from trainbench.core.tables import Table, Tone, integer, make_table, number, text
from trainbench.judging.gangs import LATENCY_PCT
from trainbench.results.campaign import Campaign

NCCL_TESTS = "Bus bandwidth as nccl-tests define it, in GB/s (1e9 bytes/s); of a group at its best size."
SIZES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def tables(campaign: Campaign) -> Iterator[Table]:
    """Empty for campaigns without sweeps of links."""
    runs = [run for run in campaign.results if run.spec.link_sweep]
    if not runs:
        return

    def peak(collective: Collective, run: RunResult) -> float | None:
        return run.links.peak_gb_per_s(collective) if run.links else None

    def latency_us(run: RunResult) -> float | None:
        latency_s = run.links.latency_s(Collective.ALL_REDUCE) if run.links else None
        return latency_s * 1e6 if latency_s else None

    yield make_table(
        sorted(runs, key=lambda run: peak(Collective.ALL_REDUCE, run) or 0.0),
        (
            integer("round", lambda run: run.spec.identity.round),
            text("nodes", lambda run: listing(run.spec.identity.nodes)),
            text("inner link", lambda run: "on" if run.spec.link_sweep and run.spec.link_sweep.inner_link else "off"),
            *(number(f"{_title(each)} GB/s", partial(peak, each)) for each in Collective),
            number("latency us", latency_us),
            text("run ended", lambda run: run.status.value if run.links or run.error else NA),
        ),
        tone=lambda run: Tone.BAD if run.error else Tone.PLAIN,
        run_id=lambda run: run.spec.identity.run_id,
        title="Groups, the slowest first",
        notes=(NCCL_TESTS, "Latency: of an all-reduce of the smallest size.", *_limits(campaign.params)),
    )
    measured = [run for run in runs if run.links]
    by_mode = grouped((run.spec.link_sweep.inner_link, run) for run in measured if run.spec.link_sweep)
    for inner_link, of_mode in by_mode.items():
        yield _by_size(of_mode, "all links" if inner_link else "the inner link off")


def _limits(params: Mapping[str, object]) -> Iterator[str]:
    if isinstance(limit_pct := params.get("link_slower_pct"), int | float):
        yield (
            f"Slow is more than {share(limit_pct, 0)} below the other groups of the round (link_slower_pct), in "
            f"latency more than {share(max(limit_pct, LATENCY_PCT), 0)}."
        )


def _by_size(runs: list[RunResult], what: str) -> Table:
    """The curve: the median of all groups at each size."""
    figures = [each for run in runs if run.links for each in run.links.figures]
    # Groups of other numbers of nodes round a size to another multiple: the nearest power of two is the row.
    by_size = grouped((1 << (each.num_bytes - 1).bit_length(), each) for each in figures)

    def median(collective: Collective, size: int) -> float | None:
        rates = [each.bus_gb_per_s for each in by_size[size] if each.collective is collective]
        return statistics.median(rates) if rates else None

    def slowest(size: int) -> float | None:
        rates = [each.bus_gb_per_s for each in by_size[size] if each.collective is Collective.ALL_REDUCE]
        return min(filter(None, rates), default=None)

    return make_table(
        sorted(by_size),
        (
            text("size", _size, is_number=True),
            *(number(f"{_title(each)} GB/s", partial(median, each), has_bar=True) for each in Collective),
            *([number("all-reduce of the slowest GB/s", slowest, has_bar=True)] * (len(runs) > 1)),
        ),
        title=f"By size of the message, {what}, median of all groups",
        notes=("Bus bandwidth as nccl-tests define it, in GB/s (1e9 bytes/s).",),
    )


def _title(collective: Collective) -> str:
    return collective.replace("_", "-")


def _size(num_bytes: int) -> str:
    unit, name = next((unit, name) for unit, name in SIZES if num_bytes >= unit)
    return f"{figure(num_bytes / unit, 3)} {name}"

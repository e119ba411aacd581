"""Bus bandwidth against values worked by hand, the sizes of a sweep, and results that lack it."""

from __future__ import annotations

import pytest

from bench_image.contract.links import Collective, LinkSweep, bus_gb_per_s
from tests.builders.specs import make_spec


@pytest.mark.parametrize(
    ("collective", "bus"),
    [
        (Collective.ALL_REDUCE, 150.0),  # 1 GB in 10 ms are 100 GB/s; x 2 x 3/4 of 4 ranks
        (Collective.ALL_GATHER, 75.0),  # x 3/4
        (Collective.REDUCE_SCATTER, 75.0),
        (Collective.ALL_TO_ALL, 75.0),
    ],
)
def test_bus_bandwidth_counts_what_crosses_a_link(collective: Collective, bus: float) -> None:
    assert bus_gb_per_s(collective, 10**9, 0.01, ranks=4) == pytest.approx(bus)


def test_sizes_double_from_8_kib_to_the_largest_that_fits() -> None:
    assert LinkSweep(top_bytes=40_000).sizes == (8192, 16384, 32768)
    assert (len(LinkSweep().sizes), LinkSweep().sizes[-1]) == (18, 2**30)


def test_a_sweep_is_other_work_and_needs_ranks_that_exchange() -> None:
    plain = make_spec(recipe="full", strategy="ddp", gpus_per_node=2)
    swept, network = (plain.model_copy(update={"link_sweep": LinkSweep(inner_link=inner)}) for inner in (True, False))

    assert len({plain.fingerprint, swept.fingerprint, network.fingerprint}) == 3
    with pytest.raises(ValueError, match="'independent': its ranks exchange nothing"):
        make_spec(strategy="independent", gpus_per_node=2, link_sweep=LinkSweep())

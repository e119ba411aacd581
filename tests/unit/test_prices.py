from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from bench_control.prices import PriceError, load_prices, price_for, stale

TABLE = load_prices()


@pytest.mark.parametrize(
    ("gpu_name", "instance"),
    [
        ("NVIDIA A10", "VM.GPU.A10.1"),
        ("NVIDIA H200", "BM.GPU.H200.8"),
        ("NVIDIA H100 80GB HBM3", "BM.GPU.H100.8"),
        ("NVIDIA A100-SXM4-40GB", "BM.GPU4.8"),
        ("NVIDIA A100-SXM4-80GB", "BM.GPU.A100-v2.8"),
        ("NVIDIA A100 80GB PCIe", "BM.GPU.A100-v2.8"),
        ("NVIDIA GeForce RTX 4090", "1x RTX 4090"),
    ],
)
def test_names_as_nvml_prints_them(gpu_name: str, instance: str) -> None:
    price = price_for(gpu_name, TABLE)
    assert price
    assert price.instance == instance


@pytest.mark.parametrize(
    "gpu_name", ["NVIDIA A10G", "NVIDIA GH200 480GB", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA RTX 4080", "", None]
)
def test_nothing_fits_by_half_a_word(gpu_name: str | None) -> None:
    assert price_for(gpu_name, TABLE) is None


def test_an_instance_price_is_shared_by_its_gpus() -> None:
    """$32.77 is the price of eight GPUs: $4.09625 each."""
    (p4d,) = (price for price in TABLE if price.instance == "p4d.24xlarge")
    assert p4d.usd_per_gpu_hour == pytest.approx(4.09625)


def test_both_prices_of_the_a10_are_there_with_their_sources() -> None:
    by_price = {p.on_demand_usd_per_hour: p for p in TABLE if p.gpu == "A10" and p.gpus_per_instance == 1}
    assert by_price[0.60].source.startswith("a published benchmarking guide")
    assert by_price[0.60].spot_usd_per_gpu_hour == 0.18
    assert by_price[2.00].source.startswith("list price")
    assert by_price[2.00].spot_usd_per_gpu_hour is None


def test_the_clusters_own_price_wins_and_needs_no_gpu() -> None:
    for gpu_name in ("NVIDIA H200", None):
        price = price_for(gpu_name, TABLE, 0.05)
        assert price
        assert (price.usd_per_gpu_hour, price.source) == (0.05, "given for this run")


def test_a_price_older_than_90_days_warns() -> None:
    (guide,) = (price for price in TABLE if price.provider == "OCI (benchmarking guide)")
    assert stale([guide], date(2026, 4, 4)) == ()
    (finding,) = stale([guide], date(2026, 4, 5))
    assert (finding.category, finding.measured) == ("stale_price", "91 days old")


def test_a_given_price_never_goes_stale() -> None:
    given = price_for(None, (), 1.0)
    assert given
    assert stale([given], date(2099, 1, 1)) == ()


ROW = """[[price]]
provider = "P"
instance = "I"
gpu = "G"
gpus_per_instance = {gpus}
region = "R"
on_demand_usd_per_hour = {usd}
as_of = 2026-01-01
source = "S"
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ROW.format(gpus=0, usd=1.0), "row 1: gpus_per_instance"),
        (ROW.format(gpus=1, usd=1.0) + ROW.format(gpus=1, usd=0), "row 2: on_demand_usd_per_hour"),
        (ROW.format(gpus=1, usd=1.0).replace("as_of = 2026-01-01\n", ""), "row 1: as_of"),
        ("not toml", "price table"),
    ],
)
def test_a_broken_table_names_row_and_field(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text)
    with pytest.raises(PriceError, match=message):
        load_prices(path)


def test_a_table_that_is_not_there() -> None:
    with pytest.raises(PriceError, match="price table"):
        load_prices(Path("nowhere.toml"))

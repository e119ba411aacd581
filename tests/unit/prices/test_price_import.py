from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pytest

from trainbench.prices.price_import import ImportedPrices, as_toml, import_prices, import_summary
from trainbench.prices.price_tables import Price, PriceError, read_prices

DAY = date(2026, 11, 20)
SKYPILOT = """InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,\
Region,AvailabilityZone
m.large,,,2,8,,0.10,0.05,east,east-a
gpu.8x,A100-80GB,8,96,1152,"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 81920}}]}",32.0,10.0,east,east-a
gpu.8x,A100-80GB,8,96,1152,"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 81920}}]}",32.0,12.0,east,east-b
gpu.8x,A100-80GB,8,96,1152,"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 81920}}]}",32.0,20.0,east,east-c
gpu.8x,A100-80GB,8,96,1152,"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 81920}}]}",35.0,,west,west-a
small.1x,A10,1.0,30,240,"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 24576}}]}",2.0,0.00,any,
,H100,8,,,"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 81920}}]}",78.0,17.0,east,east-a
bad.1,L4,1,4,16,,-1.0,,east,east-a
bad.2,L4,1,4,16,,0,,east,east-a
bad.3,L4,1,4,16,,NaN,,east,east-a
bad.4,L4,1,4,16,,,,east,east-a
bad.5,L4,1,4,16,,inf,,east,east-a
bad.6,L4,1,4,16,,one,,east,east-a
bad.7,L4,0.125,4,16,,0.2,,east,east-a
bad.8,L4,1,4,16,,0.8,-0.1,east,east-a
bad.9,L4,1,4,16,,0.8,,east,east-a
bad.9,L4,1,4,16,,0.9,,east,east-b
tpu.8,tpu-v5p-8,1,4,16,,9.0,,east,east-a
"""


def _import(path: Path, text: str, provider: str = "P") -> ImportedPrices:
    path.write_text(text)
    return import_prices(path, provider, DAY, "the catalogue@1234567")


class TestSkypilotCatalogue:
    @pytest.fixture
    def imported(self, tmp_path: Path) -> ImportedPrices:
        return _import(tmp_path / "vms.csv", SKYPILOT)

    def test_zones_of_a_region_are_one_row_with_the_median_of_their_spot_prices(self, imported: ImportedPrices) -> None:
        east = next(price for price in imported.prices if (price.instance, price.region) == ("gpu.8x", "east"))
        assert (east.gpu, east.gpus_per_instance, east.usd_per_gpu_hour) == ("A100 80GB", 8, 4.0)
        assert east.spot_usd_per_hour == 12.0
        assert (east.provider, east.as_of, east.source) == ("P", DAY, "the catalogue@1234567")

    def test_what_is_left_out_is_counted_with_its_reason_and_line(self, imported: ImportedPrices) -> None:
        assert {skip.reason: (skip.count, skip.rows) for skip in imported.skipped} == {
            "several prices for one instance in one region": (2, (17, 18)),
            "a machine without a GPU": (1, (2,)),
            "the price of a GPU without its machine: an instance costs more": (1, (8,)),
            "Price: Input should be greater than 0": (2, (9, 10)),
            "no price": (2, (11, 12)),
            "Price: Input should be a finite number": (1, (13,)),
            "Price: Input should be a valid number, unable to parse string as a number": (1, (14,)),
            "AcceleratorCount: Input should be a valid integer, unable to parse string as an integer": (1, (15,)),
            "SpotPrice: Input should be greater than 0": (1, (16,)),
            "not an NVIDIA GPU": (1, (19,)),
        }
        assert import_summary(imported) == "3 prices of 2 GPUs from 18 rows; 13 left out"


GPUHUNT = """instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size
a2.1g,us,3.67,12,85,1,A100,40.0,False,
a2.1g,us,2.20,12,85,1,A100,40.0,True,
only.spot,us,1.00,12,85,1,A100,80.0,True,
cpu,us,0.10,2,8,0,,,False,
"""


class TestGpuhuntCatalogue:
    def test_on_demand_and_spot_are_rows_there_and_one_here(self, tmp_path: Path) -> None:
        imported = _import(tmp_path / "gcp.csv", GPUHUNT)
        (price,) = imported.prices
        assert (price.gpu, price.on_demand_usd_per_hour, price.spot_usd_per_hour) == ("A100 40GB", 3.67, 2.20)
        assert {skip.reason: skip.count for skip in imported.skipped} == {
            "only a spot price": 1,
            "a machine without a GPU": 1,
        }

    def test_a_zone_with_a_spot_price_is_enough_to_say_that_there_is_only_that(self, tmp_path: Path) -> None:
        rows = "x,us,,12,85,1,A10,24.0,True,\nx,us,1.0,12,85,1,A10,24.0,True,\n"
        (skip,) = _import(tmp_path / "gcp.csv", GPUHUNT.splitlines()[0] + "\n" + rows).skipped
        assert (skip.reason, skip.rows) == ("only a spot price", (2, 3))

    def test_a_row_without_a_region_says_so_and_without_a_value_as_pandas_writes_it(self, tmp_path: Path) -> None:
        text = GPUHUNT.splitlines()[0] + "\nx,nan,1.0,12,85,1,A10,24.0,False,\n"
        assert [price.region for price in _import(tmp_path / "gcp.csv", text).prices] == ["not stated"]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    nasty = Price(
        provider='P "quoted" \\ back',
        instance="<b>#[[price]]</b>",
        gpu="A10",
        gpus_per_instance=1,
        region="São Paulo",
        on_demand_usd_per_hour=0.00001,
        as_of=DAY,
        source="x = 1",
    )
    prices = (nasty, *_import(tmp_path / "vms.csv", SKYPILOT).prices)
    table = tmp_path / "prices.toml"
    table.write_text(as_toml(prices), encoding="utf-8")
    assert read_prices(table) == prices


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no row"),
        ("InstanceType,Price\n", "holds no row"),
        ("a,b\n1,2\n", "has the columns a, b: at least these are needed: AcceleratorCount, AcceleratorName"),
        ('a,"b\n1,2\n', "is no CSV"),
    ],
)
def test_files_that_are_no_catalogue(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PriceError, match=message):
        _import(tmp_path / "file", text)


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(PriceError, match="nowhere"):
        import_prices(tmp_path / "nowhere", "P", DAY, "S")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PriceError, match="binary"):
        import_prices(binary, "P", DAY, "S")


def test_a_row_cut_short_or_too_long_harms_nobody(tmp_path: Path) -> None:
    text = SKYPILOT.splitlines()[0] + "\nshort,A10\nlong,A10,1,2,3,,2.0,,east,east-a,more,and,more\n"
    imported = _import(tmp_path / "vms.csv", text)
    assert [price.instance for price in imported.prices] == ["long"]
    assert imported.skipped[0].reason == "no AcceleratorCount"


def test_names_stay_readable_in_the_table(tmp_path: Path) -> None:
    result = _import(tmp_path / "vms.csv", SKYPILOT, provider="M\u00fcnchen")
    assert 'provider = "M\u00fcnchen"' in as_toml(result.prices)


def test_a_fifo_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "vms.csv")
    with pytest.raises(PriceError, match=r"vms\.csv cannot be read: it is no regular file"):
        import_prices(tmp_path / "vms.csv", "x", DAY, "S")


def test_a_memory_of_400_digits_is_no_memory(tmp_path: Path) -> None:
    header = "InstanceType,AcceleratorName,AcceleratorCount,Price,SpotPrice,Region,GpuInfo"
    row = f"a,L4,1,2,,east,\"{{'SizeInMiB': {'9' * 400}}}\""
    (price,) = _import(tmp_path / "vms.csv", f"{header}\n{row}\n").prices
    assert price.gpu == "L4"


def test_the_memory_says_which_of_two_gpus_it_is(tmp_path: Path) -> None:
    """81,920 MiB are 80 GB, 40 as it is: both are A100s by name."""
    header = SKYPILOT.splitlines()[0]
    info = "\"{'Gpus': [{'MemoryInfo': {'SizeInMiB': %d}}]}\""
    rows = [f"a,A100,1,4,16,{info % 81_920},4.0,,east,east-a", f"b,A100,1,4,16,{info % 40},2.0,,east,east-a"]
    result = _import(tmp_path / "vms.csv", "\n".join([header, *rows]))
    assert {price.instance: price.gpu for price in result.prices} == {"a": "A100 80GB", "b": "A100 40GB"}

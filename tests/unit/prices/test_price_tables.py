from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from trainbench.core.number_checks import QuantityError
from trainbench.prices.price_tables import (
    PRICES_FILE,
    Price,
    PriceError,
    exact_prices,
    fitting_prices,
    given_price,
    load_prices,
    price_for,
    read_prices,
    stale_price_findings,
    usable_prices,
)

TABLE = read_prices(PRICES_FILE)


@pytest.mark.parametrize(
    ("gpu_name", "instance"),
    [
        ("NVIDIA A10", "VM.GPU.A10.1"),
        ("NVIDIA H200", "BM.GPU.H200.8"),
        ("NVIDIA H100 80GB HBM3", "BM.GPU.H100.8"),
        ("NVIDIA A100-SXM4-40GB", "BM.GPU4.8"),
        ("NVIDIA A100-SXM4-80GB", "BM.GPU.A100-v2.8"),
        ("NVIDIA A100-PCIE-40GB", "BM.GPU4.8"),
        ("NVIDIA A100 80GB PCIe", "Standard_NC24ads_A100_v4"),
        ("NVIDIA H100 PCIe", "1x H100 PCIe"),
        ("NVIDIA H100 NVL", "Standard_NC40ads_H100_v5"),
        ("NVIDIA H200 NVL", "1x H200 NVL, lowest listed"),
        ("NVIDIA B200", "BM.GPU.B200.8"),
        ("NVIDIA A10G", "g5.xlarge"),
        ("NVIDIA L4", "g6.xlarge"),
        ("NVIDIA L40S", "BM.GPU.L40S.4"),
        ("NVIDIA RTX A6000", "4x A6000"),
        ("NVIDIA GeForce RTX 3090", "1x RTX 3090, lowest listed"),
        ("NVIDIA GeForce RTX 4080", "1x RTX 4080, lowest listed"),
        ("NVIDIA GeForce RTX 4090", "1x RTX 4090, lowest listed"),
    ],
)
def test_names_as_nvml_prints_them(gpu_name: str, instance: str) -> None:
    price = price_for(gpu_name, TABLE)
    assert price
    assert price.instance == instance


@pytest.mark.parametrize(
    "gpu_name",
    [
        "NVIDIA GH200 480GB",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA A10-24Q",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 4080 SUPER",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA RTX 6000 Ada Generation",
        "NVIDIA A40",
        "",
        None,
    ],
)
def test_a_name_fits_neither_by_half_a_word_nor_with_an_extra_word(gpu_name: str | None) -> None:
    assert price_for(gpu_name, TABLE) is None


def test_an_instance_price_is_shared_by_its_gpus() -> None:
    """$32.77 is the price of eight GPUs: $4.09625 each; today's $21.957642 are $2.74470525 each."""
    by_price = {p.on_demand_usd_per_hour: p for p in TABLE if p.instance == "p4d.24xlarge"}
    assert by_price[32.77].usd_per_gpu_hour == pytest.approx(4.09625)
    assert by_price[21.957642].usd_per_gpu_hour == pytest.approx(2.74470525)


def test_what_the_page_of_2024_calls_an_a100_80gb_is_read_as_what_it_is() -> None:
    """Three 8-GPU instances with 40 GB, and one 40 GB GPU."""
    rows = [price for price in TABLE if "page of 2024" in price.source and price.gpu.startswith("A100")]
    assert {(p.provider, p.gpu, p.gpus_per_instance, p.on_demand_usd_per_hour) for p in rows} == {
        ("AWS", "A100 40GB", 8, 32.77),
        ("GCP", "A100 40GB", 8, 29.39),
        ("Azure", "A100 40GB", 8, 27.20),
        ("Lambda", "A100 40GB", 1, 1.29),
    }


def test_our_table_prices_every_gpu_and_provider_that_it_must() -> None:
    gpus = {
        "A10", "A10G", "L4", "L40S", "A100 40GB", "A100 80GB", "H100", "H200", "B200", "RTX 3090", "RTX 4080",
        "RTX 4090", "RTX A6000",
    }  # fmt: skip
    assert gpus <= {price.gpu for price in TABLE}
    assert {"AWS", "GCP", "Azure", "Lambda", "Vast.ai", "RunPod", "OCI"} <= {price.provider for price in TABLE}
    assert all(price.as_of and price.currency == "USD" and not price.own for price in TABLE)


def test_the_clusters_own_price_wins_and_needs_no_gpu() -> None:
    for gpu_name in ("NVIDIA H200", None):
        price = price_for(gpu_name, TABLE, 0.05)
        assert price
        assert (price.usd_per_gpu_hour, price.source) == (0.05, "given for this run")


@pytest.mark.parametrize(
    ("days", "measured"),
    [(0, None), (90, None), (91, "91 days old"), (-1, "1 days ahead"), (-31, "31 days ahead")],
)
def test_a_price_older_than_90_days_or_of_a_day_to_come_warns(days: int, measured: str | None) -> None:
    today = date(2026, 11, 21)
    price = TABLE[0].model_copy(update={"as_of": today - timedelta(days=days)})
    findings = stale_price_findings([price], today)
    assert price.is_stale(today) is (measured is not None)
    assert [(finding.category, finding.measured) for finding in findings] == [
        ("stale_price", measured) for _ in findings
    ]
    assert len(findings) == price.is_stale(today)


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
        ("price = 3", "'price' is no list of rows"),
        (ROW.format(gpus=1, usd=-1.0), "row 1: on_demand_usd_per_hour: .*greater than 0"),
        (ROW.format(gpus=1, usd="nan"), "row 1: on_demand_usd_per_hour"),
        (ROW.format(gpus=1, usd="inf"), "row 1: on_demand_usd_per_hour"),
        (ROW.format(gpus=1, usd=1.0) + 'currency = "EUR"\n', "row 1: currency: prices are in USD: convert it"),
        (ROW.format(gpus=1, usd=1.0) + "spot = 1.0\n", "row 1: spot: Extra inputs"),
        (ROW.format(gpus=1, usd=1.0) + ROW.format(gpus=1, usd=2.0), "rows 1 and 2: two prices of 2026-01-01 for P I"),
    ],
)
def test_a_broken_table_names_row_and_field(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text)
    with pytest.raises(PriceError, match=message):
        read_prices(path)


def _write(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(rows))
    return path


def test_of_two_days_the_newer_price_counts_and_the_same_row_twice_is_one(tmp_path: Path) -> None:
    old, new = ROW.format(gpus=1, usd=1.0), ROW.format(gpus=1, usd=2.0).replace("2026-01-01", "2026-02-01")
    for rows in [(old, new), (new, old), (old, old, new, new)]:
        (price,) = read_prices(_write(tmp_path / "prices.toml", *rows))
        assert price.on_demand_usd_per_hour == 2.0


class TestOwnTables:
    def test_an_own_row_wins_though_ours_has_a_longer_name(self, tmp_path: Path) -> None:
        table = _write(tmp_path / "own.toml", ROW.format(gpus=8, usd=16.0).replace('gpu = "G"', 'gpu = "A100"'))
        prices = load_prices([table])
        price = price_for("NVIDIA A100-SXM4-80GB", prices)
        assert price
        assert (price.provider, price.usd_per_gpu_hour, price.own) == ("P", 2.0, True)
        assert len(prices) == len(TABLE) + 1
        assert len(fitting_prices("NVIDIA A100-SXM4-80GB", prices)) > 1

    def test_one_that_cannot_be_read_is_a_finding_and_not_the_end(self, tmp_path: Path) -> None:
        good = _write(tmp_path / "good.toml", ROW.format(gpus=1, usd=1.0))
        own_tables = [tmp_path / "nowhere.toml", good]
        with pytest.raises(PriceError, match=r"nowhere\.toml"):
            load_prices(own_tables)
        prices, (finding,) = usable_prices(own_tables)
        assert (prices[0].provider, prices[0].own, prices[-1].own) == ("P", True, False)
        assert usable_prices([good])[1] == ()
        assert (finding.category, finding.level) == ("price_table", "warning")
        assert "the cluster's own prices are not used: price table" in finding.summary


def test_of_rows_that_fit_those_that_name_the_gpu_best_are_exact() -> None:
    """An H100 PCIe is not offered as an SXM one; a row of one's own counts in whatever words."""
    sxm, pcie = (TABLE[0].model_copy(update={"gpu": gpu}) for gpu in ("H100", "H100 PCIe"))
    own = sxm.model_copy(update={"own": True})
    assert exact_prices("NVIDIA H100 PCIe", (sxm, pcie, own)) == (own, pcie)
    assert exact_prices("NVIDIA H100 80GB HBM3", (sxm, pcie)) == (sxm,)


@pytest.mark.parametrize("field", ["provider", "instance", "gpu", "region", "source"])
def test_a_price_without_a_name_is_none(field: str) -> None:
    words = {"provider": "P", "instance": "x", "gpu": "A10", "region": "here", "source": "a page"}
    values = {"gpus_per_instance": 1, "on_demand_usd_per_hour": 1.0, "as_of": date(2026, 11, 1)}
    assert Price.model_validate(words | values).region == "here"
    with pytest.raises(ValidationError):
        Price.model_validate(words | values | {field: ""})


@pytest.mark.parametrize(
    ("field", "value"),
    [("gpus_per_instance", 10**20), ("on_demand_usd_per_hour", 1e308), ("spot_usd_per_hour", 1e308)],
)
def test_a_price_beyond_any_machine_is_refused_by_its_field(field: str, value: float) -> None:
    with pytest.raises(ValidationError, match=field):
        Price.model_validate(TABLE[0].model_dump() | {field: value})
    with pytest.raises(QuantityError, match=r"USD per GPU-hour is 1e\+308: give at most 1e\+06"):
        given_price(1e308, "NVIDIA H200")

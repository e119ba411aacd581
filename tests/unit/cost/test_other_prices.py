"""Other prices: by hand, from the table, spot, owned; only for GPUs that were measured."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from tests.builders.paid_runs import paid_run
from trainbench.cost.monthly_cost import OtherPrice, other_prices, run_table, work_costs
from trainbench.params.cost_params import SpendParams, months_until, parse_spend_params, spend_form, start_of
from trainbench.params.refusals import ParamsError
from trainbench.prices.price_tables import Price


def price(provider: str, on_demand: float, spot: float | None = None, gpu: str = "A10", gpus: int = 1) -> Price:
    return Price(
        provider=provider, instance="x", gpu=gpu, gpus_per_instance=gpus, region="here",
        on_demand_usd_per_hour=on_demand, spot_usd_per_hour=spot, as_of=date(2026, 11, 1), source="a page",
    )  # fmt: skip


TABLE = (price("Dear", 8.0, 2.4, gpus=2), price("Cheap", 1.2), price("Other", 1.0, gpu="H100"))
RUNS = run_table([paid_run(), paid_run()])


def tried(**params: Any) -> tuple[OtherPrice, ...]:
    return other_prices(
        work_costs(RUNS, "2026-11", "2026-10"), RUNS, TABLE, parse_spend_params(params), date(2026, 11, 21)
    )


def test_each_price_of_the_same_gpu_cheapest_first() -> None:
    """0.2 GPU-hours at $0.90, $1.20, and for 2 GPUs $2.40 spot and $8 on demand; $0.60 was paid. The H100's says
    nothing of an A10.
    """
    actual = [(p.label, p.usd_per_gpu_hour, p.usd, p.against_paid_pct) for p in tried(usd_per_gpu_hour=0.90)]

    assert actual == [
        ("your own price", 0.90, pytest.approx(0.18), pytest.approx(50.0)),
        ("Cheap x, here", 1.20, pytest.approx(0.24), pytest.approx(100.0)),
        ("Dear x, here", 1.20, pytest.approx(0.24), pytest.approx(100.0)),
        ("Dear x, here", 4.00, pytest.approx(0.80), pytest.approx(566.667, abs=1e-3)),
    ]


def test_owned_is_one_price_from_the_purchase() -> None:
    """$17,520 / (24 months x 730 h x 0.5) = $2.00, and $0.25 of running costs."""
    params = {"purchase_usd_per_gpu": 17_520, "life_months": 24, "utilisation": 0.5, "opex_usd_per_gpu_hour": 0.25}
    assert [p.usd_per_gpu_hour for p in tried(**params) if p.label == "owned"] == [pytest.approx(2.25)]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"month": "2026-13"}, "month is '2026-13': write it as 2026-11"),
        ({"month": "0000-01"}, "write it as 2026-11"),
        ({"usd_per_gpu_hour": 0}, "usd_per_gpu_hour is 0"),
        ({"usd_per_gpu_hour": -1}, "give more than 0"),
        ({"usd_per_gpu_hour": float("nan")}, "finite"),
        ({"usd_per_gpu_hour": "0,60"}, "usd_per_gpu_hour is '0,60'"),
        ({"pue": 0.9}, "pue is 0.9"),
        ({"price": 1}, "price is not a parameter: choose from month, "),
    ],
)
def test_bad_values_are_refused_with_a_sentence(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ParamsError) as error:
        parse_spend_params(params)
    assert message in str(error.value)


def test_an_empty_field_of_the_form_is_nothing() -> None:
    assert parse_spend_params({"month": "", "usd_per_gpu_hour": ""}) == SpendParams()


def test_the_form_has_every_field_and_valid_defaults() -> None:
    form = spend_form()
    assert list(form) == list(SpendParams.model_fields)
    assert parse_spend_params({name: field["default"] for name, field in form.items()}) == SpendParams()
    assert all(field["title"] and field["description_md"] for field in form.values())


def test_months_over_the_turn_of_a_year() -> None:
    assert months_until("2026-02", 4) == ("2025-11", "2025-12", "2026-01", "2026-02")
    assert f"{start_of('2026-12', after=1):%Y-%m-%d %Z}" == "2027-01-01 UTC"

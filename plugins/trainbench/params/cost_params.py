"""The parameters of a cost report: its month, and other prices to try. One model for form and command line."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from bench_image.contract.frozen import setting
from trainbench.params.form_fields import FormParams, airflow_schema, form_fields
from trainbench.params.refusals import MONTH, refusal
from trainbench.prices.quote import Basis, Ownership, Pricing


class SpendParams(FormParams):
    """One field for each field of the trigger form, in the form's order."""

    month: str | None = setting(
        None, "Period", "Month", "As 2026-11, in UTC. Empty: this month; by schedule the month before.", pattern=MONTH
    )
    months: int = setting(6, "Period", "Months", "Number of months in the table of costs.", ge=2, le=60)
    usd_per_gpu_hour: float | None = setting(
        None,
        "What if",
        "A price of your own (USD per GPU-hour)",
        "Shown beside the prices of the table.",
        gt=0,
        le=10_000,
    )
    purchase_usd_per_gpu: float | None = setting(
        None,
        "Owned",
        "Purchase price per GPU (USD)",
        "A server's price / its GPUs. Empty: owned GPUs are left out.",
        gt=0,
        le=10_000_000,
    )
    life_months: float = setting(36, "Owned", "Life (months)", "Until it is sold or scrapped.", gt=0, le=600)
    residual_share: float = setting(0.0, "Owned", "Worth at the end", "As a share of the purchase price.", ge=0, lt=1)
    utilisation: float = setting(0.6, "Owned", "Use", "Share of its hours at work.", gt=0, le=1)
    opex_usd_per_gpu_hour: float = setting(
        0.0, "Owned", "Running costs (USD per GPU-hour)", "Power, room, staff, for each hour of work.", ge=0, le=10_000
    )
    usd_per_kwh: float | None = setting(
        None, "Energy", "Electricity (USD per kWh)", "Empty: energy in kWh only.", gt=0, le=100
    )
    pue: float = setting(1.0, "Energy", "PUE", "The building's energy over that of its machines.", ge=1, le=10)

    @property
    def pricings(self) -> tuple[Pricing, ...]:
        """The prices to try: the given one, every kind of the table, and the owned one where its price is given."""
        own = None
        if self.purchase_usd_per_gpu is not None:
            own = Ownership(
                purchase_usd=self.purchase_usd_per_gpu,
                life_years=self.life_months / 12,
                utilisation=self.utilisation,
                residual_share=self.residual_share,
                opex_usd_per_gpu_hour=self.opex_usd_per_gpu_hour,
            )
        given = Pricing(basis=Basis.GIVEN, usd_per_gpu_hour=self.usd_per_gpu_hour)
        every = Pricing(basis=Basis.ALL, ownership=own)
        return (given, every) if self.usd_per_gpu_hour else (every,)


def parse_spend_params(data: Mapping[str, Any]) -> SpendParams:
    """The parameters of a cost report. Raises ParamsError, which names the wrong value and the allowed ones."""
    try:
        return SpendParams.model_validate(dict(data))
    except ValidationError as error:
        raise refusal(error, form_fields(SpendParams)) from None


def spend_form() -> dict[str, dict[str, Any]]:
    """Field name -> keyword arguments of Airflow's `Param`."""
    values = SpendParams().model_dump(mode="json")
    return {
        name: {"default": values[name], **airflow_schema(field)} for name, field in form_fields(SpendParams).items()
    }


def months_until(month: str, number: int) -> tuple[str, ...]:
    """That month and those before it, oldest first."""
    year, index = int(month[:4]), int(month[5:]) - 1
    counted = [year * 12 + index - back for back in reversed(range(number))]
    return tuple(f"{months // 12:04d}-{months % 12 + 1:02d}" for months in counted)


def start_of(month: str, after: int = 0) -> datetime:
    """Start of the month, or of the month `after` months later."""
    months = int(month[:4]) * 12 + int(month[5:]) - 1 + after
    return datetime(months // 12, months % 12 + 1, 1, tzinfo=UTC)

"""Bounds of a result's figures, as types. A result with a figure outside of its bounds breaks the contract.

The bounds are far beyond any machine, so that no honest run is refused; within them no sum, logarithm, date or database
column overflows. pydantic's errors name the field, its value and the bound.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, Field

EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)  # the time of a node whose clock has lost its battery; a check reports it
LATEST = datetime(2100, 1, 1, tzinfo=UTC)
MAX_COUNT = 2**53  # beyond it a JSON number is not exact
MAX_RANKS = 65_536  # 1024 nodes of 64 GPUs
MAX_REASONS = 10_000  # for nulls; a gang of pods has some dozens


def _within_the_century(at: datetime) -> datetime:
    if not EARLIEST <= at < LATEST:
        raise ValueError(f"the date must lie between {EARLIEST.year} and {LATEST.year}: see the node's clock")
    return at


def _without_nul(text: str) -> str:
    """Replaces NUL, which PostgreSQL cannot store; an error message of native code may hold one."""
    return text.replace("\0", "\ufffd")


Moment = Annotated[AwareDatetime, AfterValidator(_within_the_century)]
Text = Annotated[str, Field(max_length=4000), AfterValidator(_without_nul)]

Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Bytes = Annotated[int, Field(ge=0, le=10**15)]  # 1 PB
Gigabytes = Annotated[float, Field(ge=0, le=1e6)]
Seconds = Annotated[float, Field(ge=0, le=1e7)]  # 115 days; a pod has one day
PositiveSeconds = Annotated[float, Field(gt=1e-9, le=1e7)]
SamplesPerSecond = Annotated[float, Field(ge=1e-6, le=1e9)]  # one sample in eleven days
TokensPerSecond = Annotated[float, Field(ge=1e-6, le=1e13)]
MegabytesPerSecond = Annotated[float, Field(ge=0, le=1e9)]
GigabytesPerSecond = Annotated[float, Field(ge=0, le=1e6)]
Tflops = Annotated[float, Field(ge=0, le=1e6)]
Flops = Annotated[float, Field(ge=0, le=1e18)]
Share = Annotated[float, Field(ge=0, le=101)]  # percent; coarse clocks can make it slightly more than 100
Percent = Annotated[float, Field(ge=0, le=1e6)]  # of something that it may exceed: a spread, another rate
Celsius = Annotated[float, Field(ge=-60, le=250)]
PeakShare = Annotated[float, Field(ge=0, le=200)]  # percent of a data sheet's peak; a clock may be above the sheet's
Watts = Annotated[float, Field(ge=0, le=1e4)]
Megahertz = Annotated[float, Field(ge=0, le=1e5)]
Joules = Annotated[float, Field(ge=0, le=1e11)]  # 1e4 W for 115 days
Loss = Annotated[float, Field(ge=-1e6, le=1e6)]  # of a token; one drawn from 1e6 words by chance has 14
Usd = Annotated[float, Field(ge=0, le=1e12)]


def finite(value: float | None) -> float | None:
    """`value`, or None for NaN and infinity, which a result cannot hold."""
    return value if value is not None and math.isfinite(value) else None

"""Electricity cost of a run: kWh x PUE x tariff. GPUs only: the host's power is not measured.

Rates in, USD out:
    energy_usd(joules, usd_per_kwh, pue=1.0) -> USD
    power_usd_per_hour(watts, usd_per_kwh, pue=1.0) -> USD per hour
    energy_usd_per_1000_samples(joules_per_sample, usd_per_kwh, pue=1.0) -> USD
    measured_joules(result) -> joules of the measured windows, all GPUs; None where one reports no energy
"""

from __future__ import annotations

import math

from bench_image.contract.result import RunResult
from trainbench.core.number_checks import at_least, not_negative, positive

JOULES_PER_KWH = 3.6e6


def energy_usd(joules: float, usd_per_kwh: float, pue: float = 1.0) -> float:
    """kWh x PUE x tariff. `pue`: the building's energy over the machines', 1 or more. Raises QuantityError."""
    kwh = not_negative(joules, "energy in joules") / JOULES_PER_KWH
    return kwh * at_least(pue, 1.0, "PUE") * positive(usd_per_kwh, "USD per kWh")


def power_usd_per_hour(watts: float, usd_per_kwh: float, pue: float = 1.0) -> float:
    """Cost per hour of a steady power draw: a part of the running cost of an owned GPU. Raises QuantityError."""
    return energy_usd(not_negative(watts, "power in watts") * 3600, usd_per_kwh, pue)


def energy_usd_per_1000_samples(joules_per_sample: float, usd_per_kwh: float, pue: float = 1.0) -> float:
    """Energy cost from `telemetry.energy_per_sample_j`, which holds all GPUs of the run. Raises QuantityError."""
    return energy_usd(joules_per_sample * 1000, usd_per_kwh, pue)


def measured_joules(result: RunResult) -> float | None:
    """All GPUs of the run, within the measured windows; None where one of them reports none. One pod's own file of
    a gang has its own GPUs only.
    """
    known = [gpu.energy_j for gpu in result.telemetry.gpus if gpu.energy_j is not None]
    return math.fsum(known) if len(known) == result.spec.placement.world_size else None

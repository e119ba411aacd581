"""What a spot GPU-hour really costs: hours that an interruption takes are paid for and bring nothing.

Rates in, USD out:
    useful_share(interruptions_per_hour, checkpoint_every_hours, restart_hours, num_instances=1) -> share
    usd_per_useful_gpu_hour(spot_usd_per_gpu_hour, useful) -> USD
"""

from __future__ import annotations

from bench_control.words.quantities import QuantityError, not_negative, positive, used_share


def useful_share(
    interruptions_per_hour: float, checkpoint_every_hours: float, restart_hours: float, num_instances: int = 1
) -> float:
    """The share of the paid hours that brings the training on: 1 - rate x instances x (checkpoint / 2 + restart).

    `interruptions_per_hour` is of one instance; one of them stops the whole gang. An interruption comes at any time
    between two checkpoints, so half an interval's work is lost and done again on average; `restart_hours` is paid
    time from the new instance's start to the first step that is new. Waiting for an instance costs time, not money.
    Raises QuantityError where nothing would be left.
    """
    lost = not_negative(checkpoint_every_hours, "checkpoint_every_hours") / 2
    lost += not_negative(restart_hours, "restart_hours")
    rate = not_negative(interruptions_per_hour, "interruptions_per_hour") * positive(num_instances, "num_instances")
    useful = 1 - rate * lost
    if useful <= 0:
        raise QuantityError(
            f"{rate:g} interruptions per hour that take {lost:g} h each leave nothing of the hour: save checkpoints "
            "more often, or do not use spot"
        )
    return useful


def usd_per_useful_gpu_hour(spot_usd_per_gpu_hour: float, useful: float) -> float:
    """Spot price / useful share: what an hour of work costs. Compare this, not the spot price, with on-demand."""
    return positive(spot_usd_per_gpu_hour, "spot USD per GPU-hour") / used_share(useful, "useful share")

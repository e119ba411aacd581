"""Effective price of a spot GPU-hour: hours lost to an interruption are paid for, too.

Rates in, USD out:
    useful_share(interruptions_per_hour, checkpoint_every_hours, restart_hours, num_instances=1, wait_hours=0) -> share
    useful_time_share(the same) -> share
    usd_per_useful_gpu_hour(spot_usd_per_gpu_hour, useful) -> USD

**Model**, for an hour in which all N instances run. Each is interrupted r times, and one stops all of them, so the gang
is interrupted N r times. An interruption comes at any time between two checkpoints, so half an interval's work is done
again on average (Young, Communications of the ACM 17(9), 1974), and `restart_hours` pass from the new instance's start
to the first step that is new: all N are paid for both. While the new instance is waited for, the provider takes one
instance away and bills the N - 1 others on (AWS EC2 User Guide, "Spot Instance interruptions"): of every hour of
waiting a share (N - 1) / N is paid. One instance alone waits for nothing but time.

    work = 1 - N r (checkpoint / 2 + restart)     paid = 1 + N r wait (N - 1) / N     elapsed = 1 + N r wait

Interruptions during a restart or a wait are not counted: they are rare where the share is worth having.
"""

from __future__ import annotations

from trainbench.core.number_checks import QuantityError, not_negative, positive, used_share


def useful_share(
    interruptions_per_hour: float,
    checkpoint_every_hours: float,
    restart_hours: float,
    num_instances: int = 1,
    wait_hours: float = 0.0,
) -> float:
    """The share of the paid hours that brings the training on: work / paid. `interruptions_per_hour`: of one instance.

    Raises QuantityError where nothing would be left.
    """
    gang_rate = _gang_rate(interruptions_per_hour, num_instances)
    waited = gang_rate * not_negative(wait_hours, "wait_hours")
    paid = 1 + waited * (num_instances - 1) / num_instances
    return _work(gang_rate, checkpoint_every_hours, restart_hours) / paid


def useful_time_share(
    interruptions_per_hour: float,
    checkpoint_every_hours: float,
    restart_hours: float,
    num_instances: int = 1,
    wait_hours: float = 0.0,
) -> float:
    """The share of the time that passes, waiting included: work / elapsed. Raises QuantityError."""
    gang_rate = _gang_rate(interruptions_per_hour, num_instances)
    elapsed = 1 + gang_rate * not_negative(wait_hours, "wait_hours")
    return _work(gang_rate, checkpoint_every_hours, restart_hours) / elapsed


def usd_per_useful_gpu_hour(spot_usd_per_gpu_hour: float, useful: float) -> float:
    """Spot price / useful share: what an hour of work costs. Compare this, not the spot price, with on-demand."""
    return positive(spot_usd_per_gpu_hour, "spot USD per GPU-hour") / used_share(useful, "useful share")


def _gang_rate(interruptions_per_hour: float, num_instances: int) -> float:
    return not_negative(interruptions_per_hour, "interruptions_per_hour") * positive(num_instances, "num_instances")


def _work(gang_rate: float, checkpoint_every_hours: float, restart_hours: float) -> float:
    lost = not_negative(checkpoint_every_hours, "checkpoint_every_hours") / 2
    lost += not_negative(restart_hours, "restart_hours")
    work = 1 - gang_rate * lost
    if work <= 0:
        raise QuantityError(
            f"{gang_rate:g} interruptions per hour that take {lost:g} h each leave nothing of the hour: save "
            "checkpoints more often, or do not use spot"
        )
    return work

from __future__ import annotations

import pytest

from trainbench.core.number_checks import QuantityError
from trainbench.prices.quote import usd_per_useful_gpu_hour, useful_shares


def test_by_hand() -> None:
    """One interruption in 20 h, a checkpoint every 30 min, 6 min to start again: each takes 0.25 + 0.1 = 0.35 h, so
    0.05 * 0.35 = 1.75 % of the hours. $0.18 / 0.9825 = $0.18321.
    """
    useful, of_time = useful_shares(1 / 20, 0.5, 0.1)
    assert useful == of_time == pytest.approx(0.9825)
    assert usd_per_useful_gpu_hour(0.18, useful) == pytest.approx(0.18321, abs=1e-5)


@pytest.mark.parametrize(
    ("num_instances", "wait_hours", "paid", "passed"),
    [
        # Four instances: 4 * 1.75 % = 7 %. Nobody waits.
        (4, 0.0, 0.93, 0.93),
        # 0.93 h of work. They wait 0.2 x 0.5 = 0.1 h, in which three of four are billed: 1.075 h are paid for, 1.1 h
        # pass. 0.93 / 1.075 = 0.86512, 0.93 / 1.1 = 0.84545.
        (4, 0.5, 0.865116, 0.845455),
        # One waits for free: 0.9825 h of work are paid as without waiting; 1 + 0.05 x 2 = 1.1 h pass: 0.89318.
        (1, 2.0, 0.9825, 0.893182),
    ],
)
def test_one_lost_instance_stops_the_whole_gang_and_those_that_wait_are_paid(
    num_instances: int, wait_hours: float, paid: float, passed: float
) -> None:
    assert useful_shares(1 / 20, 0.5, 0.1, num_instances, wait_hours) == (
        pytest.approx(paid, abs=1e-6), pytest.approx(passed, abs=1e-6),
    )  # fmt: skip


def test_hours_that_are_all_lost_are_refused() -> None:
    with pytest.raises(QuantityError, match="leave nothing of the hour: save checkpoints more often"):
        useful_shares(2.0, 0.5, 0.25)


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
def test_what_is_no_number_is_refused(wrong: float) -> None:
    for arguments in [(wrong, 0.5, 0.1), (0.1, wrong, 0.1), (0.1, 0.5, wrong), (0.1, 0.5, 0.1, 2, wrong)]:
        with pytest.raises(QuantityError):
            useful_shares(*arguments)
    with pytest.raises(QuantityError, match="num_instances is 0"):
        useful_shares(0.1, 0.5, 0.1, num_instances=0)
    with pytest.raises(QuantityError, match="spot USD per GPU-hour"):
        usd_per_useful_gpu_hour(wrong, 0.9)

from __future__ import annotations

import pytest

from trainbench.core.number_checks import QuantityError
from trainbench.prices.quote import usd_per_useful_gpu_hour, useful_share


def test_by_hand() -> None:
    """One interruption in 20 h, a checkpoint every 30 min, 6 min to start again: each takes 0.25 + 0.1 = 0.35 h, so
    0.05 * 0.35 = 1.75 % of the hours. $0.18 / 0.9825 = $0.18321.
    """
    useful = useful_share(1 / 20, 0.5, 0.1)
    assert useful == pytest.approx(0.9825)
    assert usd_per_useful_gpu_hour(0.18, useful) == pytest.approx(0.18321, abs=1e-5)


def test_one_lost_instance_stops_the_whole_gang() -> None:
    """Four instances: 4 * 1.75 % = 7 %."""
    assert useful_share(1 / 20, 0.5, 0.1, 4) == pytest.approx(0.93)


def test_hours_that_are_all_lost_are_refused() -> None:
    with pytest.raises(QuantityError, match="leave nothing of the hour: save checkpoints more often"):
        useful_share(2.0, 0.5, 0.25)


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
def test_what_is_no_number_is_refused(wrong: float) -> None:
    for arguments in [(wrong, 0.5, 0.1), (0.1, wrong, 0.1), (0.1, 0.5, wrong)]:
        with pytest.raises(QuantityError):
            useful_share(*arguments)
    with pytest.raises(QuantityError, match="num_instances is 0"):
        useful_share(0.1, 0.5, 0.1, num_instances=0)
    with pytest.raises(QuantityError, match="spot USD per GPU-hour"):
        usd_per_useful_gpu_hour(wrong, 0.9)

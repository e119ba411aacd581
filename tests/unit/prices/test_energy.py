from __future__ import annotations

import pytest

from bench_image.contract.result import RunResult
from tests.builders import make_cpu_result, make_result
from trainbench.core.number_checks import QuantityError
from trainbench.prices.quote import energy_usd
from trainbench.prices.run_cost import measured_joules


def test_by_hand() -> None:
    """7.2 MJ = 2 kWh; with a PUE of 1.5 the building takes 3 kWh; at $0.20: $0.60."""
    assert energy_usd(7.2e6, 0.20, pue=1.5) == pytest.approx(0.60)


def test_the_joules_of_a_run_are_those_of_all_its_gpus() -> None:
    result = make_result(strategy="ddp", gpus_per_node=2)
    gpu = result.telemetry.gpus[0]

    def run(*joules: float | None) -> RunResult:
        gpus = tuple(gpu.model_copy(update={"energy_j": energy}) for energy in joules)
        return result.model_copy(update={"telemetry": result.telemetry.model_copy(update={"gpus": gpus})})

    assert measured_joules(run(100.0, 140.0)) == 240.0
    assert measured_joules(run(100.0, None)) is None
    assert measured_joules(run(100.0)) is None  # one pod's own file of a gang: half is not all
    assert measured_joules(make_cpu_result()) is None


@pytest.mark.parametrize(
    ("joules", "usd_per_kwh", "pue", "message"),
    [
        (-1.0, 0.2, 1.0, "energy in joules is -1"),
        (float("nan"), 0.2, 1.0, "energy in joules is nan"),
        (1.0, 0.0, 1.0, "USD per kWh is 0"),
        (1.0, float("inf"), 1.0, "USD per kWh is inf"),
        (1.0, 0.2, 0.9, "PUE is 0.9: it must be a number, 1 or more"),
    ],
)
def test_what_is_refused(joules: float, usd_per_kwh: float, pue: float, message: str) -> None:
    with pytest.raises(QuantityError, match=message):
        energy_usd(joules, usd_per_kwh, pue)


def test_the_pue_is_one_by_default() -> None:
    """1 kWh at $0.20; 3.6 kJ a sample."""
    assert energy_usd(3.6e6, 0.20) == energy_usd(3.6e6, 0.20, pue=1.0) == pytest.approx(0.20)

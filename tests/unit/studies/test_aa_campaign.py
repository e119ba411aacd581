"""The A/A campaign's runs and its summary; the runs themselves are made on the device."""

from __future__ import annotations

import pytest

from aa_campaign import Outcome, Run, nights, presets, summary
from bench_image.contract.options import Strategy
from bench_image.contract.work import Preset
from tests.builders import make_failed, make_result


def test_presets_run_by_turns_with_the_default_work_of_the_node_check() -> None:
    runs = list(presets(2, 4, {}))

    made = [(run.kind, run.number) for run in runs]
    assert made == [("tuned", 1), ("as-users-run", 1), ("tuned", 2), ("as-users-run", 2)]
    assert [run.spec.work.preset for run in runs[:2]] == [Preset.TUNED, Preset.AS_USERS_RUN]
    assert {run.spec.placement.strategy for run in runs} == {Strategy.SINGLE}
    assert {run.spec.measurement.max_window_s for run in runs} == {5.0}  # the night's, not the form's
    assert {(run.spec.work.model, run.spec.work.recipe.value, run.spec.work.seq_length) for run in runs} == {
        ("mistral-7b", "qlora", 512)
    }


@pytest.mark.parametrize(
    ("gpus", "kinds"), [(1, ["night-independent"]), (4, ["night-independent", "night-ddp"])]
)  # fmt: skip
def test_a_night_takes_all_gpus_and_ddp_only_where_there_is_something_to_connect(gpus: int, kinds: list[str]) -> None:
    runs = list(nights(2, gpus, {}))

    assert [run.kind for run in runs] == kinds * 2
    assert {run.spec.placement.gpus_per_node for run in runs} == {gpus}


def test_a_setting_reaches_the_spec() -> None:
    (run,) = nights(1, 1, {"model": "tiny", "device": "cpu", "seq_length": "32"})

    assert (run.spec.work.model, run.spec.work.device.value, run.spec.work.seq_length) == ("tiny", "cpu", 32)


def test_the_spread_by_hand() -> None:
    """9 and 11: mean 10, sample standard deviation 1.414, 14.14 %; a run that failed has no rate."""
    good = [make_result(samples_per_s=rate) for rate in (9.0, 11.0)]
    outcomes = [Outcome(Run("tuned", n, r.spec), 50.0 + n, r) for n, r in enumerate([*good, make_failed()])]
    (known,) = summary(outcomes).values()

    assert known["samples_per_second"] == [9.0, 11.0]
    assert known["sd_pct"] == pytest.approx(14.142, abs=1e-3)
    assert known["start_to_result_s"] == [50.0, 51.0]

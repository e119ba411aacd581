"""The runs of one GPU that studies/one_gpu_specs.py plans: both presets twice by turns, every other work once."""

from __future__ import annotations

from collections import Counter

from bench_image.contract.fingerprint import fingerprint
from bench_image.contract.options import Strategy
from one_gpu_specs import planned


def test_both_presets_run_by_turns_and_every_other_work_once() -> None:
    specs = dict(planned())
    works = {name: fingerprint(spec.work) for name, spec in specs.items()}
    times = Counter(works.values())

    assert [spec.work.preset.value for spec in list(specs.values())[:4]] == ["as_users_run", "tuned"] * 2
    assert sorted(name for name, work in works.items() if times[work] > 1) == [
        "tuned-qlora-1",
        "tuned-qlora-2",
        "users-qlora-1",
        "users-qlora-2",
    ]
    assert {(spec.placement.strategy, spec.placement.world_size) for spec in specs.values()} == {(Strategy.SINGLE, 1)}

from __future__ import annotations

from bench_control.comparing.scaling import Efficiency, efficiencies
from bench_image.contract import Chosen, Drill, RunResult, Strategy
from tests.builders import make_failed, make_result


def ddp(samples_per_s: float, gpus: int) -> RunResult:
    return make_result("node-1", samples_per_s, strategy=Strategy.DDP, gpus_per_node=gpus)


def test_throughput_per_gpu_against_the_smallest_measured_size() -> None:
    """10 samples/s on one GPU; 18 on two are 9 per GPU = 90 %; 32 on four are 8 per GPU = 80 %."""
    single, two, four = efficiencies([make_result("node-1", 10.0), ddp(18.0, 2), ddp(32.0, 4)])
    assert single is None
    assert two == Efficiency(pct=90.0, base_world_size=1, base_strategy=Strategy.SINGLE)
    assert four == Efficiency(pct=80.0, base_world_size=1, base_strategy=Strategy.SINGLE)


def test_two_gpus_are_the_base_where_one_was_not_measured() -> None:
    """The reference's own figures: 12,220 / 4 over 8,369 / 2 is 73.0 %; its 36.5 % took two GPUs for one."""
    two, four = efficiencies([ddp(8369.0, 2), ddp(12220.0, 4)])
    assert two is None
    assert four is not None
    assert (round(four.pct, 1), four.base_world_size) == (73.0, 2)


def test_other_work_other_gpus_and_failed_runs_are_no_base() -> None:
    runs = [
        make_result("node-1", 10.0, seq_length=1024),
        make_result("node-2", 10.0, gpu_name="NVIDIA A10"),
        make_failed("node-3"),
        ddp(18.0, 2),
    ]
    assert efficiencies(runs) == (None, None, None, None)


def test_another_strategy_is_no_base() -> None:
    """zero3 on four GPUs is compared with zero3 on two, never with the faster ddp: 24 / 4 over 16 / 2 is 75 %."""
    zero3 = [make_result("node-1", rate, strategy="zero3", gpus_per_node=gpus) for rate, gpus in ((16.0, 2), (24.0, 4))]
    _, _, four = efficiencies([ddp(18.0, 2), *zero3])

    assert four == Efficiency(pct=75.0, base_world_size=2, base_strategy=Strategy.ZERO3)


def test_what_the_program_chose_is_the_work() -> None:
    """One GPU chose 8, two chose 4: other work, so no efficiency; where both chose 8 there is one."""

    def chose(size: int) -> Chosen:
        return Chosen(micro_batch_size=size, gradient_checkpointing=True, why="fits", means={})

    base = make_result("node-1", 10.0, micro_batch_size="auto", chosen=chose(8))
    two = {size: make_result(
        "node-1", 18.0, micro_batch_size="auto", chosen=chose(size), strategy="ddp", gpus_per_node=2
    ) for size in (4, 8)}  # fmt: skip

    assert efficiencies([base, two[4]])[1] is None
    assert efficiencies([base, two[8]])[1] == Efficiency(pct=90.0, base_world_size=1, base_strategy=Strategy.SINGLE)


def test_how_long_was_measured_is_not_work() -> None:
    quick = make_result("node-1", 10.0, measured_steps=5, max_measured_steps=5, warmup_steps=3)

    assert efficiencies([quick, ddp(18.0, 2)])[1] is not None


def test_a_drilled_run_is_neither_base_nor_compared() -> None:
    slowed = make_result("node-1", 2.0, drill=Drill(slowdown_pct=80))

    assert efficiencies([slowed, ddp(18.0, 2)]) == (None, None)

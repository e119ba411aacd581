from __future__ import annotations

from bench_control.scaling import Efficiency, efficiencies
from bench_image.contract import RunResult, Strategy
from tests.builders import make_failed, make_result


def ddp(samples_per_s: float, gpus: int) -> RunResult:
    return make_result("node-1", samples_per_s, strategy=Strategy.DDP, gpus_per_node=gpus)


def test_throughput_per_gpu_against_the_smallest_measured_size() -> None:
    """10 samples/s on one GPU; 18 on two are 9 per GPU = 90 %; 32 on four are 8 per GPU = 80 %."""
    single, two, four = efficiencies([make_result("node-1", 10.0), ddp(18.0, 2), ddp(32.0, 4)])
    assert single is None
    assert two == Efficiency(pct=90.0, base_world_size=1)
    assert four == Efficiency(pct=80.0, base_world_size=1)


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

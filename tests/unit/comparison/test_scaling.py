from __future__ import annotations

import pytest

from bench_image.contract.options import Strategy
from bench_image.contract.own_job import OwnJob
from bench_image.contract.result import Chosen, RunResult
from tests.builders import make_failed, make_result
from trainbench.comparison.entries import entries, work_groups
from trainbench.comparison.scaling import Efficiency, Scaling, efficiencies, entry_scaling


def ddp(samples_per_s: float, gpus: int) -> RunResult:
    return make_result("node-1", samples_per_s, strategy=Strategy.DDP, gpus_per_node=gpus)


def test_throughput_per_gpu_against_the_smallest_measured_size() -> None:
    """10 samples/s on one GPU; 18 on two are 9 per GPU = 90 %; 32 on four are 8 per GPU = 80 %."""
    single, two, four = efficiencies([make_result("node-1", 10.0), ddp(18.0, 2), ddp(32.0, 4)])
    assert single is None
    assert two == Efficiency(pct=90.0, base_world_size=1, base_strategy=Strategy.SINGLE)
    assert four == Efficiency(pct=80.0, base_world_size=1, base_strategy=Strategy.SINGLE)


@pytest.mark.parametrize(("samples", "pct"), [((8, 16), 90.0), ((8, 8), 90.0), ((1, 1), None)])
def test_commands_of_ones_own_are_one_work_where_their_samples_are_known(
    samples: tuple[int, int], pct: float | None
) -> None:
    """10 samples/s on one GPU, 18 on two: 90 % each. One sample a step of two GPUs is a log that tells none."""
    own = {"strategy": Strategy.OWN, "recipe": "full", "lora": None, "own_job": OwnJob(command="train")}
    one, two = (
        make_result("node-1", rate, gpus_per_node=gpus, micro_batch_size=batch, **own)
        for rate, gpus, batch in zip((10.0, 18.0), (1, 2), samples, strict=True)
    )
    _, efficiency = efficiencies([one, two])
    assert (efficiency and efficiency.pct) == pct


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
        return Chosen(micro_batch_size=size, gradient_checkpointing=True, why="fits", execution={})

    base = make_result("node-1", 10.0, micro_batch_size="auto", chosen=chose(8))
    two = {size: make_result(
        "node-1", 18.0, micro_batch_size="auto", chosen=chose(size), strategy="ddp", gpus_per_node=2
    ) for size in (4, 8)}  # fmt: skip

    assert efficiencies([base, two[4]])[1] is None
    assert efficiencies([base, two[8]])[1] == Efficiency(pct=90.0, base_world_size=1, base_strategy=Strategy.SINGLE)


def on(gpus: tuple[int, ...], samples_per_s: float, node: str = "node-1") -> RunResult:
    """A run that reports the UUIDs of these GPUs."""
    strategy = Strategy.SINGLE if len(gpus) == 1 else Strategy.DDP
    run = make_result(node, samples_per_s, strategy=strategy, gpus_per_node=len(gpus))
    assert run.context
    listed = tuple(
        gpu.model_copy(update={"uuid": f"GPU-{number}"}) for gpu, number in zip(run.context.gpus, gpus, strict=True)
    )
    ranks = tuple(
        rank.model_copy(update={"gpu_uuid": f"GPU-{number}"}) for rank, number in zip(run.ranks, gpus, strict=False)
    )
    return run.model_copy(update={"context": run.context.model_copy(update={"gpus": listed}), "ranks": ranks})


def test_a_base_on_other_gpus_of_the_same_name_is_marked() -> None:
    """One name, two machines: 10 samples/s on GPU 9, 23.54 on GPUs 1 and 2 are 117.7 % of other GPUs' speed."""
    _, two = efficiencies([on((9,), 10.0), on((1, 2), 23.54)])

    assert two is not None
    assert (round(two.pct, 1), two.elsewhere) == (117.7, "other GPUs of node-1")


def test_gpus_that_one_run_used_together_are_one_machine() -> None:
    """The base ran on GPU 3, two GPUs on 1 and 2; a run on all four proves that they sit in one machine."""
    one, two, four = efficiencies([on((3,), 10.0), on((1, 2), 18.0), on((1, 2, 3, 4), 36.0)])

    assert one is None
    assert two == Efficiency(pct=90.0, base_world_size=1, base_strategy=Strategy.SINGLE)
    assert four == Efficiency(pct=90.0, base_world_size=1, base_strategy=Strategy.SINGLE)


def test_the_base_on_the_same_machine_counts_before_a_faster_one_elsewhere() -> None:
    """GPU 1 makes 10, another machine's 20: 18 on GPUs 1 and 2 are 90 %, not 60 % of the two bases' median 15."""
    _, _, two = efficiencies([on((1,), 10.0), on((9,), 20.0, "node-9"), on((1, 2), 18.0)])

    assert two == Efficiency(pct=90.0, base_world_size=1, base_strategy=Strategy.SINGLE)


def test_a_renamed_machine_is_known_by_its_gpus() -> None:
    _, two = efficiencies([on((1,), 10.0, "old-name"), on((1, 2), 18.0, "new-name")])
    assert two is not None
    assert two.elsewhere is None


def of_entry(base: tuple[float, ...], samples_per_s: tuple[float, ...], gpus: int) -> Scaling:
    runs = [make_result("node-1", rate, round=i, windows=(rate,)) for i, rate in enumerate(base, 1)]
    gangs = [
        make_result("node-1", rate, round=i, windows=(rate,), strategy="ddp", gpus_per_node=gpus, step_cv_pct=0.0)
        for i, rate in enumerate(samples_per_s, 1)
    ]
    (group,) = work_groups([*runs, *gangs])
    (entry,) = entries(group, gpus)
    actual = entry_scaling(group.results)(entry)
    assert actual is not None
    return actual


def test_an_entry_scales_as_the_median_of_its_runs_and_the_base_as_the_median_of_its_own() -> None:
    """Base 10 (of 8, 10 and 15, mean 11); 18, 19 and 26 on two GPUs are 90, 95 and 130 %, median 95."""
    actual = of_entry((8.0, 10.0, 15.0), (18.0, 19.0, 26.0), 2)

    assert actual.pct == pytest.approx(95.0)
    assert actual.speed_up == pytest.approx(1.9)


def test_the_noise_of_a_scaling_is_that_of_both_sides() -> None:
    """Of two single runs chance explains 6.8 %: see `test_noise.py`."""
    assert of_entry((10.0,), (19.0,), 2).noise_pct == pytest.approx(6.78, abs=0.01)


def test_as_fast_within_the_noise_at_its_very_edge() -> None:
    """26.25 % on four GPUs is 1.05 times one GPU: with 5 % of noise it may be as fast, with 4.9 % not."""
    base = Efficiency(pct=26.25, base_world_size=1, base_strategy=Strategy.SINGLE)
    assert Scaling(efficiency=base, noise_pct=5.0, world_size=4).is_no_faster
    assert not Scaling(efficiency=base, noise_pct=4.9, world_size=4).is_no_faster

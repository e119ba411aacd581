"""The probes where there is no GPU; what they measure on one is a result, not a test."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch

from bench_image.contract.result_sections import Probes
from bench_image.telemetry import probes
from bench_image.telemetry.probes import RATES, matmul_tflops, probe, shares_pct

CPU = torch.device("cpu")


class Alone:
    """One rank, or with `others` several: their rates, by field."""

    device, world_size = CPU, 1

    def __init__(self, **others: float) -> None:
        self.others = others

    def max_over_ranks(self, values: Sequence[float]) -> list[float]:
        names = ("matmul_tflops", *RATES, *(name for name in Probes.model_fields if name.endswith("_share_pct")))
        return [max(value, -self.others.get(name, -value)) for name, value in zip(names, values, strict=True)]


def test_the_cpu_has_a_matmul_and_a_reason_for_all_else() -> None:
    probes, missing = probe(Alone(), None, torch.float32)

    assert (probes.matmul_tflops or 0) > 0
    nulls = {name for name, value in probes.model_dump().items() if value is None}
    assert nulls == set(missing) == set(Probes.model_fields) - {"matmul_tflops"}
    assert missing["h2d_gb_per_s"] == missing["h2d_share_pct"] == "the run uses no GPU"


def test_shares_of_the_data_sheet_by_hand() -> None:
    """An H200 promises 64 GB/s to the host and 989 TFLOP/s in bf16: 12.1 and 791.2 are 18.90625 % and 80 %."""
    rates = {"h2d_gb_per_s": 12.1, "matmul_bf16_tflops": 791.2}

    assert shares_pct(rates, "NVIDIA H200") == pytest.approx({"h2d_share_pct": 18.90625, "matmul_bf16_share_pct": 80})
    assert shares_pct(rates, "NVIDIA Fake 9000") == shares_pct(rates, None) == {}


def test_the_slowest_rank_counts_and_what_one_rank_lacks_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """This rank: 60 GB/s of 64, memory 4,800 of 4,800 GB/s. Another: 32 GB/s, a matmul of 1, nothing of memory."""
    own = {"h2d_gb_per_s": 60.0, "memory_gb_per_s": 4800.0}
    monkeypatch.setattr(probes, "gpu_rates", lambda *_: (own, dict.fromkeys(set(RATES) - own.keys(), "not here")))
    monkeypatch.setattr(probes, "matmul_tflops", lambda *_: 2.0)
    unknown = -math.inf
    other = Alone(
        h2d_gb_per_s=32.0, h2d_share_pct=50.0, matmul_tflops=1.0, memory_gb_per_s=unknown, memory_share_pct=unknown
    )
    seen, missing = probe(other, "NVIDIA H200", torch.bfloat16)

    assert (seen.h2d_gb_per_s, seen.h2d_share_pct, seen.matmul_tflops) == (32.0, 50.0, 1.0)
    assert (seen.memory_gb_per_s, seen.memory_share_pct) == (None, None)
    assert missing["memory_gb_per_s"] == missing["memory_share_pct"] == "another rank of the run could not measure it"


def test_a_gpu_that_the_table_lacks_has_rates_and_no_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = dict.fromkeys(RATES, 1.0) | {"matmul_bf16_tflops": 3.0, "matmul_fp8_tflops": 4.0}
    monkeypatch.setattr(probes, "gpu_rates", lambda *_: (rates, {}))
    monkeypatch.setattr(probes, "matmul_tflops", lambda *_: 2.0)
    of_run = {dtype: probe(Alone(), None, dtype)[0].matmul_tflops for dtype in (torch.bfloat16, torch.float8_e4m3fn)}
    seen, missing = probe(Alone(), "NVIDIA Fake 9000", torch.float32)

    assert (of_run, seen.matmul_tflops) == ({torch.bfloat16: 3.0, torch.float8_e4m3fn: 4.0}, 2.0)
    assert (seen.h2d_gb_per_s, seen.h2d_share_pct) == (1.0, None)
    assert missing["h2d_share_pct"].startswith("the data sheet of 'NVIDIA Fake 9000' is not in the GPU table")


class FakeTensor:
    """A tensor of a GPU that is not there."""

    def __init__(self, device: object) -> None:
        self.device = device

    def copy_(self, source: FakeTensor, **_: object) -> None:
        copies.append((source.device, self.device))

    def pin_memory(self) -> FakeTensor:
        return FakeTensor("pinned")


copies: list[tuple[object, object]] = []


@pytest.fixture
def fake_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs that copy in 0.01 s; `copies` says from where to where."""
    copies.clear()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: FakeTensor("host"))
    monkeypatch.setattr(torch, "zeros", lambda *_, device, **__: FakeTensor(device))
    monkeypatch.setattr(torch, "empty_like", lambda like, device=None: FakeTensor(device or like.device))

    def median_s(_device: object, work: Callable[[], object]) -> float:
        work()
        return 0.01

    monkeypatch.setattr(probes, "_median_s", median_s)


def test_copies_by_hand(fake_gpus: None) -> None:
    """268,435,456 bytes in 0.01 s: 26.84 GB/s. 536,870,912 bytes read and as many written: 107.37 GB/s."""
    gpu = torch.device("cuda", 0)

    assert probes.host_copy_gb_per_s(gpu, to_host=False) == pytest.approx(26.8435456)
    assert probes.host_copy_gb_per_s(gpu, to_host=True) == pytest.approx(26.8435456)
    assert probes.memory_gb_per_s(gpu) == pytest.approx(107.3741824)
    assert copies == [("pinned", gpu), (gpu, "pinned"), (gpu, gpu)]


@pytest.mark.parametrize(("own", "neighbour"), [(0, 1), (1, 0)])
def test_a_copy_goes_to_the_next_gpu(fake_gpus: None, own: int, neighbour: int) -> None:
    """268,435,456 bytes in 0.01 s: 26.84 GB/s."""
    assert probes.peer_gb_per_s(torch.device("cuda", own)) == pytest.approx(26.8435456)
    assert copies == [(torch.device("cuda", own), torch.device("cuda", neighbour))]


def test_what_a_gpu_cannot_do_costs_only_its_own_probe(monkeypatch: pytest.MonkeyPatch, fake_gpus: None) -> None:
    """An Ampere GPU has no 8-bit units, there is too little memory for the copy within it, and no second GPU."""

    def full(_device: object) -> float:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(probes, "memory_gb_per_s", full)
    monkeypatch.setattr(probes, "matmul_tflops", lambda *_: 250.0)
    rates, missing = probes.gpu_rates(torch.device("cuda", 0))

    assert rates["matmul_bf16_tflops"] == 250.0
    assert rates.keys() == {"h2d_gb_per_s", "d2h_gb_per_s", "matmul_bf16_tflops"}
    assert missing == {
        "memory_gb_per_s": "it could not be measured: CUDA out of memory",
        "matmul_fp8_tflops": "the GPU has no units for float8_e4m3fn",
        "peer_gb_per_s": "the rank sees no other GPU",
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e4m3fn])
def test_a_matmul_rate_is_a_finite_positive_number(dtype: torch.dtype) -> None:
    rate = matmul_tflops(CPU, dtype)

    assert rate > 0
    assert math.isfinite(rate)


class FourRanks(Alone):
    """Another one of them takes 2 ms."""

    world_size = 4

    def max_over_ranks(self, values: Sequence[float]) -> list[float]:
        return [max(value, 0.002) for value in values]


def test_the_bus_rate_of_an_all_reduce_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four ranks, 2**20 bytes in 2 ms: 2 x 3/4 x 1,048,576 / 0.002 / 1e9 = 0.786432 GB/s."""
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda *_, **__: None)
    monkeypatch.setattr(probes, "_median_s", lambda *_, **__: 0.001)

    assert probes.allreduce_bus_gb_per_s(FourRanks()) == pytest.approx(0.786432)


def test_the_rate_of_a_matmul_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """512 x 512 matrices in 1 ms: 2 x 512^3 / 0.001 / 1e12 = 0.268435456 TFLOP/s."""
    monkeypatch.setattr(probes, "_median_s", lambda *_, **__: 0.001)

    assert matmul_tflops(CPU, torch.float32) == pytest.approx(0.268435456)


class Slow:
    """Calls of 0.2 s, by a clock of their own."""

    def __init__(self) -> None:
        self.now, self.calls = 0.0, 0

    def __call__(self, *_: object, **__: object) -> None:
        self.now, self.calls = self.now + 0.2, self.calls + 1

    def monotonic(self) -> float:
        return self.now


def test_a_probe_that_is_slow_is_repeated_less_but_by_all_ranks_equally_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 to warm up and 1 that counts, instead of 12. By time some ranks of an all-reduce would stop before others."""
    alone, shared = Slow(), Slow()
    monkeypatch.setattr(probes.time, "monotonic", alone.monotonic)
    assert probes._median_s(CPU, alone, cpu_clock=alone.monotonic) == pytest.approx(0.2)
    monkeypatch.setattr(probes.time, "monotonic", shared.monotonic)
    monkeypatch.setattr(torch.distributed, "all_reduce", shared)
    probes.allreduce_bus_gb_per_s(FourRanks())

    assert (alone.calls, shared.calls) == (3, 12)

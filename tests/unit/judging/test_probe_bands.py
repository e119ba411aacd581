"""Probes beside the data sheet: what is usual comes from measured GPUs, and what is below it is a finding."""

from __future__ import annotations

import pytest

from bench_image.contract.parse import parse_result
from bench_image.contract.result_sections import share_field
from committed import committed
from tests.builders import make_cpu_result, make_result
from tests.builders.results import make_probes
from tests.unit.published.measured import document
from trainbench.core.verdicts import Level
from trainbench.judging.probe_bands import BANDS, KINDS, odd_probe_findings, probe_shares
from trainbench.results.readings import shared_by

H200 = "NVIDIA H200"


def test_a_healthy_gpu_has_shares_and_no_finding() -> None:
    """55.4 of 64 GB/s is 86.6 %; 780 of 989 TFLOP/s is 78.9 %."""
    shares = {share.rate: share for share in probe_shares(make_result())}

    assert set(shares) == set(KINDS)
    assert (shares["h2d_gb_per_s"].pct, shares["h2d_gb_per_s"].band) == (
        pytest.approx(86.5625), BANDS[H200]["h2d_gb_per_s"],
    )  # fmt: skip
    assert shares["matmul_bf16_tflops"].pct == pytest.approx(78.868, abs=1e-3)
    assert odd_probe_findings([make_result(), make_cpu_result()]) == ()


def test_a_probe_below_its_band_is_a_finding_of_its_own() -> None:
    """12.1 of 64 GB/s is 18.9 %."""
    (finding,) = odd_probe_findings([make_result("node-2", h2d_gb_per_s=12.1)])

    assert (finding.level, finding.category, finding.nodes) == (Level.WARNING, "probe_odd", ("node-2",))
    assert finding.headline == (
        "node-2 is below what its GPU promises: host-to-device copy 12.1 GB/s is 19 % of the data sheet's 64, "
        "usual 59 to 91 %"
    )
    assert finding.cause is not None
    assert "PCIe link" in finding.cause


def test_of_several_runs_of_a_node_the_lowest_counts() -> None:
    (finding,) = odd_probe_findings([make_result(h2d_gb_per_s=30.0), make_result(h2d_gb_per_s=12.1)])
    assert finding.measured == "19 % of the data sheet"


def test_beside_other_work_that_is_the_cause() -> None:
    (finding, *_) = odd_probe_findings([make_result(num_other_processes=1, probes={"matmul_bf16_tflops": 400.0})])
    assert finding.cause == "1 other process on GPU 0"


def test_each_independent_gpu_is_looked_at_by_itself() -> None:
    result = make_result(strategy="independent", gpus_per_node=2)
    slow = make_probes(H200, {"memory_gb_per_s": 2400.0})
    ranks = tuple(rank.model_copy(update={"probes": slow if rank.rank else result.probes}) for rank in result.ranks)

    (finding,) = odd_probe_findings([result.model_copy(update={"ranks": ranks})])
    assert "GPU 1 (GPU-node-1-1): GPU memory 2,400 GB/s is 50 % of the data sheet's 4800" in finding.summary


def test_a_kind_of_gpu_that_was_never_measured_is_odd_far_below_all_bands_only() -> None:
    """Half of 59 % is 29.5 %: 9.4 of 32 GB/s is 29.4 %, 9.5 is 29.7 %."""
    a100 = "NVIDIA A100-SXM4-80GB"

    assert odd_probe_findings([make_result(gpu_name=a100, h2d_gb_per_s=9.5)]) == ()
    (finding,) = odd_probe_findings([make_result(gpu_name=a100, h2d_gb_per_s=9.4)])
    assert "is 29 % of the data sheet's 32" in finding.summary


def test_an_unknown_gpu_has_no_shares() -> None:
    assert probe_shares(make_result(gpu_name="NVIDIA Fake 9000")) == ()


def test_every_committed_result_of_an_unshared_gpu_lies_in_the_bands() -> None:
    """And the bands are no wider than 5 % of what was measured, on each side."""
    seen: dict[str, list[float]] = {rate: [] for rate in BANDS[H200]}
    for text in committed("*/result.json").values():
        result = parse_result(text.encode())
        if shared_by(result) or not result.context or [gpu.name for gpu in result.context.gpus][:1] != [H200]:
            continue
        if result.probes.h2d_gb_per_s:
            seen["h2d_gb_per_s"].append(result.probes.h2d_gb_per_s / 64 * 100)
        if result.spec.work.precision == "bf16" and result.probes.matmul_tflops:
            seen["matmul_bf16_tflops"].append(result.probes.matmul_tflops / 989 * 100)
        for share in probe_shares(result):
            seen[share.rate].append(share.pct)
    for one in document("probes-h200-2026-11-23/probes.json")["rounds"]:
        for rate, pcts in seen.items():
            if rate != "peer_gb_per_s":  # one GPU
                pcts.append(one["probes"][share_field(rate)])
    for rate, pcts in seen.items():
        band = BANDS[H200][rate]
        assert band.low_pct <= min(pcts) <= max(pcts) <= band.high_pct, rate
        if rate != "d2h_gb_per_s":  # has host-to-device's
            assert band.low_pct >= 0.94 * min(pcts), (rate, min(pcts), max(pcts))
            assert band.high_pct <= 1.06 * max(pcts), (rate, min(pcts), max(pcts))

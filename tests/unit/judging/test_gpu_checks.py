"""What the GPUs say of themselves, and their probes beside the data sheet."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.parse import parse_result
from bench_image.contract.result import RunResult, Status
from bench_image.contract.result_sections import share_field
from committed import committed
from tests.builders import make_cpu_result, make_failed, make_result
from tests.builders.results import make_probes
from tests.unit.published.measured import document
from trainbench.core.verdicts import Level
from trainbench.judging.gpu_checks import (
    BANDS,
    KINDS,
    SOURCE,
    XIDS,
    broken_gpu_findings,
    gpu_event_findings,
    odd_probe_findings,
    probe_shares,
    xid,
)
from trainbench.results.readings import shared_by


def said(node: str = "node-1", **events: Any) -> RunResult:
    return make_result(node, events=events)


def test_silent_gpus_cpus_and_results_of_0_1_have_no_findings() -> None:
    nothing = dict.fromkeys(("xids", "row_remap_failed", "nvlink_replays", "nvlink_crc_errors", "pcie_replays"))
    never = said(xids={"79": 0})
    assert gpu_event_findings([make_result(), make_cpu_result(), make_failed(), said(**nothing), never]) == ()


def test_an_xid_of_a_broken_gpu_is_red_with_its_meaning_and_next_step() -> None:
    (finding,) = gpu_event_findings([make_result("node-2"), said("node-3", xids={"79": 1})])

    assert (finding.level, finding.category, finding.nodes) == (Level.ERROR, "xid", ("node-3",))
    assert finding.text == ("node-3 reported Xid 79 on GPU 0 (GPU-node-3-0), 1 time. The GPU has fallen off the bus")
    assert finding.resolution.startswith("drain the node and restart the machine")
    assert broken_gpu_findings([said("node-3", xids={"79": 1})]) == (finding,)


def test_of_several_runs_of_a_node_an_xid_is_one_finding() -> None:
    """One run has it twice, the re-run once: 3 times. What the table lacks leads to the catalogue."""
    finding, unknown = gpu_event_findings([said(xids={"94": 2, "999": 1}), said(xids={"94": 1})])

    assert (finding.level, finding.category, finding.measured) == (Level.WARNING, "xid", "Xid 94, 3 times")
    assert (unknown.level, unknown.category, SOURCE in unknown.resolution) == (Level.WARNING, "xid", True)


@pytest.mark.parametrize(
    ("code", "level"),
    [
        *((code, Level.ERROR) for code in (48, 62, 64, 74, 79, 95, 109, 119, 120, 140, 143)),
        *((code, Level.WARNING) for code in (13, 31, 32, 61, 63, 68, 69, 92, 94, 144, 150)),
        *((code, Level.INFO) for code in (43, 45, 154)),
    ],
)
def test_the_level_of_each_xid_follows_nvidia_s_action(code: int, level: Level) -> None:
    assert xid(code) is XIDS[code]
    assert xid(code).level is level


@pytest.mark.parametrize(
    ("events", "category", "level", "measured"),
    [
        ({"row_remap_failed": True}, "row_remap_failed", Level.ERROR, "a row that could not be replaced"),
        ({"ecc_uncorrected_in_run": 2}, "ecc_uncorrected", Level.ERROR, "2 uncorrected memory errors"),
        ({"rows_remapped_in_run": 1}, "rows_remapped", Level.WARNING, "1 row replaced"),
        ({"row_remap_pending": True}, "rows_remapped", Level.WARNING,
         "0 rows replaced, and one waits for a reset of the GPU"),
        ({"nvlink_replays": 1}, "nvlink_errors", Level.WARNING, "1 replay and 0 CRC errors of NVLinks"),
        ({"other_memory_at_start_gb": 40.0}, "shared_gpu", Level.WARNING,
         "40.0 GB in use beside the run on GPU 0"),
    ],
)  # fmt: skip
def test_each_kind_of_event_is_a_finding(events: dict[str, Any], category: str, level: Level, measured: str) -> None:
    (finding,) = gpu_event_findings([said(**events)])

    assert (finding.category, finding.level, finding.measured) == (category, level, measured)
    assert broken_gpu_findings([said(**events)]) == ((finding,) if level is Level.ERROR else ())


def test_of_an_uncorrected_memory_error_that_one_program_had_to_itself_the_gpu_waits_for_its_next_reset() -> None:
    """Xid 94 says so of node-1; node-2's is not contained."""
    runs = [said(ecc_uncorrected_in_run=1, xids={"94": 1}), said("node-2", ecc_uncorrected_in_run=3)]
    contained, broken = [f for f in gpu_event_findings(runs) if f.category.startswith("ecc")]
    assert (contained.nodes, contained.level, contained.category) == (("node-1",), Level.WARNING, "ecc_uncorrected")
    assert contained.resolution.startswith("reset the GPU at the next chance")
    assert broken_gpu_findings(runs) == (broken,)
    assert broken.text == (
        "node-2 had 3 uncorrected memory errors (ECC) in its runs on GPU 0 (GPU-node-2-0). "
        "The GPU's memory has faults, and what was computed with it may be wrong"
    )
    assert broken.resolution.startswith("drain the node and reset the GPU")


def test_what_a_link_corrects_counts_only_at_a_rate() -> None:
    """A run of 55 s: 100 CRC errors a second are 5,500; 8 replays a minute of PCIe are 7.33."""
    assert gpu_event_findings([said(nvlink_crc_errors=5_499, pcie_replays=7)]) == ()
    (crc,) = gpu_event_findings([said(nvlink_crc_errors=5_500)])
    (pcie,) = gpu_event_findings([said(pcie_replays=8)])

    assert crc.category == "nvlink_errors"
    assert (pcie.category, pcie.measured) == ("pcie_replays", "9 PCIe replays a minute")


def test_of_several_shared_runs_the_one_that_shared_most_is_told() -> None:
    (finding,) = gpu_event_findings([said(other_memory_at_start_gb=gb) for gb in (20.0, 40.0, 0.0)])
    assert finding.summary == "was not alone in 2 runs of 3: 40.0 GB in use beside the run on GPU 0"


def test_corrected_memory_errors_are_evidence_only() -> None:
    assert gpu_event_findings([said(ecc_corrected_in_run=50)]) == ()


@pytest.mark.parametrize("event", [{"xids": {"48": 1}}, {"num_other_processes": 1}], ids=["xid", "shared"])
@pytest.mark.parametrize(("place", "node"), [(1, "node-1"), (2, "node-2")])
def test_of_a_gang_the_node_with_the_gpu_is_named(place: int, node: str, event: dict[str, Any]) -> None:
    """Two nodes of two GPUs: the second GPU is the first node's, the third the second node's."""
    result = make_result("node-1", strategy="ddp", nodes=2, gpus_per_node=2, peers=("node-2",))
    one_of_each = tuple(
        gpu.model_copy(update={"index": number % 2, "uuid": f"GPU-{number}"} | (event if number == place else {}))
        for number, gpu in enumerate(result.telemetry.gpus * 2)
    )
    gang = result.model_copy(update={"telemetry": result.telemetry.model_copy(update={"gpus": one_of_each})})

    of_one_pod = gang.telemetry.model_copy(update={"gpus": (one_of_each[place],)})
    lost = gang.model_copy(update={"telemetry": of_one_pod, "status": Status.ERROR})
    assert [f.nodes for f in gpu_event_findings([lost])] == [("node-1",)], "whose pod it was is not known"
    (finding,) = gpu_event_findings([gang])
    assert (finding.nodes, f"GPU {place % 2}" in finding.summary) == ((node,), True)


H200 = "NVIDIA H200"


def test_a_healthy_gpu_has_shares_and_no_finding() -> None:
    """55.4 of 64 GB/s is 86.6 %; 780 of 989 TFLOP/s is 78.9 %."""
    shares = {share.rate: share for share in probe_shares(make_result())}

    assert set(shares) == set(KINDS)
    assert (shares["h2d_gb_per_s"].pct, shares["h2d_gb_per_s"].band) == (
        pytest.approx(86.5625), BANDS[H200]["h2d_gb_per_s"],
    )  # fmt: skip
    assert shares["matmul_bf16_tflops"].pct == pytest.approx(78.868, abs=1e-3)
    assert not list(odd_probe_findings([make_result(), make_cpu_result()]))


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


def test_of_a_gang_it_is_not_known_whose_gpu_is_the_slowest() -> None:
    gang = make_result(strategy="ddp", nodes=2, gpus_per_node=2, peers=("node-2",), h2d_gb_per_s=12.1)
    (finding,) = odd_probe_findings([gang])
    assert finding.headline.startswith("node-1 and node-2 have a GPU that is below what it promises: host-to-device")


def test_beside_other_work_that_is_the_cause() -> None:
    (finding, *_) = odd_probe_findings([make_result(num_other_processes=1, probes={"matmul_bf16_tflops": 400.0})])
    assert finding.cause == "1 other process on GPU 0"


def test_each_independent_gpu_is_looked_at_by_itself() -> None:
    """By the UUID that it names, whatever the number of its rank."""
    result = make_result(strategy="independent", gpus_per_node=2)
    slow = make_probes(H200, {"memory_gb_per_s": 2400.0})
    uuids = [rank.gpu_uuid for rank in result.ranks][::-1]
    ranks = tuple(
        rank.model_copy(update={"gpu_uuid": uuid, "probes": result.probes if rank.rank else slow})
        for rank, uuid in zip(result.ranks, uuids, strict=True)
    )

    (finding,) = odd_probe_findings([result.model_copy(update={"ranks": ranks})])
    assert "GPU 1 (GPU-node-1-1): GPU memory 2,400 GB/s is 50 % of the data sheet's 4800" in finding.summary


def test_a_kind_of_gpu_that_was_never_measured_is_odd_far_below_all_bands_only() -> None:
    """Half of 59 % is 29.5 %: 9.4 of 32 GB/s is 29.4 %, 9.5 is 29.7 %."""
    a100 = "NVIDIA A100-SXM4-80GB"

    assert not list(odd_probe_findings([make_result(gpu_name=a100, h2d_gb_per_s=9.5)]))
    (finding,) = odd_probe_findings([make_result(gpu_name=a100, h2d_gb_per_s=9.4)])
    assert "is 29 % of the data sheet's 32" in finding.summary


@pytest.mark.parametrize(("h2d_gb_per_s", "is_odd"), [(37.76, False), (37.75, True)])
def test_a_share_at_the_edge_of_its_band_is_usual(h2d_gb_per_s: float, is_odd: bool) -> None:
    """59 % of 64 GB/s is 37.76."""
    assert bool(list(odd_probe_findings([make_result(h2d_gb_per_s=h2d_gb_per_s)]))) is is_odd


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
    assert len(seen["peer_gb_per_s"]) == 36
    assert min(seen["peer_gb_per_s"]) == pytest.approx(43.8, abs=0.1)  # once, of four that copied at the same time
    seen["peer_gb_per_s"].remove(min(seen["peer_gb_per_s"]))
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

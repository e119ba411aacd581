"""What GPUs said in a campaign: one finding for each node and kind, red where the GPU is broken."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.result import RunResult, Status
from tests.builders import make_cpu_result, make_failed, make_result
from trainbench.core.verdicts import Level
from trainbench.judging.gpu_events import SOURCE, XIDS, broken_gpu_findings, gpu_event_findings, xid


def said(node: str = "node-1", **events: Any) -> RunResult:
    return make_result(node, events=events)


def test_silent_gpus_cpus_and_results_of_0_1_have_no_findings() -> None:
    nothing = dict.fromkeys(("xids", "row_remap_failed", "nvlink_replays", "nvlink_crc_errors", "pcie_replays"))
    assert gpu_event_findings([make_result(), make_cpu_result(), make_failed(), said(**nothing)]) == ()


def test_an_xid_of_a_broken_gpu_is_red_with_its_meaning_and_next_step() -> None:
    (finding,) = gpu_event_findings([make_result("node-2"), said("node-3", xids={"79": 1})])

    assert (finding.level, finding.category, finding.nodes) == (Level.ERROR, "xid", ("node-3",))
    assert finding.text == (
        "node-3 reported Xid 79 on GPU 0 (GPU-node-3-0), 1 time. Xid 79: the GPU has fallen off the bus"
    )
    assert finding.resolution.startswith("drain the node and restart the machine")
    assert broken_gpu_findings([said("node-3", xids={"79": 1})]) == (finding,)


def test_of_several_runs_of_a_node_an_xid_is_one_finding() -> None:
    """One run has it twice, the re-run once: 3 times."""
    (finding,) = gpu_event_findings([said(xids={"94": 2}), said(xids={"94": 1})])

    assert (finding.level, finding.category, finding.measured) == (Level.WARNING, "xid", "Xid 94, 3 times")


def test_an_xid_that_the_table_lacks_leads_to_the_catalogue() -> None:
    (finding,) = gpu_event_findings([said(xids={"999": 1})])

    assert (finding.level, finding.category) == (Level.WARNING, "xid")
    assert SOURCE in finding.resolution


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


def test_every_xid_has_a_meaning_and_a_next_step() -> None:
    assert all(row.meaning and row.next_step for row in XIDS.values())


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


def test_corrected_memory_errors_are_evidence_only() -> None:
    assert gpu_event_findings([said(ecc_corrected_in_run=50)]) == ()


@pytest.mark.parametrize(("place", "node"), [(1, "node-1"), (2, "node-2")])
def test_of_a_gang_the_node_with_the_gpu_is_named(place: int, node: str) -> None:
    """Two nodes of two GPUs: the second GPU is the first node's, the third the second node's."""
    result = make_result("node-1", strategy="ddp", nodes=2, gpus_per_node=2, peers=("node-2",))
    one_of_each = tuple(
        gpu.model_copy(
            update={"index": number % 2, "uuid": f"GPU-{number}", "xids": {"48": 1} if number == place else {}}
        )
        for number, gpu in enumerate(result.telemetry.gpus * 2)
    )
    gang = result.model_copy(update={"telemetry": result.telemetry.model_copy(update={"gpus": one_of_each})})

    of_one_pod = gang.telemetry.model_copy(update={"gpus": (one_of_each[place],)})
    lost = gang.model_copy(update={"telemetry": of_one_pod, "status": Status.ERROR})
    assert [f.nodes for f in gpu_event_findings([lost])] == [("node-1",)], "whose pod it was is not known"
    (finding,) = gpu_event_findings([gang])
    assert (finding.nodes, f"(GPU-{place})" in finding.summary) == ((node,), True)

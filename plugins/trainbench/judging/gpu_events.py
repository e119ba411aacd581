"""What the GPUs said in a campaign's runs: Xids, memory faults, errors of links, and who else used them.

A finding for each node and kind of event. The one of Level.ERROR means a broken GPU: the node is red with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from bench_image.contract.result import RunResult
from bench_image.contract.result_sections import GpuTelemetry
from trainbench.core.formats import count, listing
from trainbench.core.grouping import grouped
from trainbench.core.verdicts import Finding, Level, Why, gpu_title
from trainbench.judging.xids import RESET, WATCH, xid
from trainbench.pods.gangs import failed_rank, nodes_of
from trainbench.results.readings import shared_by

# Categories that mean a broken GPU; stable: judgement and scripts match on them.
XID, ROW_REMAP_FAILED = "xid", "row_remap_failed"
BROKEN_GPU = frozenset({XID, ROW_REMAP_FAILED})
# Of what needs a look.
XID_NOTED, ECC_UNCORRECTED, ROWS_REMAPPED = "xid_noted", "ecc_uncorrected", "rows_remapped"
NVLINK_ERRORS, PCIE_REPLAYS, SHARED_GPU = "nvlink_errors", "pcie_replays", "shared_gpu"

# As in DCGM's health checks (dcgm_gpu_hardware_limits): one replay of an NVLink counts, CRC errors and PCIe replays
# only at a rate, because the link corrects them.
MAX_CRC_ERRORS_PER_S = 100.0
MAX_PCIE_REPLAYS_PER_MIN = 8.0

Event = tuple[str, GpuTelemetry, RunResult]  # node, GPU, run


EXCHANGE = "drain the node and have the GPU exchanged"


def gpu_event_findings(results: Sequence[RunResult]) -> tuple[Finding, ...]:
    """The findings on all runs, failed ones too; of one node and kind one finding. Empty where every GPU was silent."""
    events = [event for result in results for event in _events(result)]
    return tuple(
        chain(_xids(events), _memory_faults(events), _replaced_rows(events), _link_errors(events), _shared(results))
    )


def broken_gpu_findings(results: Sequence[RunResult]) -> tuple[Finding, ...]:
    """Those that mean a broken GPU."""
    return tuple(finding for finding in gpu_event_findings(results) if finding.category in BROKEN_GPU)


def _events(result: RunResult) -> Iterator[Event]:
    """Each GPU of the run with its node."""
    nodes, gpus = nodes_of(result.spec), result.telemetry.gpus
    for position, gpu in enumerate(gpus):
        # A gang that failed has the GPUs of one pod only.
        is_whole = len(gpus) == result.spec.placement.world_size
        rank = position // result.spec.placement.gpus_per_node if is_whole else failed_rank(result) or 0
        yield nodes[min(rank, len(nodes) - 1)], gpu, result


def _xids(events: Sequence[Event]) -> Iterator[Finding]:
    seen = grouped(
        ((node, int(code)), (gpu, times))
        for node, gpu, _ in events
        for code, times in (gpu.xids or {}).items()
        if code.isdecimal()
    )
    for (node, code), of_gpus in seen.items():
        meaning = xid(code)
        times = sum(times for _, times in of_gpus)
        yield Finding(
            level=meaning.level,
            category=XID if meaning.level is Level.ERROR else XID_NOTED,
            why=Why.BROKEN_GPU if meaning.level is Level.ERROR else None,
            nodes=(node,),
            measured=f"Xid {code}, {count(times, 'time')}",
            expected="no Xid",
            summary=f"reported Xid {code} on {_names(gpu for gpu, _ in of_gpus)}, {count(times, 'time')}",
            cause=f"Xid {code}: {meaning.meaning}",
            resolution=meaning.next_step,
        )


def _memory_faults(events: Sequence[Event]) -> Iterator[Finding]:
    for node, gpus in grouped((node, gpu) for node, gpu, _ in events).items():
        failed = [gpu for gpu in gpus if gpu.row_remap_failed]
        uncorrected = [gpu for gpu in gpus if gpu.ecc_uncorrected_in_run]
        if failed:
            yield Finding(
                level=Level.ERROR,
                category=ROW_REMAP_FAILED,
                why=Why.BROKEN_GPU,
                nodes=(node,),
                measured="a row that could not be replaced",
                expected="none",
                summary=f"could not replace a faulty row in the memory of {_names(failed)}",
                cause="the GPU's memory has faults, and no spare rows are left where they are",
                resolution=EXCHANGE,
            )
        if uncorrected:
            errors = count(sum(gpu.ecc_uncorrected_in_run or 0 for gpu in uncorrected), "uncorrected memory error")
            yield Finding(
                level=Level.WARNING,
                category=ECC_UNCORRECTED,
                nodes=(node,),
                measured=errors,
                expected="0",
                summary=f"had {errors} in its runs on {_names(uncorrected)}",
                cause="the GPU's memory has faults, and what was computed with it may be wrong",
                resolution=RESET,
            )


def _replaced_rows(events: Sequence[Event]) -> Iterator[Finding]:
    for node, gpus in grouped((node, gpu) for node, gpu, _ in events).items():
        remapped = [gpu for gpu in gpus if gpu.rows_remapped_in_run or gpu.row_remap_pending]
        if remapped:
            rows = count(sum(gpu.rows_remapped_in_run or 0 for gpu in remapped), "row")
            waits = ", and one waits for a reset of the GPU" if any(gpu.row_remap_pending for gpu in remapped) else ""
            yield Finding(
                level=Level.WARNING,
                category=ROWS_REMAPPED,
                nodes=(node,),
                measured=f"{rows} replaced{waits}",
                expected="0",
                summary=f"has faulty rows in the memory of {_names(remapped)}: {rows} replaced{waits}",
                cause="the GPU's memory wears; spare rows take the place of faulty ones",
                resolution=WATCH,
            )


def _link_errors(events: Sequence[Event]) -> Iterator[Finding]:
    for node, of_node in grouped((event[0], event) for event in events).items():
        nvlink = [event for event in of_node if _has_nvlink_errors(event)]
        pcie = [event for event in of_node if _pcie_replays_per_min(event) > MAX_PCIE_REPLAYS_PER_MIN]
        if nvlink:
            replays = sum(gpu.nvlink_replays or 0 for _, gpu, _ in nvlink)
            crc = sum(gpu.nvlink_crc_errors or 0 for _, gpu, _ in nvlink)
            measured = f"{count(replays, 'replay')} and {count(crc, 'CRC error')} of NVLinks"
            yield Finding(
                level=Level.WARNING,
                category=NVLINK_ERRORS,
                nodes=(node,),
                measured=measured,
                expected=f"no replay, and less than {MAX_CRC_ERRORS_PER_S:g} CRC errors a second",
                summary=f"had {measured} in its runs on {_names(gpu for _, gpu, _ in nvlink)}",
                cause="a link between GPUs, or the device at its other end, is faulty",
                resolution="look at the links with nvidia-smi nvlink -e, and reset the GPUs of both ends",
            )
        if pcie:
            worst = max(map(_pcie_replays_per_min, pcie))
            yield Finding(
                level=Level.WARNING,
                category=PCIE_REPLAYS,
                nodes=(node,),
                measured=f"{worst:.0f} PCIe replays a minute",
                expected=f"at most {MAX_PCIE_REPLAYS_PER_MIN:g}",
                summary=f"repeated {worst:.0f} PCIe transfers a minute on {_names(gpu for _, gpu, _ in pcie)}",
                cause="the GPU's PCIe link is disturbed",
                resolution="seat the GPU and its riser anew, then try another slot",
            )


def _has_nvlink_errors(event: Event) -> bool:
    _, gpu, run = event
    return bool(gpu.nvlink_replays) or (gpu.nvlink_crc_errors or 0) >= MAX_CRC_ERRORS_PER_S * _seconds(run)


def _pcie_replays_per_min(event: Event) -> float:
    _, gpu, run = event
    return 60 * (gpu.pcie_replays or 0) / _seconds(run)


def _seconds(run: RunResult) -> float:
    return max(1.0, (run.finished_at - run.started_at).total_seconds())


def _shared(results: Sequence[RunResult]) -> Iterator[Finding]:
    for node, runs in grouped((result.spec.identity.node, result) for result in results).items():
        known = [(run, shared) for run in runs if (shared := shared_by(run))]
        if known:
            _, worst = max(known, key=lambda pair: (pair[1].memory_gb or 0.0, pair[1].num_processes or 0))
            yield Finding(
                level=Level.WARNING,
                category=SHARED_GPU,
                nodes=(node,),
                measured=worst.sentence,
                expected="nobody else on the GPU",
                summary=f"was not alone in {count(len(known), 'run')} of {len(runs)}: {worst.sentence}",
                cause="other work ran on the same GPU, so the speed says nothing about the machine",
                resolution="find the processes with nvidia-smi on the node, stop what does not belong, and repeat",
            )


def _names(gpus: Iterable[GpuTelemetry]) -> str:
    return listing(dict.fromkeys(gpu_title(gpu.index, gpu.uuid) for gpu in gpus))

"""What the GPUs of a campaign's runs say of themselves: Xids, memory faults, errors of links, who else used them; and
their probes beside the data sheet, with the band in which healthy GPUs of their kind lie.

A finding for each node and kind of event. The one of Level.ERROR means a broken GPU: the node is red with it.
`gpu_checks.toml` says what each Xid means, from NVIDIA's catalogue (SOURCE), and has the bands.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import chain
from typing import NamedTuple

from bench_image.contract.gpu_specs import data_sheet
from bench_image.contract.result import RunResult
from bench_image.contract.result_sections import GpuTelemetry, Probes, share_field
from trainbench.core.formats import capitalised, count, figure, listing
from trainbench.core.grouping import grouped
from trainbench.core.verdicts import Finding, Level, Why, gpu_title
from trainbench.judging.node_runs import by_gpu
from trainbench.pods.gangs import failed_rank
from trainbench.results.readings import gpu_name, shared_by, shared_gpus

SOURCE = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"


class Xid(NamedTuple):
    level: Level
    meaning: str  # "the GPU has ..." or "an uncorrectable ..."
    next_step: str


class Band(NamedTuple):
    """Share of the data sheet in percent that healthy GPUs of a kind reach. `source`: their result files."""

    low_pct: float
    high_pct: float
    source: str


_FACTS = tomllib.loads(files("trainbench.judging").joinpath("gpu_checks.toml").read_text(encoding="utf-8"))
NEXT_STEPS: Mapping[str, str] = _FACTS["next_step"]
XIDS: Mapping[int, Xid] = {
    int(code): Xid(Level(row["level"]), row["meaning"], NEXT_STEPS[row["next_step"]])
    for code, row in _FACTS["xid"].items()
}
BANDS: Mapping[str, Mapping[str, Band]] = {
    gpu: {rate: Band(**band) for rate, band in bands.items()} for gpu, bands in _FACTS["band"].items()
}
# Of a kind of GPU that was never measured, a share counts as odd only below this part of the least that is usual on
# those that were.
UNMEASURED_PART = 0.5


def xid(code: int) -> Xid:
    """The table's row, or a warning that names NVIDIA's catalogue."""
    return XIDS.get(code) or Xid(Level.WARNING, "not in this version's table", f"look it up at {SOURCE}")


# As in DCGM's health checks (dcgm_gpu_hardware_limits): one replay of an NVLink counts, CRC errors and PCIe replays
# only at a rate, because the link corrects them. An uncorrected memory error is a failure there; of one that a single
# program had to itself (Xid 94) NVIDIA's catalogue says that the GPU may go on until its next reset.
CONTAINED = "94"
MAX_CRC_ERRORS_PER_S = 100.0
MAX_PCIE_REPLAYS_PER_MIN = 8.0

Event = tuple[str, GpuTelemetry, RunResult]  # node, GPU, run


def gpu_event_findings(results: Sequence[RunResult]) -> tuple[Finding, ...]:
    """The findings on all runs, failed ones too; of one node and kind one finding. Empty where every GPU was silent."""
    events = [event for result in results for event in _events(result)]
    of_nodes = grouped((event[0], event) for event in events)
    looks = (_memory_faults, _link_errors, _shared)
    return tuple(chain(_xids(events), *(look(node, of_node) for node, of_node in of_nodes.items() for look in looks)))


def broken_gpu_findings(results: Sequence[RunResult]) -> tuple[Finding, ...]:
    """Those that mean a broken GPU."""
    return tuple(finding for finding in gpu_event_findings(results) if finding.why is Why.BROKEN_GPU)


def _events(result: RunResult) -> Iterator[Event]:
    """Each GPU of the run with its node."""
    nodes, gpus = result.spec.identity.nodes, result.telemetry.gpus
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
        if times and code.isdecimal()
    )
    for (node, code), of_gpus in seen.items():
        meaning, times = xid(code), count(sum(times for _, times in of_gpus), "time")
        yield _finding(
            node,
            "xid",
            f"Xid {code}, {times}",
            expected="no Xid",
            summary=f"reported Xid {code} on {_names(gpu for gpu, _ in of_gpus)}, {times}",
            cause=capitalised(meaning.meaning),
            resolution=meaning.next_step,
            level=meaning.level,
        )


def _memory_faults(node: str, events: Sequence[Event]) -> Iterator[Finding]:
    gpus = [gpu for _, gpu, _ in events]
    if failed := [gpu for gpu in gpus if gpu.row_remap_failed]:
        yield _finding(
            node,
            "row_remap_failed",
            "a row that could not be replaced",
            expected="none",
            summary=f"could not replace a faulty row in the memory of {_names(failed)}",
            cause="The GPU's memory has faults, and no spare rows are left where they are",
            resolution="drain the node and have the GPU exchanged",
            level=Level.ERROR,
        )
    faulty = [gpu for gpu in gpus if gpu.ecc_uncorrected_in_run]
    contained = [gpu for gpu in faulty if CONTAINED in (gpu.xids or {})]
    for level, of_kind in ((Level.ERROR, [gpu for gpu in faulty if gpu not in contained]), (Level.WARNING, contained)):
        if of_kind:
            errors = count(sum(gpu.ecc_uncorrected_in_run or 0 for gpu in of_kind), "uncorrected memory error")
            yield _finding(
                node,
                "ecc_uncorrected",
                errors,
                expected="0",
                summary=f"had {errors} (ECC) in its runs on {_names(of_kind)}",
                cause="The GPU's memory has faults, and what was computed with it may be wrong",
                resolution=NEXT_STEPS["reset" if level is Level.ERROR else "watch"],
                level=level,
            )
    if remapped := [gpu for gpu in gpus if gpu.rows_remapped_in_run or gpu.row_remap_pending]:
        rows = count(sum(gpu.rows_remapped_in_run or 0 for gpu in remapped), "row")
        waits = ", and one waits for a reset of the GPU" if any(gpu.row_remap_pending for gpu in remapped) else ""
        yield _finding(
            node,
            "rows_remapped",
            f"{rows} replaced{waits}",
            expected="0",
            summary=f"has faulty rows in the memory of {_names(remapped)}: {rows} replaced{waits}",
            cause="The GPU's memory wears; spare rows take the place of faulty ones",
            resolution=NEXT_STEPS["watch"],
        )


def _link_errors(node: str, events: Sequence[Event]) -> Iterator[Finding]:
    crc_per_s = [((gpu.nvlink_crc_errors or 0) / _seconds(run), gpu) for _, gpu, run in events]
    if nvlink := [gpu for rate, gpu in crc_per_s if gpu.nvlink_replays or rate >= MAX_CRC_ERRORS_PER_S]:
        replays = count(sum(gpu.nvlink_replays or 0 for gpu in nvlink), "replay")
        measured = f"{replays} and {count(sum(gpu.nvlink_crc_errors or 0 for gpu in nvlink), 'CRC error')} of NVLinks"
        yield _finding(
            node,
            "nvlink_errors",
            measured,
            expected=f"no replay, and less than {MAX_CRC_ERRORS_PER_S:g} CRC errors a second",
            summary=f"had {measured} in its runs on {_names(nvlink)}",
            cause="A link between GPUs, or the device at its other end, is faulty",
            resolution="look at the links with nvidia-smi nvlink -e, and reset the GPUs of both ends",
        )
    per_min = [(60 * (gpu.pcie_replays or 0) / _seconds(run), gpu) for _, gpu, run in events]
    if pcie := [(rate, gpu) for rate, gpu in per_min if rate > MAX_PCIE_REPLAYS_PER_MIN]:
        worst = f"{max(rate for rate, _ in pcie):.0f} PCIe"
        yield _finding(
            node,
            "pcie_replays",
            f"{worst} replays a minute",
            expected=f"at most {MAX_PCIE_REPLAYS_PER_MIN:g}",
            summary=f"repeated {worst} transfers a minute on {_names(gpu for _, gpu in pcie)}",
            cause="The GPU's PCIe link is disturbed",
            resolution="seat the GPU and its riser anew, then try another slot",
        )


def _seconds(run: RunResult) -> float:
    return max(1.0, (run.finished_at - run.started_at).total_seconds())


def _shared(node: str, events: Sequence[Event]) -> Iterator[Finding]:
    runs = grouped((id(run), gpu) for _, gpu, run in events).values()
    if shared := [found for gpus in runs if (found := shared_gpus(gpus))]:
        worst = max(shared, key=lambda each: each.size)
        yield _finding(
            node,
            "shared_gpu",
            worst.sentence,
            expected="nobody else on the GPU",
            summary=f"was not alone in {count(len(shared), 'run')} of {len(runs)}: {worst.sentence}",
            cause="Other work ran on the same GPU, so the speed says nothing about the machine",
            resolution="find the processes with nvidia-smi on the node, stop what does not belong, and repeat",
        )


def _finding(node: str, category: str, measured: str, *, level: Level = Level.WARNING, **words: str) -> Finding:
    why = Why.BROKEN_GPU if level is Level.ERROR else None
    return Finding(level=level, category=category, why=why, nodes=(node,), measured=measured, **words)


def _names(gpus: Iterable[GpuTelemetry]) -> str:
    return listing(dict.fromkeys(gpu_title(gpu.index, gpu.uuid) for gpu in gpus))


PROBE_ODD = "probe_odd"


class _Kind(NamedTuple):
    label: str
    unit: str
    cause: str
    next_step: str


_LINK_CAUSE = "The PCIe link runs with fewer lanes or an older generation, or the host's memory is busy or far away"
_LINK_STEP = "compare lspci -vv and nvidia-smi -q -d PCIE with a peer's, and look for other load on the host"
_UNITS_CAUSE = "The GPU's clock is low, it is hot or short of power, or its units are faulty"
_UNITS_STEP = "look at clocks, temperature and power limit, then run dcgmi diag -r 3 on the node"
KINDS: Mapping[str, _Kind] = {
    "h2d_gb_per_s": _Kind("host-to-device copy", "GB/s", _LINK_CAUSE, _LINK_STEP),
    "d2h_gb_per_s": _Kind("device-to-host copy", "GB/s", _LINK_CAUSE, _LINK_STEP),
    "memory_gb_per_s": _Kind(
        "GPU memory", "GB/s", "The memory's clock is low, or its rows are faulty",
        "look at the memory's clock and remapped rows (nvidia-smi -q), then run dcgmi diag -r 3",
    ),
    "peer_gb_per_s": _Kind(
        "GPU-to-GPU copy", "GB/s", "An NVLink is down, or copies go over PCIe or the host",
        "look at nvidia-smi topo -m and nvidia-smi nvlink -s",
    ),
    "matmul_bf16_tflops": _Kind("bf16 matmul", "TFLOP/s", _UNITS_CAUSE, _UNITS_STEP),
    "matmul_fp8_tflops": _Kind("8-bit matmul", "TFLOP/s", _UNITS_CAUSE, _UNITS_STEP),
}  # fmt: skip


class ProbeShare(NamedTuple):
    """One probe of a run, or of one GPU of it. `band` None: no GPU of this kind was measured."""

    rate: str  # field of Probes
    value: float
    promised: float  # by the data sheet
    pct: float
    band: Band | None
    gpu: str | None = None  # of an independent rank

    @property
    def is_low(self) -> bool:
        """Below its band; of a kind that was never measured far below all bands."""
        if self.band:
            return self.pct < self.band.low_pct
        usual = [bands[self.rate].low_pct for bands in BANDS.values() if self.rate in bands]
        return bool(usual) and self.pct < UNMEASURED_PART * min(usual)

    @property
    def sentence(self) -> str:
        """ "host-to-device copy 12.1 GB/s is 19 % of the data sheet's 64, usual 59 to 91 %"."""
        kind = KINDS[self.rate]
        usual = f", usual {self.band.low_pct:.0f} to {self.band.high_pct:.0f} %" if self.band else ""
        value = f"{figure(self.value, 3)} {kind.unit}"
        return f"{kind.label} {value} is {self.pct:.0f} % of the data sheet's {self.promised:g}{usual}"


def probe_shares(result: RunResult) -> tuple[ProbeShare, ...]:
    """The run's probes that its GPU's data sheet knows: of the slowest GPU, or of each independent rank."""
    name = gpu_name(result)
    if name is None:
        return ()
    promised, bands = data_sheet(name), BANDS.get(name, {})
    parts = by_gpu(result).items()
    own: Mapping[str | None, Probes] = {gpu_title(place.index, place.uuid): part.probes for place, part in parts}
    return tuple(
        ProbeShare(rate, getattr(probes, rate), promised[rate], pct, bands.get(rate), gpu)
        for gpu, probes in (own or {None: result.probes}).items()
        for rate in KINDS
        if rate in promised and (pct := getattr(probes, share_field(rate))) is not None
    )


def odd_probe_findings(results: Sequence[RunResult]) -> Iterator[Finding]:
    """A warning for each node, GPU and probe that is below its usual band; of several runs the lowest counts. Of a gang
    only the slowest GPU is known, and not on which node it is.
    """
    low = grouped(
        ((result.spec.identity.nodes, share.gpu, share.rate), (share, result))
        for result in results
        for share in probe_shares(result)
        if share.is_low
    )
    for (nodes, gpu, rate), seen in low.items():
        share, result = min(seen, key=lambda pair: pair[0].pct)
        band, kind, shared = share.band, KINDS[rate], shared_by(result)
        promises = "is below what its GPU promises" if len(nodes) == 1 else "have a GPU that is below what it promises"
        yield Finding(
            level=Level.WARNING,
            category=PROBE_ODD,
            nodes=nodes,
            measured=f"{share.pct:.0f} % of the data sheet",
            expected=f"{band.low_pct:.0f} to {band.high_pct:.0f} %" if band else "half of what is usual elsewhere",
            summary=f"{promises}{f', {gpu}' if gpu else ''}: {share.sentence}",
            cause=shared.sentence if shared else kind.cause,
            resolution="repeat it when the GPU is alone" if shared else kind.next_step,
        )

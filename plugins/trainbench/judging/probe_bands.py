"""The probes of a GPU beside its data sheet, and the band in which healthy GPUs of its kind lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench_image.contract.gpu_specs import data_sheet
from bench_image.contract.result import RunResult
from bench_image.contract.result_sections import Probes, share_field
from trainbench.core.formats import figure
from trainbench.core.grouping import grouped
from trainbench.core.verdicts import Finding, Level, gpu_title
from trainbench.results.readings import gpu_name, shared_by

PROBE_ODD = "probe_odd"


class Band(NamedTuple):
    """Share of the data sheet in percent: what healthy GPUs reached, and 5 % of it more on each side, because GPUs of
    one kind differ by so much. `source`: their result files.
    """

    low_pct: float
    high_pct: float
    source: str


ALL_H200 = "docs/results/**/result.json, of NVIDIA H200"
PROBED = "docs/results/probes-h200-2026-11-23"
TWO_GPUS = "docs/results/two-gpus-h200-2026-11-28"
# One GPU alone and up to four of a host at once, which share its memory: hence the width of host-to-device. What was
# measured of device-to-host was one GPU; it has the same link, and the same band.
H200_LINK = Band(59.0, 91.0, ALL_H200)
BANDS: Mapping[str, Mapping[str, Band]] = {
    "NVIDIA H200": {
        "h2d_gb_per_s": H200_LINK,
        "d2h_gb_per_s": H200_LINK,
        "memory_gb_per_s": Band(77.5, 90.0, PROBED),
        "peer_gb_per_s": Band(65.5, 90.5, TWO_GPUS),  # two of a host, both directions of 18 NVLinks at once
        "matmul_bf16_tflops": Band(69.5, 86.0, ALL_H200),
        "matmul_fp8_tflops": Band(67.0, 80.5, PROBED),
    },
}
# Of a kind of GPU that was never measured, a share counts as odd only below this part of the least that is usual on
# those that were.
UNMEASURED_PART = 0.5


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
    own = [(gpu_title(rank.rank, rank.gpu_uuid), rank.probes) for rank in result.ranks if rank.probes]
    measured: Sequence[tuple[str | None, Probes]] = own or [(None, result.probes)]
    return tuple(
        ProbeShare(rate, getattr(probes, rate), promised[rate], pct, bands.get(rate), gpu)
        for gpu, probes in measured
        for rate in KINDS
        if rate in promised and (pct := getattr(probes, share_field(rate))) is not None
    )


def odd_probe_findings(results: Sequence[RunResult]) -> tuple[Finding, ...]:
    """A warning for each node, GPU and probe that is below its usual band; of several runs the lowest counts."""
    low = grouped(
        ((result.spec.identity.node, share.gpu, share.rate), (share, result))
        for result in results
        for share in probe_shares(result)
        if share.is_low
    )
    return tuple(_finding(node, min(seen, key=lambda pair: pair[0].pct)) for (node, _, _), seen in low.items())


def _finding(node: str, seen: tuple[ProbeShare, RunResult]) -> Finding:
    share, result = seen
    shared = shared_by(result)
    kind = KINDS[share.rate]
    expected = (
        f"{share.band.low_pct:.0f} to {share.band.high_pct:.0f} %" if share.band else "half of what is usual elsewhere"
    )
    return Finding(
        level=Level.WARNING,
        category=PROBE_ODD,
        nodes=(node,),
        measured=f"{share.pct:.0f} % of the data sheet",
        expected=expected,
        summary=f"is below what its GPU promises{f', {share.gpu}' if share.gpu else ''}: {share.sentence}",
        cause=shared.sentence if shared else kind.cause,
        resolution="repeat it when the GPU is alone" if shared else kind.next_step,
    )

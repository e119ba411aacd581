"""What sets a node apart from its peers and could explain its verdict: one clue for each cause, strongest first."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

from bench_image.contract import Frozen, Gpu, GpuTelemetry, RunResult

# Shares of the measured window; below these a throttle class or stolen CPU time cannot cost 5 %.
MIN_THROTTLE_SHARE_PCT = 5.0
MIN_STEAL_PCT = 5.0
# Published copy rates of eight links of one host lie within 0.2 %; the gaps below are several times what fleets show.
MIN_CLOCK_GAP_PCT = 3.0
MIN_H2D_GAP_PCT = 10.0
_THERMAL = ("thermal", "hw_slowdown")
_POWER = ("power_cap", "power_brake")


class Clue(Frozen):
    """`category` is a stable word; the rest is for people."""

    category: str
    measured: str
    expected: str
    cause: str
    resolution: str


def clues(own: Sequence[RunResult], peers: Sequence[RunResult]) -> tuple[Clue, ...]:
    """`own`: the node's valid runs, `peers`: those of the other nodes of its group. Strongest evidence first."""
    return tuple(clue for look in _LOOKS for clue in look(own, peers))


def _drill(own: Sequence[RunResult], _: Sequence[RunResult]) -> Iterator[Clue]:
    drill = next((run.spec.drill for run in own if run.spec.drill), None)
    if drill:
        yield Clue(
            category="drill",
            measured=f"slowed by {drill.slowdown_pct:g} %",
            expected="found by the checks",
            cause=f"this is a drill: the node was slowed on purpose by {drill.slowdown_pct:g} %",
            resolution="nothing to repair: the checks work",
        )


def _ecc(own: Sequence[RunResult], peers: Sequence[RunResult]) -> Iterator[Clue]:
    errors = _worst(own, lambda gpu: gpu.ecc_uncorrected)
    rows = _worst(own, lambda gpu: gpu.remapped_rows)
    if errors or (rows and rows > (_worst(peers, lambda gpu: gpu.remapped_rows) or 0)):
        yield Clue(
            category="ecc_errors",
            measured=f"{errors or 0:g} uncorrected errors, {rows or 0:g} remapped rows",
            expected="0",
            cause="the GPU's memory has faults",
            resolution="drain the node, reset the GPU, and have it exchanged if the count grows",
        )


def _other_processes(own: Sequence[RunResult], _: Sequence[RunResult]) -> Iterator[Clue]:
    others = _worst(own, lambda gpu: gpu.num_other_processes)
    if others:
        yield Clue(
            category="other_processes",
            measured=f"{others:g} other processes on the GPU",
            expected="0",
            cause="other work ran on the same GPU",
            resolution="find the processes with nvidia-smi on the node, stop what does not belong there, and repeat",
        )


def _throttling(own: Sequence[RunResult], peers: Sequence[RunResult]) -> Iterator[Clue]:
    causes = (
        (
            "thermal_throttling",
            _THERMAL,
            "the GPU was too hot and slowed itself down",
            "check fans, air flow and inlet",
        ),
        (
            "power_capping",
            _POWER,
            "the GPU ran into its power limit",
            "compare power limits and supplies with its peers",
        ),
    )
    for category, classes, cause, resolution in causes:
        share, usual = _throttle_share(own, classes), _throttle_share(peers, classes) or 0.0
        if share is not None and share - usual >= MIN_THROTTLE_SHARE_PCT:
            yield Clue(
                category=category,
                measured=f"{share:.0f} % of the time",
                expected=f"{usual:.0f} % as on its peers",
                cause=f"{cause} for {share:.0f} % of the time",
                resolution=resolution,
            )


def _clock(own: Sequence[RunResult], peers: Sequence[RunResult]) -> Iterator[Clue]:
    gap = _gap(own, peers, lambda run: _lowest(gpu.sm_clock_mean_mhz for gpu in run.telemetry.gpus))
    if gap and gap[2] <= -MIN_CLOCK_GAP_PCT:
        yield Clue(
            category="low_clock",
            measured=f"{gap[0]:.0f} MHz",
            expected=f"{gap[1]:.0f} MHz as on its peers",
            cause=f"the SM clock is {-gap[2]:.1f} % below its peers'",
            resolution="look for locked clocks, another power limit or persistence mode off (nvidia-smi -q -d CLOCK)",
        )


def _pcie(own: Sequence[RunResult], peers: Sequence[RunResult]) -> Iterator[Clue]:
    link, usual = _link(own), _link(peers)
    best = _best_link(own) or usual
    if link and best and (link[1] < best[1] or (usual and link < usual)):
        yield Clue(
            category="pcie_degraded",
            measured=f"PCIe {link[0]} x{link[1]}",
            expected=f"PCIe {best[0]} x{best[1]}",
            cause="the GPU's PCIe link is narrower or slower than it should be",
            resolution="reseat the GPU or its riser, and check the slot's bifurcation in the firmware",
        )


def _h2d(own: Sequence[RunResult], peers: Sequence[RunResult]) -> Iterator[Clue]:
    gap = _gap(own, peers, lambda run: run.probes.h2d_gb_per_s)
    if gap and gap[2] <= -MIN_H2D_GAP_PCT:
        yield Clue(
            category="slow_host_to_device",
            measured=f"{gap[0]:.1f} GB/s",
            expected=f"{gap[1]:.1f} GB/s as on its peers",
            cause=f"copies from host to GPU are {-gap[2]:.0f} % slower than on its peers",
            resolution="check the PCIe link, NUMA placement and the host's memory channels",
        )


def _steal(own: Sequence[RunResult], peers: Sequence[RunResult]) -> Iterator[Clue]:
    share = _median(own, lambda run: run.telemetry.host.cpu_steal_pct)
    usual = _median(peers, lambda run: run.telemetry.host.cpu_steal_pct) or 0.0
    if share is not None and share - usual >= MIN_STEAL_PCT:
        yield Clue(
            category="cpu_steal",
            measured=f"{share:.0f} % stolen",
            expected=f"{usual:.0f} % as on its peers",
            cause=f"the host gave {share:.0f} % of this machine's CPU time to others",
            resolution="move the node to a quieter host, or use dedicated CPUs",
        )


def _versions(own: Sequence[RunResult], peers: Sequence[RunResult]) -> Iterator[Clue]:
    mine, usual = _common_versions(own), _common_versions(peers)
    differ = sorted(name for name in mine.keys() & usual.keys() if mine[name] != usual[name])
    if differ:
        yield Clue(
            category="versions_differ",
            measured=", ".join(f"{name} {mine[name]}" for name in differ),
            expected=", ".join(f"{name} {usual[name]}" for name in differ),
            cause=f"{', '.join(differ)} differ{'s' if len(differ) == 1 else ''} from its peers",
            resolution="bring the node to its peers' versions and repeat",
        )


# Strongest first: what is surely wrong, then what is likely the cause, then what merely differs.
_LOOKS = (_drill, _ecc, _other_processes, _throttling, _pcie, _clock, _h2d, _steal, _versions)


def _worst(runs: Sequence[RunResult], read: Callable[[GpuTelemetry], float | None]) -> float | None:
    values = (read(gpu) for run in runs for gpu in run.telemetry.gpus)
    return max((value for value in values if value is not None), default=None)


def _lowest(values: Iterator[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _median(runs: Sequence[RunResult], read: Callable[[RunResult], float | None]) -> float | None:
    values = [value for run in runs if (value := read(run)) is not None]
    return statistics.median(values) if values else None


def _gap(
    own: Sequence[RunResult], peers: Sequence[RunResult], read: Callable[[RunResult], float | None]
) -> tuple[float, float, float] | None:
    """(own median, peers' median, percent apart)"""
    mine, usual = _median(own, read), _median(peers, read)
    return (mine, usual, 100 * (mine - usual) / usual) if mine is not None and usual else None


def _throttle_share(runs: Sequence[RunResult], classes: Sequence[str]) -> float | None:
    """Median over runs of the worst GPU's share; classes may overlap, so the largest counts, not their sum."""

    def worst(run: RunResult) -> float | None:
        shares = [gpu.throttle_share_pct for gpu in run.telemetry.gpus if gpu.throttle_share_pct is not None]
        return max((share.get(name, 0.0) for share in shares for name in classes), default=None)

    return _median(runs, worst)


def _link(runs: Sequence[RunResult]) -> tuple[int, int] | None:
    """The poorest (generation, width) seen under load."""
    links = [
        (gpu.pcie_generation, gpu.pcie_width)
        for run in runs
        for gpu in run.telemetry.gpus
        if gpu.pcie_generation is not None and gpu.pcie_width is not None
    ]
    return min(links, default=None)


def _best_link(runs: Sequence[RunResult]) -> tuple[int, int] | None:
    gpus: list[Gpu] = [gpu for run in runs if run.context for gpu in run.context.gpus]
    links = [(g.pcie_generation_max, g.pcie_width_max) for g in gpus]
    return min(((gen, width) for gen, width in links if gen is not None and width is not None), default=None)


def _common_versions(runs: Sequence[RunResult]) -> dict[str, str]:
    """Name -> the version that most runs have, of driver, VBIOS, kernel, image and libraries."""
    seen: dict[str, list[str]] = {}
    for context in (run.context for run in runs if run.context):
        own: dict[str, str | None] = {
            "driver": context.driver,
            "kernel": context.kernel,
            "image": context.image,
            **context.libraries,
        }
        own["VBIOS"] = " + ".join(sorted({gpu.vbios for gpu in context.gpus if gpu.vbios})) or None
        for name, version in own.items():
            if version is not None:
                seen.setdefault(name, []).append(version)
    return {name: statistics.mode(sorted(versions)) for name, versions in seen.items()}

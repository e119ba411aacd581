"""Clues to a node that is slow, hot or takes more memory: one for each cause that distinguishes it from its peers.

Those to slowness are ranked by the share of the deviation that each can explain, an upper bound:

- a clock g % below the peers' costs at most g %: work that waits for memory or the host loses less;
- a node that waits a share w of its time where its peers wait v loses 1 - (1 - w) / (1 - v) by it;
- input of b bytes a second over a link of B bytes a second takes b / B of the time, if nothing hides it.

Figures are medians over runs, of each run the poorest GPU.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from bench_image.contract.result import RunResult
from bench_image.contract.result_sections import Gpu, GpuTelemetry
from bench_image.contract.work import Device
from trainbench.core.formats import listing
from trainbench.core.grouping import grouped
from trainbench.core.known_values import known_median
from trainbench.core.states import TRAITS
from trainbench.core.verdicts import Clue, Why
from trainbench.figure_catalogue.run_figures import (
    GPU_UTILISATION_MEAN_PCT,
    POWER_MEAN_W,
    SM_CLOCK_MEAN_MHZ,
    TEMPERATURE_MEAN_C,
)
from trainbench.results.readings import most_shared
from trainbench.results.setups import setup_of, versions

# Shares of the deviation: a clue explains it from the first on, and explains nothing below the second.
MOST_OF_IT = 0.5
A_PART_OF_IT = 0.1
# The other thresholds stand where they are used: what differs by less costs less than 1 %, or differs by chance.
MIN_CLOCK_GAP_PCT = 3.0

Read = Callable[[RunResult], float | None]


class Case(NamedTuple):
    """The evidence on a node. `own`: its valid runs; `peers`: those of its group's healthy nodes. `off_pct`: percent of
    samples/s that it lacks, 0 where another metric is off. `troubles`: conditions that the cluster reports.
    """

    own: Sequence[RunResult]
    peers: Sequence[RunResult]
    off_pct: float
    troubles: Sequence[str] = ()

    def gap(self, read: Read) -> Gap | None:
        own, peers = known_median(map(read, self.own)), known_median(map(read, self.peers))
        return Gap(own, peers) if own is not None and peers is not None else None


class Gap(NamedTuple):
    own: float
    peers: float

    @property
    def pct(self) -> float:
        return 100 * (self.own - self.peers) / self.peers if self.peers else 0.0

    @property
    def points(self) -> float:
        """Own minus peers, in percentage points."""
        return self.own - self.peers


Look = Callable[[Case], Iterator[Clue]]


def slow_clues(case: Case) -> tuple[Clue, ...]:
    """All clues for a slow node, the best explanation first: those that explain most of the deviation, those without a
    figure (in the order of the looks), those that explain a part, those that explain nothing. A drill decides alone.
    """
    clues = [clue for look in _LOOKS for clue in look(case)]
    categories = {clue.category for clue in clues}

    def place(clue: Clue) -> tuple[int, float]:
        if clue.category == "drill":
            return 0, 0.0
        if clue.explains_pct is None:
            return 2, 0.0
        if clue.explains_pct >= MOST_OF_IT * case.off_pct:
            return 1, -clue.explains_pct
        return (3 if not explains_nothing(clue, case.off_pct) else 4), -clue.explains_pct

    causes = [clue for clue in clues if not _CONSEQUENCES.get(clue.category, set()) & categories]
    return tuple(sorted(causes, key=place))


def explains_nothing(clue: Clue, off_pct: float) -> bool:
    return clue.explains_pct is not None and clue.explains_pct < A_PART_OF_IT * off_pct


def cause_with_share(clue: Clue, off_pct: float) -> str:
    """The cause, with the part of the deviation that it explains where that is known."""
    if clue.explains_pct is None or off_pct == 0:
        return clue.cause
    part = min(clue.explains_pct, off_pct)
    rest = "" if part >= MOST_OF_IT * off_pct else "; the rest is not explained"
    return f"{clue.cause}, which explains up to {part:.1f} of the {off_pct:.1f} %{rest}"


def memory_clues(case: Case) -> tuple[Clue, ...]:
    """Clues for more memory: differences that change the bytes that torch allocates."""
    clues = (clue for look in (_OTHER_MEMORY, _RETRIES, _differences) for clue in look(case))
    return tuple(clue for clue in clues if clue.category != "other_host")


def temperature_clues(case: Case) -> tuple[Clue, ...]:
    """Clues for a hot node: at the same power the cooling is the cause, else the power."""
    heat, power = case.gap(TEMPERATURE_MEAN_C.value), case.gap(POWER_MEAN_W.value)
    if heat is None or heat.points <= 0:
        return ()
    measured, expected = f"{heat.own:.0f} °C", f"{heat.peers:.0f} °C as on its peers"
    if power is None:
        category, cause = "hot", "it is hotter than its peers; what power it draws is not known"
        resolution = "check fans, air flow and inlet, and compare its power with that of its peers"
    else:
        measured, expected = f"{measured} at {power.own:.0f} W", f"{expected} at {power.peers:.0f} W"
        category, cause = "cooling", "it is hotter though it draws no more power than its peers: it is cooled worse"
        resolution = "check fans, dust, air flow and inlet temperature, then the GPU's heat sink"
        if power.pct >= 5:
            category = "high_power"
            cause = f"it draws {power.pct:.0f} % more power than its peers, which becomes heat"
            resolution = "compare its power limit and clocks with its peers'"
    return (Clue(category=category, measured=measured, expected=expected, cause=cause, resolution=resolution),)


# --- figures that differ from the peers' ------------------------------------------------------------------------------


def _gap(
    category: str,
    read: Read,
    is_seen: Callable[[Gap], bool],
    measured: str,
    expected: str,
    cause: str,
    resolution: str,
    explains: Callable[[Case, Gap], float | None] = lambda case, gap: None,
) -> Look:
    """A look at one figure. The texts may hold {own}, {peers} and {less}, the percent that it is below its peers."""

    def look(case: Case) -> Iterator[Clue]:
        gap = case.gap(read)
        if gap and is_seen(gap):
            texts = {"measured": measured, "expected": f"{expected} as on its peers", "cause": cause}
            filled = {name: text.format(**gap._asdict(), less=-gap.pct) for name, text in texts.items()}
            yield Clue(category=category, **filled, resolution=resolution, explains_pct=explains(case, gap))

    return look


def _waited(_: Case, wait: Gap) -> float:
    """Percent of samples/s lost by waiting longer than the peers."""
    return 100 * (1 - (100 - wait.own) / (100 - wait.peers)) if wait.peers < 100 else 0.0


def _stolen(case: Case, steal: Gap) -> float | None:
    return _waited(case, steal) if all(run.spec.work.device is Device.CPU for run in case.own) else None


def _copies_pct(case: Case, _: Gap | None = None) -> float | None:
    """Percent of samples/s that slower copies of the input cost at most; None where other data may use the link:
    several GPUs, or a paged optimizer.
    """
    if any(run.spec.placement.world_size > 1 or run.spec.work.optimizer.value.startswith("paged") for run in case.own):
        return None

    def copying_pct(run: RunResult) -> float | None:
        mb, gb = run.performance.input_mb_per_s, run.probes.h2d_gb_per_s
        return 100 * mb / 1000 / gb if mb is not None and gb else None

    share = case.gap(copying_pct)
    return max(share.points, 0.0) if share else None


def _memory_total_gb(run: RunResult) -> float | None:
    totals = [gpu.memory_total_bytes / 1e9 for gpu in _gpus([run]) if gpu.memory_total_bytes is not None]
    return min(totals, default=None)


_MATMUL = _gap(
    "slow_gpu", lambda run: run.probes.matmul_tflops, lambda gap: gap.pct <= -3,
    "{own:.0f} TFLOP/s", "{peers:.0f} TFLOP/s",
    "a bare matrix multiplication is {less:.1f} % slower than on its peers: it is the GPU itself, not data or host",
    "run dcgmi diag on the GPU, and swap it with a neighbour to see whether the fault moves with it",
    lambda _, gap: -gap.pct,
)  # fmt: skip
_DATA = _gap(
    "slow_data", lambda run: run.performance.loader_wait_pct, lambda gap: gap.points >= 1,
    "waits for data {own:.1f} % of the time", "{peers:.1f} %", "training waited for its data {own:.1f} % of the time",
    "check the disk or mount that the data comes from, and how many CPUs the pod has", _waited,
)  # fmt: skip
_RETRIES = _gap(
    "allocator_retries", lambda run: run.memory.alloc_retries, lambda gap: gap.points >= 1,
    "{own:g} allocator retries", "{peers:g}",
    "torch ran out of free GPU memory and had to free cached blocks and allocate again",
    "see what else holds memory on this GPU, and whether it is as large as its peers'",
)  # fmt: skip
_STEAL = _gap(
    "cpu_steal", lambda run: run.telemetry.host.cpu_steal_pct, lambda gap: gap.points >= 5,
    "{own:.0f} % stolen", "{peers:.0f} %", "the host gave {own:.0f} % of this machine's CPU time to others",
    "move the node to a quieter host, or use dedicated CPUs", _stolen,
)  # fmt: skip
_FULL_HOST = _gap(
    "host_memory_full", lambda run: run.telemetry.host.memory_used_pct,
    lambda gap: gap.own >= 95 > gap.peers,
    "{own:.0f} % of the host's memory in use", "{peers:.0f} %",
    "the host's memory is full, so it swaps or drops its cache", "find what holds the memory on the node, and end it",
)  # fmt: skip
_BUSY_HOST = _gap(
    "busy_host", lambda run: run.telemetry.host.cpu_utilisation_mean_pct,
    lambda gap: gap.points >= 30, "host CPUs {own:.0f} % busy", "{peers:.0f} %",
    "the host's CPUs were {own:.0f} % busy, those of its peers {peers:.0f} %",
    "find what computes on the node (top), and keep other work off GPU nodes",
)  # fmt: skip
_H2D = _gap(
    "slow_host_to_device", lambda run: run.probes.h2d_gb_per_s, lambda gap: gap.pct <= -10,
    "{own:.1f} GB/s", "{peers:.1f} GB/s", "copies from host to GPU are {less:.0f} % slower than on its peers",
    "check the PCIe link, NUMA placement and the host's memory channels", _copies_pct,
)  # fmt: skip
_IDLE_GPU = _gap(
    "gpu_waits", GPU_UTILISATION_MEAN_PCT.value, lambda gap: gap.points <= -5,
    "GPU busy {own:.0f} % of the time", "{peers:.0f} %",
    "the GPU was busy {own:.0f} % of the time, its peers' {peers:.0f} %: it waits for work",
    "look at the host: CPU frequency governor, NUMA placement of the pod, other work on its CPUs",
)  # fmt: skip
_OTHER_MEMORY = _gap(
    "other_gpu_memory", _memory_total_gb, lambda gap: abs(gap.pct) >= 1,
    "{own:.1f} GB of GPU memory", "{peers:.1f} GB", "its GPU has {own:.1f} GB of memory, its peers' {peers:.1f} GB",
    "see whether it is another model or partitioned (MIG), and compare it with its own kind only",
)  # fmt: skip


def _communication(case: Case) -> Iterator[Clue]:
    bus = case.gap(lambda run: run.probes.allreduce_bus_gb_per_s)
    rate = f", all-reduce at {bus.own:.0f} GB/s where its peers reach {bus.peers:.0f}" if bus else ""
    return _gap(
        "slow_communication", lambda run: run.communication.exposed_pct,
        lambda gap: gap.points >= 2,
        "waits for communication {own:.1f} % of the time", "{peers:.1f} %",
        "its GPUs waited for each other {own:.1f} % of the time" + rate,
        "check NVLink (nvidia-smi nvlink -s) and the topology (nvidia-smi topo -m) against a good node", _waited,
    )(case)  # fmt: skip


# --- the rest ---------------------------------------------------------------------------------------------------------


def _drill(case: Case) -> Iterator[Clue]:
    drill = next((run.spec.drill for run in case.own if run.spec.drill), None)
    if drill:
        yield Clue(
            category="drill",
            measured=f"slowed by {drill.slowdown_pct:g} %",
            expected="detected by the checks",
            cause=f"this is a drill: the node was slowed on purpose by {drill.slowdown_pct:g} %",
            resolution=TRAITS[Why.DRILL].next_step,
        )


def _ecc(case: Case) -> Iterator[Clue]:
    def worst(runs: Sequence[RunResult], read: Callable[[GpuTelemetry], int | None]) -> int:
        return max((read(gpu) or 0 for run in runs for gpu in run.telemetry.gpus), default=0)

    errors = worst(case.own, lambda gpu: gpu.ecc_uncorrected)
    rows = worst(case.own, lambda gpu: gpu.remapped_rows)
    if errors or rows > worst(case.peers, lambda gpu: gpu.remapped_rows):
        yield Clue(
            category="ecc_errors",
            measured=f"{errors:g} uncorrected errors, {rows:g} remapped rows",
            expected="0",
            cause="the GPU's memory has faults",
            resolution="drain the node, reset the GPU, and have it exchanged if the count grows",
        )


def _other_processes(case: Case) -> Iterator[Clue]:
    own, peers = most_shared(case.own), most_shared(case.peers)
    if own and (peers is None or own.size > peers.size):
        yield Clue(
            category="other_processes",
            measured=own.sentence,
            expected=peers.sentence if peers else "none",
            cause=own.sentence,
            resolution="find the processes with nvidia-smi on the node, stop what does not belong there, and repeat",
        )


def _troubles(case: Case) -> Iterator[Clue]:
    if case.troubles:
        yield Clue(
            category="node_trouble",
            measured=listing(case.troubles),
            expected="no such condition",
            cause=f"the cluster says of the node: {listing(case.troubles)}",
            resolution="look at the node's conditions and events (kubectl describe node) and fix these faults",
        )


class _Throttle(NamedTuple):
    category: str
    classes: tuple[str, ...]
    cause: str
    resolution: str

    def share_pct(self, runs: Sequence[RunResult]) -> float | None:
        """Median over runs of the worst GPU's share. Classes may overlap, so the largest counts, not the sum."""
        of_runs = ([gpu.throttle_share_pct for gpu in run.telemetry.gpus] for run in runs)
        shares = (
            [share.get(name, 0.0) for share in of_run if share is not None for name in self.classes]
            for of_run in of_runs
        )
        return known_median(max(of_run, default=None) for of_run in shares)


THERMAL = _Throttle(
    "thermal_throttling", ("thermal", "hw_slowdown"), "the GPU was too hot and slowed itself down",
    "check fans, air flow and inlet",
)  # fmt: skip
THROTTLES = (
    THERMAL,
    _Throttle(
        "power_capping", ("power_cap",), "the GPU ran into its power limit",
        "compare power limits and supplies with its peers",
    ),
    _Throttle(
        "power_brake", ("power_brake",), "the machine's power supply made the GPU slow down",
        "check the power supplies of the machine and the power budget of its rack",
    ),
    _Throttle(
        "clocks_locked", ("user_clocks",), "the GPU's clocks were limited by hand",
        "see who set them, and reset them (nvidia-smi -rac, -rgc)",
    ),
)  # fmt: skip


def _clock(case: Case) -> Iterator[Clue]:
    """One clue for heat, power limit and clock: the first two act through the clock."""
    clock = case.gap(SM_CLOCK_MEAN_MHZ.value)
    limit = case.gap(lambda run: setup_of(run.context).power_limit_w)
    shares = ((each, each.share_pct(case.own), each.share_pct(case.peers) or 0.0) for each in THROTTLES)
    throttles = [(each, own, peers) for each, own, peers in shares if own and own - peers >= 5]
    throttles.sort(key=lambda throttle: -throttle[1])
    is_low_limit = limit is not None and limit.pct <= -2
    # A reason for a low clock makes a small gap of the clock significant.
    least_gap_pct = 1 if throttles or is_low_limit else MIN_CLOCK_GAP_PCT
    is_low_clock = clock is not None and clock.pct <= -least_gap_pct
    if not (throttles or is_low_clock or is_low_limit):
        return
    said: list[tuple[str, str, str]] = []  # measured, expected, cause
    category, resolution = "low_clock", "look for locked clocks or persistence mode off (nvidia-smi -q -d CLOCK)"
    for throttle, share, usual in throttles:
        heat = case.gap(TEMPERATURE_MEAN_C.value) if throttle is THERMAL else None
        hotter = f" ({heat.own:.0f} °C, its peers {heat.peers:.0f} °C)" if heat and heat.points >= 5 else ""
        cause = f"{throttle.cause} for {share:.0f} % of the time{hotter}"
        said.append((f"throttled {share:.0f} % of the time", f"{usual:.0f} % as on its peers", cause))
    if throttles:
        category, resolution = throttles[0][0].category, throttles[0][0].resolution
    if limit is not None and is_low_limit:
        cause = f"its power limit is {limit.own:.0f} W, its peers' {limit.peers:.0f} W"
        said.append((f"power limit {limit.own:.0f} W", f"{limit.peers:.0f} W as on its peers", cause))
        if category in ("low_clock", "power_capping"):
            category, resolution = "power_limit_low", f"set the power limit to {limit.peers:.0f} W (nvidia-smi -pl)"
    # Only the clock states how much speed is lost.
    if clock is not None and is_low_clock:
        cause = f"the SM clock is {-clock.pct:.1f} % below its peers'"
        said.append((f"{clock.own:.0f} MHz", f"{clock.peers:.0f} MHz as on its peers", cause))
    elif clock is not None and throttles:
        said.append(("", "", "its mean clock is nevertheless as high as its peers'"))
    measured, expected, causes = (list(filter(None, texts)) for texts in zip(*said, strict=True))
    yield Clue(
        category=category,
        measured=", ".join(measured),
        expected=", ".join(expected),
        cause="; ".join(causes),
        resolution=resolution,
        explains_pct=-clock.pct if clock is not None and is_low_clock else None,
    )


def _pcie(case: Case) -> Iterator[Clue]:
    own = _poorest((gpu.pcie_generation, gpu.pcie_width) for run in case.own for gpu in run.telemetry.gpus)
    usual = _poorest((gpu.pcie_generation, gpu.pcie_width) for run in case.peers for gpu in run.telemetry.gpus)
    # what the poorest GPU and its slot support
    best = _poorest((gpu.pcie_generation_max, gpu.pcie_width_max) for gpu in _gpus(case.own)) or usual
    # a link that the peers have as well explains nothing
    if own and best and (own < usual if usual else own[1] < best[1]):
        copies = case.gap(lambda run: run.probes.h2d_gb_per_s)
        is_slower = copies is not None and copies.pct < -1
        slower = f"; copies from the host are {-copies.pct:.0f} % slower" if copies and is_slower else ""
        yield Clue(
            category="pcie_degraded",
            measured=f"PCIe {own[0]} x{own[1]}",
            expected=f"PCIe {best[0]} x{best[1]}",
            cause=f"the GPU's PCIe link is narrower or slower than it should be{slower}",
            resolution="reseat the GPU or its riser, and check the slot's bifurcation in the firmware",
            explains_pct=_copies_pct(case),
        )


def _poorest(links: Iterable[tuple[int | None, int | None]]) -> tuple[int, int] | None:
    """The poorest (generation, width)."""
    return min(((gen, width) for gen, width in links if gen is not None and width is not None), default=None)


def _gpus(runs: Sequence[RunResult]) -> list[Gpu]:
    return [gpu for run in runs if run.context for gpu in run.context.gpus]


class Difference(NamedTuple):
    """What may differ without harm: execution, versions, host. `is_whole`: a name that a run lacks is a difference."""

    category: str
    read: Callable[[RunResult], Mapping[str, str]]  # empty: not known
    resolution: str
    is_whole: bool = False

    def usual(self, runs: Iterable[RunResult]) -> dict[str, str]:
        """Name -> its most common value."""
        seen = grouped(pair for run in runs for pair in self.read(run).items())
        return {name: statistics.mode(sorted(values)) for name, values in seen.items()}

    def clues(self, own: Iterable[RunResult], usual: Mapping[str, str]) -> Iterator[Clue]:
        """One on all that any of the `own` runs does otherwise."""
        odd: dict[str, str] = {}
        for mine in filter(None, map(self.read, own)):
            told = mine.keys() | usual.keys() if self.is_whole else mine.keys() & usual.keys()
            odd |= {name: mine.get(name, NONE) for name in told if mine.get(name) != usual.get(name)}
        names = sorted(odd)
        if usual and odd:
            yield Clue(
                category=self.category,
                measured=", ".join(f"{name} {odd[name]}" for name in names),
                expected=", ".join(f"{name} {usual.get(name, NONE)}" for name in names),
                cause=f"{', '.join(names)} differ{'s' if len(names) == 1 else ''} from its peers",
                resolution=self.resolution,
            )


def _execution(run: RunResult) -> Mapping[str, str]:
    template = run.context.pod_template if run.context else None
    return {**run.chosen.execution, **({"pod template": template} if template else {})} if run.chosen else {}


def _versions(run: RunResult) -> Mapping[str, str]:
    known = versions(setup_of(run.context)).items()
    return {name: value for name, value in known if name not in ("power limit", "pod template")}


NONE = "none"
EXECUTION = Difference(
    "other_execution", _execution, "see in the result why it was chosen; the same image, options and pod template "
    "give the same", is_whole=True,
)  # fmt: skip
VERSIONS = Difference("versions_differ", _versions, "bring the node to its peers' versions and repeat")
_HOST = Difference(
    "other_host",
    lambda run: {"CPU": run.context.cpu, "number of CPUs": str(run.context.num_cpus)} if run.context else {},
    "compare it with its own kind only, or give its pods what the others have",
)


def _differences(case: Case) -> Iterator[Clue]:
    return (clue for each in (EXECUTION, VERSIONS, _HOST) for clue in each.clues(case.own, each.usual(case.peers)))


# Certain faults first, then likely causes, then mere differences.
_LOOKS: tuple[Look, ...] = (
    _drill, _ecc, _other_processes, _troubles, _clock, _MATMUL, _DATA, _communication, _RETRIES, _STEAL, _FULL_HOST,
    _BUSY_HOST, _pcie, _H2D, _IDLE_GPU, _differences,
)  # fmt: skip
# Other clues imply these: a hot GPU multiplies slowly, and one that waits for its data is not busy.
_CONSEQUENCES = {
    "slow_gpu": {throttle.category for throttle in THROTTLES} | {"power_limit_low", "low_clock", "other_processes"},
    "gpu_waits": {"slow_data", "slow_communication", "cpu_steal", "busy_host", "host_memory_full"},
    "slow_host_to_device": {"pcie_degraded"},
}

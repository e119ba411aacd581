"""Clues to a node that is slow or takes more memory: one for each cause that distinguishes it from its peers.

They are ranked by the share of its deviation that each can explain.

The share of samples/s that a clue explains is an upper bound:

- a clock g % below the peers' costs at most g %: work that waits for memory or the host loses less;
- a node that waits a share w of its time where its peers wait v loses 1 - (1 - w) / (1 - v) by it;
- input of b bytes a second over a link of B bytes a second takes b / B of the time, if nothing hides it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from bench_image.contract.result import RunResult
from bench_image.contract.work import Device
from trainbench.core.formats import listing
from trainbench.core.verdicts import Clue
from trainbench.figure_catalogue.run_figures import GPU_UTILISATION_MEAN_PCT
from trainbench.judging.diagnosis.gpu_clues import (
    THROTTLES,
    clock_clues,
    ecc_clues,
    matmul_clues,
    other_gpu_clues,
    other_process_clues,
)
from trainbench.judging.diagnosis.peer_gaps import (
    Case,
    best_link,
    common_execution,
    common_host,
    common_versions,
    differing,
    peer_gap,
    poorest_link,
)

# Shares of the deviation: a clue explains it from the first on, and explains nothing below the second.
MOST_OF_IT = 0.5
A_PART_OF_IT = 0.1
# Of the measured window; below this, stolen CPU time cannot cost 5 %.
MIN_STEAL_PCT = 5.0
# Published copy rates of eight links of one host lie within 0.2 %: several times what fleets show.
MIN_H2D_GAP_PCT = 10.0
SAME_RATE_PCT = 1.0
MIN_WAIT_POINTS = 1.0
MIN_COMMUNICATION_POINTS = 2.0
MIN_UTILISATION_POINTS = 5.0
MIN_BUSY_HOST_POINTS = 30.0
FULL_MEMORY_PCT = 95.0


def slow_clues(case: Case) -> tuple[Clue, ...]:
    """All clues for a slow node, the best explanation first."""
    clues = [clue for look in _LOOKS for clue in look(case)]
    categories = {clue.category for clue in clues}
    causes = [clue for clue in clues if not _CONSEQUENCES.get(clue.category, set()) & categories]
    return ranked_clues(causes, case.off_pct)


def memory_clues(case: Case) -> tuple[Clue, ...]:
    """Clues for more memory: differences that change the bytes that torch allocates."""
    differences = (clue for clue in difference_clues(case) if clue.category != "other_host")
    return (*other_gpu_clues(case), *allocator_clues(case), *differences)


def waited_pct(own_pct: float, peers_pct: float) -> float:
    """Percent of samples/s lost by waiting longer than the peers."""
    return 100 * (1 - (100 - own_pct) / (100 - peers_pct)) if peers_pct < 100 else 0.0


# Other clues imply these: a hot GPU multiplies slowly, and one that waits for its data is not busy.
_CONSEQUENCES = {
    "slow_gpu": {throttle.category for throttle in THROTTLES} | {"power_limit_low", "low_clock", "other_processes"},
    "gpu_waits": {"slow_data", "slow_communication", "cpu_steal", "busy_host", "host_memory_full"},
    "slow_host_to_device": {"pcie_degraded"},
}


def _drill(case: Case) -> Iterator[Clue]:
    drill = next((run.spec.drill for run in case.own if run.spec.drill), None)
    if drill:
        yield Clue(
            category="drill",
            measured=f"slowed by {drill.slowdown_pct:g} %",
            expected="detected by the checks",
            cause=f"this is a drill: the node was slowed on purpose by {drill.slowdown_pct:g} %",
            resolution="nothing to repair: the checks work",
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


def _data(case: Case) -> Iterator[Clue]:
    wait = peer_gap(case.own, case.peers, lambda run: run.performance.loader_wait_pct)
    if wait and wait.points >= MIN_WAIT_POINTS:
        yield Clue(
            category="slow_data",
            measured=f"waits for data {wait.own:.1f} % of the time",
            expected=f"{wait.peers:.1f} % as on its peers",
            cause=f"training waited for its data {wait.own:.1f} % of the time",
            resolution="check the disk or mount that the data comes from, and how many CPUs the pod has",
            explains_pct=waited_pct(wait.own, wait.peers),
        )


def _communication(case: Case) -> Iterator[Clue]:
    wait = peer_gap(case.own, case.peers, lambda run: run.communication.exposed_pct)
    if wait and wait.points >= MIN_COMMUNICATION_POINTS:
        bus = peer_gap(case.own, case.peers, lambda run: run.probes.allreduce_bus_gb_per_s)
        rate = f", all-reduce at {bus.own:.0f} GB/s where its peers reach {bus.peers:.0f}" if bus else ""
        yield Clue(
            category="slow_communication",
            measured=f"waits for communication {wait.own:.1f} % of the time",
            expected=f"{wait.peers:.1f} % as on its peers",
            cause=f"its GPUs waited for each other {wait.own:.1f} % of the time{rate}",
            resolution="check NVLink (nvidia-smi nvlink -s) and the topology (nvidia-smi topo -m) against a good node",
            explains_pct=waited_pct(wait.own, wait.peers),
        )


def allocator_clues(case: Case) -> Iterator[Clue]:
    retries = peer_gap(case.own, case.peers, lambda run: run.memory.alloc_retries)
    if retries and retries.points >= 1:
        yield Clue(
            category="allocator_retries",
            measured=f"{retries.own:g} allocator retries",
            expected=f"{retries.peers:g} as on its peers",
            cause="torch ran out of free GPU memory and had to free cached blocks and allocate again",
            resolution="see what else holds memory on this GPU, and whether it is as large as its peers'",
        )


def _steal(case: Case) -> Iterator[Clue]:
    steal = peer_gap(case.own, case.peers, lambda run: run.telemetry.host.cpu_steal_pct)
    if steal and steal.points >= MIN_STEAL_PCT:
        on_cpu = all(run.spec.work.device is Device.CPU for run in case.own)
        yield Clue(
            category="cpu_steal",
            measured=f"{steal.own:.0f} % stolen",
            expected=f"{steal.peers:.0f} % as on its peers",
            cause=f"the host gave {steal.own:.0f} % of this machine's CPU time to others",
            resolution="move the node to a quieter host, or use dedicated CPUs",
            explains_pct=waited_pct(steal.own, steal.peers) if on_cpu else None,
        )


def _host(case: Case) -> Iterator[Clue]:
    full = peer_gap(case.own, case.peers, lambda run: run.telemetry.host.memory_used_pct)
    if full and full.own >= FULL_MEMORY_PCT > full.peers:
        yield Clue(
            category="host_memory_full",
            measured=f"{full.own:.0f} % of the host's memory in use",
            expected=f"{full.peers:.0f} % as on its peers",
            cause="the host's memory is full, so it swaps or drops its cache",
            resolution="find what holds the memory on the node, and end it",
        )
    busy = peer_gap(case.own, case.peers, lambda run: run.telemetry.host.cpu_utilisation_mean_pct)
    if busy and busy.points >= MIN_BUSY_HOST_POINTS:
        yield Clue(
            category="busy_host",
            measured=f"host CPUs {busy.own:.0f} % busy",
            expected=f"{busy.peers:.0f} % as on its peers",
            cause=f"the host's CPUs were {busy.own:.0f} % busy, those of its peers {busy.peers:.0f} %",
            resolution="find what computes on the node (top), and keep other work off GPU nodes",
        )


def _pcie(case: Case) -> Iterator[Clue]:
    own, usual = poorest_link(case.own), poorest_link(case.peers)
    best = best_link(case.own) or usual
    is_poor = bool(own and best and own[1] < best[1])
    # a link that the peers have as well explains nothing
    if own and best and (own < usual if usual else is_poor):
        copies = peer_gap(case.own, case.peers, lambda run: run.probes.h2d_gb_per_s)
        is_slower = copies is not None and copies.pct < -SAME_RATE_PCT
        slower = f"; copies from the host are {-copies.pct:.0f} % slower" if copies and is_slower else ""
        yield Clue(
            category="pcie_degraded",
            measured=f"PCIe {own[0]} x{own[1]}",
            expected=f"PCIe {best[0]} x{best[1]}",
            cause=f"the GPU's PCIe link is narrower or slower than it should be{slower}",
            resolution="reseat the GPU or its riser, and check the slot's bifurcation in the firmware",
            explains_pct=_copies_pct(case),
        )


def _h2d(case: Case) -> Iterator[Clue]:
    copies = peer_gap(case.own, case.peers, lambda run: run.probes.h2d_gb_per_s)
    if copies and copies.pct <= -MIN_H2D_GAP_PCT:
        yield Clue(
            category="slow_host_to_device",
            measured=f"{copies.own:.1f} GB/s",
            expected=f"{copies.peers:.1f} GB/s as on its peers",
            cause=f"copies from host to GPU are {-copies.pct:.0f} % slower than on its peers",
            resolution="check the PCIe link, NUMA placement and the host's memory channels",
            explains_pct=_copies_pct(case),
        )


def _copies_pct(case: Case) -> float | None:
    """Percent of samples/s that slower copies of the input cost at most; None where other data may use the link:
    several GPUs, or a paged optimizer.
    """
    if any(run.spec.placement.world_size > 1 or run.spec.work.optimizer.value.startswith("paged") for run in case.own):
        return None
    share = peer_gap(case.own, case.peers, _copying_pct)
    return max(share.points, 0.0) if share else None


def _copying_pct(run: RunResult) -> float | None:
    mb, gb = run.performance.input_mb_per_s, run.probes.h2d_gb_per_s
    return 100 * mb / 1000 / gb if mb is not None and gb else None


def _waits(case: Case) -> Iterator[Clue]:
    busy = peer_gap(case.own, case.peers, GPU_UTILISATION_MEAN_PCT.value)
    if busy and busy.points <= -MIN_UTILISATION_POINTS:
        yield Clue(
            category="gpu_waits",
            measured=f"GPU busy {busy.own:.0f} % of the time",
            expected=f"{busy.peers:.0f} % as on its peers",
            cause=f"the GPU was busy {busy.own:.0f} % of the time, its peers' {busy.peers:.0f} %: it waits for work",
            resolution="look at the host: CPU frequency governor, NUMA placement of the pod, other work on its CPUs",
        )


def difference_clues(case: Case) -> Iterator[Clue]:
    """Clues from differences to the peers that may be harmless: execution, versions, host."""
    for category, read, resolution in (
        (
            "other_execution",
            common_execution,
            "see in the result why it was chosen; the same image and options give the same",
        ),
        ("versions_differ", common_versions, "bring the node to its peers' versions and repeat"),
        (
            "other_host",
            common_host,
            "compare it with its own kind only, or give its pods what the others have",
        ),
    ):
        mine, usual = read(case.own), read(case.peers)
        if differ := differing(mine, usual):
            yield Clue(
                category=category,
                measured=", ".join(f"{name} {mine[name]}" for name in differ),
                expected=", ".join(f"{name} {usual[name]}" for name in differ),
                cause=f"{', '.join(differ)} differ{'s' if len(differ) == 1 else ''} from its peers",
                resolution=resolution,
            )


# Certain faults first, then likely causes, then mere differences.
_LOOKS: tuple[Callable[[Case], Iterator[Clue]], ...] = (
    _drill, ecc_clues, other_process_clues, _troubles, clock_clues, matmul_clues, _data, _communication,
    allocator_clues, _steal, _host, _pcie, _h2d, _waits, difference_clues,
)  # fmt: skip


def ranked_clues(clues: Sequence[Clue], off_pct: float) -> tuple[Clue, ...]:
    """The clues in this order: those that explain most of the deviation, those without a figure (in the order given),
    those that explain a part, those that explain nothing. A drill decides alone.
    """

    def place(clue: Clue) -> tuple[int, float]:
        if clue.category == "drill":
            return 0, 0.0
        if clue.explains_pct is None:
            return 2, 0.0
        if clue.explains_pct >= MOST_OF_IT * off_pct:
            return 1, -clue.explains_pct
        return (3 if not explains_nothing(clue, off_pct) else 4), -clue.explains_pct

    return tuple(sorted(clues, key=place))


def explains_nothing(clue: Clue, off_pct: float) -> bool:
    return clue.explains_pct is not None and clue.explains_pct < A_PART_OF_IT * off_pct


def cause_with_share(clue: Clue, off_pct: float) -> str:
    """The cause, with the part of the deviation that it explains where that is known."""
    if clue.explains_pct is None or off_pct == 0:
        return clue.cause
    part = min(clue.explains_pct, off_pct)
    rest = "" if part >= MOST_OF_IT * off_pct else "; the rest is not explained"
    return f"{clue.cause}, which explains up to {part:.1f} of the {off_pct:.1f} %{rest}"

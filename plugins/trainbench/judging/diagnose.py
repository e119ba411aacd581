"""One finding for each node that is neither well nor busy: its reason, the likely cause, and the next step.

A clue is one difference between a node that is slow, hot or takes more memory and its peers. Those to slowness are
ranked by the share of the deviation that each can explain, an upper bound:

- a clock g % below the peers' costs at most g %: work that waits for memory or the host loses less;
- a node that waits a share w of its time where its peers wait v loses 1 - (1 - w) / (1 - v) by it;
- input of b bytes a second over a link of B bytes a second takes b / B of the time, if nothing hides it.

Figures are medians over runs, of each run the poorest GPU.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bench_image.contract.result import RunResult, Status
from bench_image.contract.result_sections import Gpu
from bench_image.contract.work import Device
from trainbench.core.formats import capitalised, listing, noise_share, signed
from trainbench.core.grouping import grouped
from trainbench.core.known_values import known_median
from trainbench.core.states import METRIC_NAMES, METRIC_UNITS, TRAITS, plain_finding
from trainbench.core.verdicts import (
    Comparison,
    Finding,
    GpuVerdict,
    GroupVerdict,
    Level,
    Metric,
    NodeVerdict,
    Verdict,
    Why,
)
from trainbench.figure_catalogue.run_figures import (
    GPU_UTILISATION_MEAN_PCT,
    POWER_MEAN_W,
    SM_CLOCK_MEAN_MHZ,
    SM_CLOCK_MIN_MHZ,
    TEMPERATURE_MEAN_C,
)
from trainbench.judging.gpu_checks import gpu_event_findings
from trainbench.judging.node_runs import GpuPlace, Key, by_gpu, choice_of
from trainbench.planning.nodes import GpuNode
from trainbench.pods.pod_end import NOT_FREE, EndKind
from trainbench.results.fault_isolation import BROKEN_RESULT
from trainbench.results.readings import gpu_name
from trainbench.results.setups import setup_of, versions

# Shares of the deviation: a clue explains it from the first on, and explains nothing below the second.
MOST_OF_IT = 0.5
A_PART_OF_IT = 0.1
# The other thresholds stand where they are used: what differs by less costs less than 1 %, or differs by chance.
MIN_CLOCK_GAP_PCT = 3.0

Read = Callable[[RunResult], float | None]


class Clue(NamedTuple):
    """One difference between a node and its peers that may be the cause. `explains_pct`: percent of samples/s that it
    can cost at most; None: not known, so it may explain all or nothing.
    """

    category: str
    cause: str
    resolution: str
    explains_pct: float | None = None


class Case(NamedTuple):
    """The evidence on a node. `own`: its valid runs; `peers`: those of its group's healthy nodes. `off_pct`: percent of
    samples/s that it lacks, 0 where another metric is off. `troubles`: conditions that the cluster reports.
    """

    own: Sequence[RunResult]
    peers: Sequence[RunResult]
    off_pct: float
    troubles: Sequence[str] = ()

    def gap(self, read: Read, usual: float | None = None) -> Gap | None:
        """`usual`: of peers that do not tell it."""
        own, peers = known_median(map(read, self.own)), known_median(map(read, self.peers))
        peers = usual if peers is None else peers
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

    def place(clue: Clue) -> tuple[int, float]:
        if clue.category == "drill":
            return 0, 0.0
        if clue.explains_pct is None:
            return 2, 0.0
        if clue.explains_pct >= MOST_OF_IT * case.off_pct:
            return 1, -clue.explains_pct
        return (3 if not explains_nothing(clue, case.off_pct) else 4), -clue.explains_pct

    return tuple(sorted(_causes(clue for look in _LOOKS for clue in look(case)), key=place))


def _causes(found: Iterable[Clue]) -> list[Clue]:
    """The clues that no other one implies, one of each category."""
    clues = {clue.category: clue for clue in reversed([*found])}
    return [clue for clue in reversed(clues.values()) if not _CONSEQUENCES.get(clue.category, set()) & clues.keys()]


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
    hotter = f"it is hotter ({heat.own:.0f} °C, its peers {heat.peers:.0f} °C)"
    if power is None:
        cause = f"{hotter}; what power it draws is not known"
        return (Clue("hot", cause, "check fans, air flow and inlet, and compare its power with that of its peers"),)
    if power.pct >= 5:
        cause = f"{hotter}: it draws {power.pct:.0f} % more power than its peers, which becomes heat"
        return (Clue("high_power", cause, "compare its power limit and clocks with its peers'"),)
    draws = f"though it draws no more power than its peers ({power.own:.0f} W, they {power.peers:.0f} W)"
    step = "check fans, dust, air flow and inlet temperature, then the GPU's heat sink"
    return (Clue("cooling", f"{hotter} {draws}: it is cooled worse", step),)


# --- figures that differ from the peers' ------------------------------------------------------------------------------


def _gap(
    category: str,
    read: Read,
    is_seen: Callable[[Gap], bool],
    cause: str,
    resolution: str,
    explains: Callable[[Case, Gap], float | None] = lambda case, gap: None,
    usual: float | None = None,
) -> Look:
    """A look at one figure. `cause` and `resolution` may hold {own}, {peers} and {less}, the percent that it is below
    its peers.
    """

    def look(case: Case) -> Iterator[Clue]:
        gap = case.gap(read, usual)
        if gap and is_seen(gap):
            figures = {**gap._asdict(), "less": -gap.pct}
            yield Clue(category, cause.format(**figures), resolution.format(**figures), explains(case, gap))

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
    "a bare matrix multiplication ({own:.0f} TFLOP/s) is {less:.1f} % slower than on its peers: it is the GPU itself, "
    "not data or host",
    "run dcgmi diag on the GPU, and swap it with a neighbour to see whether the fault moves with it",
    lambda _, gap: -gap.pct,
)  # fmt: skip
_DATA = _gap(
    "slow_data", lambda run: run.performance.loader_wait_pct, lambda gap: gap.points >= 1,
    "training waited for its data {own:.1f} % of the time, on its peers {peers:.1f} %",
    "check the disk or mount that the data comes from, and how many CPUs the pod has", _waited,
)  # fmt: skip
_RETRIES = _gap(
    "allocator_retries", lambda run: run.memory.alloc_retries, lambda gap: gap.points >= 1,
    "torch ran out of free GPU memory and had to free cached blocks and allocate again, {own:g} times (on its peers "
    "{peers:g})",
    "see what else holds memory on this GPU, and whether it is as large as its peers'",
)  # fmt: skip
_STEAL = _gap(
    "cpu_steal", lambda run: run.telemetry.host.cpu_steal_pct, lambda gap: gap.points >= 5,
    "the host gave {own:.0f} % of this machine's CPU time to others, on its peers {peers:.0f} %",
    "move the node to a quieter host, or use dedicated CPUs", _stolen,
)  # fmt: skip
_FULL_HOST = _gap(
    "host_memory_full", lambda run: run.telemetry.host.memory_used_pct, lambda gap: gap.own >= 95 > gap.peers,
    "the host's memory is full ({own:.0f} %, on its peers {peers:.0f} %), so it swaps or drops its cache",
    "find what holds the memory on the node, and end it",
)  # fmt: skip
_BUSY_HOST = _gap(
    "busy_host", lambda run: run.telemetry.host.cpu_utilisation_mean_pct, lambda gap: gap.points >= 30,
    "the host's CPUs were {own:.0f} % busy, those of its peers {peers:.0f} %",
    "find what computes on the node (top), and keep other work off GPU nodes",
)  # fmt: skip
_H2D = _gap(
    "slow_host_to_device", lambda run: run.probes.h2d_gb_per_s, lambda gap: gap.pct <= -10,
    "copies from host to GPU are {less:.0f} % slower than on its peers ({own:.1f} GB/s, there {peers:.1f})",
    "check the PCIe link, NUMA placement and the host's memory channels", _copies_pct,
)  # fmt: skip
_IDLE_GPU = _gap(
    "gpu_waits", GPU_UTILISATION_MEAN_PCT.value, lambda gap: gap.points <= -5,
    "the GPU was busy {own:.0f} % of the time, its peers' {peers:.0f} %: it waits for work",
    "look at the host: CPU frequency governor, NUMA placement of the pod, other work on its CPUs",
)  # fmt: skip
_OTHER_MEMORY = _gap(
    "other_gpu_memory", _memory_total_gb, lambda gap: abs(gap.pct) >= 1,
    "its GPU has {own:.1f} GB of memory, its peers' {peers:.1f} GB",
    "see whether it is another model or partitioned (MIG), and compare it with its own kind only",
)  # fmt: skip


def _communication(case: Case) -> Iterator[Clue]:
    bus = case.gap(lambda run: run.probes.allreduce_bus_gb_per_s)
    rate = f"; all-reduce at {bus.own:.0f} GB/s where its peers reach {bus.peers:.0f}" if bus else ""
    return _gap(
        "slow_communication", lambda run: run.communication.exposed_pct, lambda gap: gap.points >= 2,
        "its GPUs waited for each other {own:.1f} % of the time, its peers' {peers:.1f} %" + rate,
        "check NVLink (nvidia-smi nvlink -s) and the topology (nvidia-smi topo -m) against a good node", _waited,
    )(case)  # fmt: skip


# --- the rest ---------------------------------------------------------------------------------------------------------


def _drill(case: Case) -> Iterator[Clue]:
    drill = next((run.spec.drill for run in case.own if run.spec.drill), None)
    if drill:
        cause = f"this is a drill: the node was slowed on purpose by {drill.slowdown_pct:g} %"
        yield Clue("drill", cause, TRAITS[Why.DRILL].next_step)


def _gpu_events(case: Case) -> Iterator[Clue]:
    """What the GPUs said in the node's runs, and not in its peers'."""
    usual = {(finding.category, finding.cause) for finding in gpu_event_findings(case.peers)}
    for finding in gpu_event_findings(case.own):
        if finding.cause and (finding.category, finding.cause) not in usual:
            cause = f"{finding.measured}: {finding.cause[0].lower()}{finding.cause[1:]}"
            yield Clue(finding.category, cause, finding.resolution)


def _troubles(case: Case) -> Iterator[Clue]:
    if case.troubles:
        step = "look at the node's conditions and events (kubectl describe node) and fix these faults"
        yield Clue("node_trouble", f"the cluster says of the node: {listing(case.troubles)}", step)


def _low_clock(least_pct: float) -> Look:
    return _gap(
        "low_clock", SM_CLOCK_MEAN_MHZ.value, lambda gap: gap.pct <= -least_pct,
        "the SM clock is {less:.1f} % below its peers' ({own:.0f} MHz, theirs {peers:.0f})",
        "look for locked clocks or persistence mode off (nvidia-smi -q -d CLOCK)", lambda _, gap: -gap.pct,
    )  # fmt: skip


def _slows_clock(look: Look) -> Look:
    """What slows the clock costs what the clock costs; with a reason a small gap of the clock counts."""

    def told(case: Case) -> Iterator[Clue]:
        for clue in look(case):
            if low := next(_low_clock(1)(case), None):
                yield clue._replace(cause=f"{clue.cause}; {low.cause}", explains_pct=low.explains_pct)
            elif case.gap(SM_CLOCK_MEAN_MHZ.value):
                yield clue._replace(cause=f"{clue.cause}; its mean clock is nevertheless as high as its peers'")
            else:
                yield clue

    return told


def _throttle(category: str, classes: Sequence[str], cause: str, resolution: str, usual: float | None = 0.0) -> Look:
    def share_pct(run: RunResult) -> float | None:
        """Of the worst GPU. Classes may overlap, so the largest counts, not the sum."""
        shares = [gpu.throttle_share_pct for gpu in run.telemetry.gpus if gpu.throttle_share_pct is not None]
        return max((share.get(name, 0.0) for share in shares for name in classes), default=None)

    cause += " for {own:.0f} % of the time, usual {peers:.0f} %"
    return _slows_clock(_gap(category, share_pct, lambda gap: gap.points >= 5, cause, resolution, usual=usual))


def _thermal(case: Case) -> Iterator[Clue]:
    heat = case.gap(TEMPERATURE_MEAN_C.value)
    hotter = f" ({heat.own:.0f} °C, its peers {heat.peers:.0f} °C)" if heat and heat.points >= 5 else ""
    cause = f"the GPU was too hot{hotter} and slowed itself down"
    return _throttle("thermal_throttling", ("thermal", "hw_slowdown"), cause, "check fans, air flow and inlet")(case)


_POWER_CAP = _throttle(
    "power_capping", ("power_cap",), "the GPU ran into its power limit",
    "compare power limits and supplies with its peers", usual=None,  # a GPU at work may run into it all the time
)  # fmt: skip
_POWER_BRAKE = _throttle(
    "power_brake", ("power_brake",), "the machine's power supply made the GPU slow down",
    "check the power supplies of the machine and the power budget of its rack",
)  # fmt: skip
_LOCKED = _throttle(
    "clocks_locked", ("user_clocks",), "the GPU's clocks were limited by hand",
    "see who set them, and reset them (nvidia-smi -rac, -rgc)",
)  # fmt: skip
_POWER_LIMIT = _slows_clock(_gap(
    "power_limit_low", lambda run: setup_of(run.context).power_limit_w, lambda gap: gap.pct <= -2,
    "its power limit is {own:.0f} W, its peers' {peers:.0f} W",
    "set the power limit to {peers:.0f} W (nvidia-smi -pl)",
))  # fmt: skip


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
        links = f"generation {own[0]} x{own[1]} instead of {best[0]} x{best[1]}"
        yield Clue(
            "pcie_degraded", f"the GPU's PCIe link is narrower or slower than it should be ({links}){slower}",
            "reseat the GPU or its riser, and check the slot's bifurcation in the firmware", _copies_pct(case),
        )  # fmt: skip


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

    def odd(self, own: Iterable[RunResult], usual: Mapping[str, str]) -> dict[str, str]:
        """Name -> value of all that any of the `own` runs does otherwise."""
        odd: dict[str, str] = {}
        for mine in filter(None, map(self.read, own) if usual else ()):
            told = mine.keys() | usual.keys() if self.is_whole else mine.keys() & usual.keys()
            odd |= {name: mine.get(name, NONE) for name in told if mine.get(name) != usual.get(name)}
        return dict(sorted(odd.items()))


def _differ(odd: Mapping[str, str], usual: Mapping[str, str]) -> str:
    """ "driver differs from its peers (570.10, theirs 580.65)"."""
    values = "; ".join(f"{value}, theirs {usual.get(name, NONE)}" for name, value in odd.items())
    return f"{', '.join(odd)} differ{'s' if len(odd) == 1 else ''} from its peers ({values})"


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
    for each in (EXECUTION, VERSIONS, _HOST):
        usual = each.usual(case.peers)
        if odd := each.odd(case.own, usual):
            yield Clue(each.category, _differ(odd, usual), each.resolution)


# Certain faults first, then likely causes, then mere differences.
_LOOKS: tuple[Look, ...] = (
    _drill, _gpu_events, _troubles, _thermal, _POWER_LIMIT, _POWER_CAP, _POWER_BRAKE, _LOCKED,
    _low_clock(MIN_CLOCK_GAP_PCT), _MATMUL, _DATA, _communication, _RETRIES, _STEAL, _FULL_HOST,
    _BUSY_HOST, _pcie, _H2D, _IDLE_GPU, _differences,
)  # fmt: skip
# Other clues imply these: a hot GPU multiplies slowly, and one that waits for its data is not busy.
_SLOW_CLOCK = {"thermal_throttling", "power_limit_low", "power_capping", "power_brake", "clocks_locked"}
_CONSEQUENCES = {
    "low_clock": _SLOW_CLOCK,
    "power_capping": {"power_limit_low"},
    "slow_gpu": _SLOW_CLOCK | {"low_clock", "shared_gpu"},
    "gpu_waits": {"slow_data", "slow_communication", "cpu_steal", "busy_host", "host_memory_full"},
    "slow_host_to_device": {"pcie_degraded"},
    "cooling": {"thermal_throttling"},
    "hot": {"thermal_throttling"},
}


CAUSE_UNKNOWN = "cause_unknown"
MAX_GPUS = 3  # of a node that get a finding each; the node's reason counts the others
MAX_PEERS = 100  # peers' runs to compare with: their median needs no more
# By how the pod ended, where the cluster reported it, else by the run's status.
NEXT_STEP: dict[str, str] = {
    Status.OOM: "see which process holds GPU memory on this node; if all nodes fail, use a smaller micro-batch",
    Status.INVALID_LOSS: "repeat the run; NaN on one node alone points at its GPU: check ECC counters",
    Status.TIMEOUT: "read the pod's last log lines for the phase it hung in, then repeat",
    Status.INCOMPLETE: "read the end of pod.log in the store, or find out who ended the pod, then repeat",
    Status.ERROR: TRAITS[Why.FAILED].next_step,
    EndKind.EVICTED: "see why the node could not keep the pod (kubectl describe node: pressure, taints), then repeat",
    EndKind.NODE_LOST: "see why the node does not answer (power, network, kubelet), then repeat",
    EndKind.VANISHED: "ask who deletes pods in this namespace (the audit log knows), then repeat",
    EndKind.API: "check the Kubernetes API, then repeat",
    EndKind.UNAUTHORIZED: "renew the credentials of the Airflow connection, then repeat",
    EndKind.QUOTA: "raise the namespace's ResourceQuota, or run fewer pods at once; the node is not at fault",
    EndKind.UNSCHEDULABLE: "compare the node's labels, taints and free resources with the pod's requests",
    EndKind.NO_IMAGE: "see whether the node reaches the registry, and whether the image and its secret are right",
    EndKind.NOT_STARTED: "read the pod's events: a start waits for runtime class, device plugin and volumes",
    EndKind.OUT_OF_MEMORY: "raise the pod's memory (TRAINBENCH_MEMORY_GIB), or see what else fills the node's memory",
    EndKind.REFUSED: "run `trainbench doctor`: it names the right or the field that is refused",
    BROKEN_RESULT: "report the traceback in the log of the task with the result.json of the run",
}


def diagnose(
    groups: Sequence[GroupVerdict], results: Sequence[RunResult], known: Sequence[GpuNode] = ()
) -> tuple[Finding, ...]:
    """Findings in the order of the groups and nodes; `category` is the likely cause, or the reason without one.

    `known`: the nodes as the cluster listed them before the first run. A node with independent GPUs gets a finding for
    each GPU with the node's reason, up to MAX_GPUS; a pair gets one together. Of several groups, one that ran on one
    node only gets none for having nothing to compare with.
    """
    of_group = grouped((result.spec.identity.group_id, result) for result in results)
    troubles = {node.name: node.troubles for node in known}
    findings: list[Finding] = []
    for group in groups:
        runs = of_group.get(group.group_id, ())
        is_lone = len(groups) > 1 and len(group.nodes) == 1
        pair = [node for node in group.nodes if node.why is Why.PAIR]
        slower = min(pair, key=_slow_pct, default=None)
        for node in group.nodes:
            if (node in pair and node is not slower) or (is_lone and node.why is Why.NOTHING_TO_COMPARE):
                continue  # the finding on the slower of a pair names both
            for one in _by_gpu(node):
                if finding := _diagnosed(one, group, runs, troubles.get(node.node, ())):
                    of: dict[str, Any] = {"group_id": group.group_id}
                    if node is slower and len(pair) > 1:
                        summary = f"{TRAITS[Why.PAIR].several}: {node.node} has {one.reason}"
                        of |= {"nodes": tuple(each.node for each in pair), "summary": summary}
                    findings.append(finding.model_copy(update=of))
    return tuple(findings)


def _diagnosed(
    node: NodeVerdict, group: GroupVerdict, runs: Sequence[RunResult], troubles: Sequence[str]
) -> Finding | None:
    """`runs`: the group's; `troubles`: what the cluster reports of the node. None: it is well, or others explain it."""
    match node.why:
        case Why.SLOW | Why.HOT | Why.HEAVY | Why.BEHIND:
            return _deviates(node, _case(node, group, runs, troubles))
        case Why.UNSTEADY:
            return _unsteady(node, group, _case(node, group, runs, troubles))
        case Why.PAIR:
            clues = slow_clues(_case(node, group, runs, troubles))
            cause = f"It is not known which one is off. {capitalised(clues[0].cause)}" if clues else None
            return _finding(node, Why.PAIR, _rates(node), cause=cause)
        case Why.FAILED | Why.MISSING:
            return _gone(node, [run for run in runs if run.spec.identity.node == node.node], troubles)
        case Why.OTHER_NUMBERS | Why.SHARED | Why.NOISY | Why.OTHER_CHOICE | Why.NOTHING_TO_COMPARE | Why.ONCE:
            return plain_finding(node)
    return None


def difference_findings(results: Sequence[RunResult]) -> tuple[Finding, ...]:
    """Findings on nodes with another execution, or other versions, than most runs of their work, slow or not."""
    works = grouped(
        ((run.spec.identity.group_id, gpu_name(run), choice_of(run)), run) for run in results if run.status is Status.OK
    )
    return tuple(
        Finding(
            level=level,
            category=kind.category,
            nodes=(node,),
            measured=", ".join(f"{name} {value}" for name, value in odd.items()),
            expected=", ".join(f"{name} {usual.get(name, NONE)}" for name in odd) + ", as on most of its peers",
            summary=f"{summary}: {_differ(odd, usual)}",
            resolution=kind.resolution,
        )
        for runs in works.values()
        for level, kind, summary in _DIFFERENCES
        for usual in [kind.usual(runs)]
        for node, own in grouped((run.spec.identity.node, run) for run in runs).items()
        if (odd := kind.odd(own, usual))
    )


_DIFFERENCES = (
    (Level.WARNING, EXECUTION, "executes the same work otherwise, so that speeds are not comparable"),
    (Level.INFO, VERSIONS, "has other versions"),
)


# --- the subject: a node, or one GPU of it ----------------------------------------------------------------------------


def _by_gpu(node: NodeVerdict) -> Sequence[NodeVerdict]:
    """The node, or each of its GPUs with the node's reason, the worst first, as a node of one GPU."""
    bad = [gpu for gpu in node.gpus if gpu.why is node.why and gpu.state is node.state]
    most = 1 if node.why is Why.PAIR else MAX_GPUS
    return [
        node.model_copy(
            update={
                **{name: getattr(gpu, name) for name in type(gpu).model_fields if name in NodeVerdict.model_fields},
                "reason": f"{gpu.name}: {gpu.reason}",
                "gpus": (gpu,),
            }
        )
        for gpu in sorted(bad, key=lambda gpu: (_slow_pct(gpu), gpu.index))[:most]
    ] or [node]


def _rates(verdict: Verdict) -> list[Comparison]:
    return [c for c in verdict.comparisons if c.metric is Metric.SAMPLES_PER_SECOND]


def _slow_pct(verdict: Verdict) -> float:
    """The deviation of samples/s that decided, if beyond its limit; else that from the peers, or what there is."""
    rates, decides = _rates(verdict), verdict.decides
    shown = decides if decides and decides in rates and decides.is_off else next(iter(rates), None)
    return shown.deviation if shown else 0.0


def _case(node: NodeVerdict, group: GroupVerdict, runs: Sequence[RunResult], troubles: Sequence[str]) -> Case:
    """The valid runs of the node, and of its peers; of one GPU those of GPUs. Drilled peers are left out; red ones too,
    while others are left.
    """
    gpu = node.gpus[0] if len(node.gpus) == 1 else None
    own_key = Key(node.node, GpuPlace(gpu.index, gpu.uuid) if gpu else None)
    judged: list[tuple[Key, RunResult]] = []
    for run in runs:
        name, parts = run.spec.identity.node, by_gpu(run) if gpu else {}
        judged += [(Key(name, place), part) for place, part in parts.items()] or [(Key(name), run)]
    valid = [
        (key, run)
        for key, run in judged
        if run.status is Status.OK and gpu_name(run) == group.gpu_name and group.choice in (None, choice_of(run))
    ]
    bad = {Key(other.node) for other in group.nodes if _is_no_example(other)}
    bad |= {Key(n.node, GpuPlace(gpu.index, gpu.uuid)) for n in group.nodes for gpu in n.gpus if _is_no_example(gpu)}
    peers = [(key, run) for key, run in valid if key != own_key and not run.spec.drill]
    peers = [(key, run) for key, run in peers if key.node != node.node] or peers
    healthy = [run for key, run in peers if key not in bad] or [run for _, run in peers]
    own = [run for key, run in valid if key == own_key]
    return Case(own, healthy[:: max(len(healthy) // MAX_PEERS, 1)], max(-_slow_pct(node), 0.0), troubles)


def _is_no_example(verdict: NodeVerdict | GpuVerdict) -> bool:
    return verdict.is_red or verdict.why is Why.SHARED


# --- one finding for each reason --------------------------------------------------------------------------------------


def _finding(
    node: NodeVerdict, category: str, shown: Sequence[Comparison] = (), clues: Sequence[Clue] = (), **fields: str | None
) -> Finding:
    """The finding on the node's reason. `shown`: the comparisons in the columns of measured and expected figures."""
    texts = {
        "measured": "; ".join(f"{METRIC_NAMES[c.metric]} {signed(c.deviation, METRIC_UNITS[c.metric])}" for c in shown),
        "expected": "; ".join(map(_limit, shown)),
        "summary": f"{TRAITS[node.why].one}: {node.reason}",
        "resolution": clues[0].resolution if clues else TRAITS[node.why].next_step,
    }
    of = {"category": category, "evidence": node.off, "is_drill": node.is_drill}
    return plain_finding(node).model_copy(update=of | texts | fields)


def _limit(c: Comparison) -> str:
    side = "below" if c.metric is Metric.SAMPLES_PER_SECOND else "above"
    return f"at most {c.limit:g}{METRIC_UNITS[c.metric]} {side} {c.source}"


def _deviates(node: NodeVerdict, case: Case) -> Finding:
    """Slow, behind, hot or heavy: with the causes of each metric that is off."""
    shown = tuple(dict.fromkeys(filter(None, (node.decides, *node.off))))
    clues: list[Clue] = []
    for metric in dict.fromkeys(c.metric for c in shown):
        find, unknown = _CLUES[metric]
        found = find(case)
        # `cause_unknown` comes first where no clue explains enough
        if not found or (metric is Metric.SAMPLES_PER_SECOND and explains_nothing(found[0], case.off_pct)):
            clues.append(_unknown(node, unknown if case.peers else "it has no peer to compare its figures with"))
        clues += found
    clues = _causes(clues)
    return _finding(node, clues[0].category, shown, clues, cause=_told(clues, case.off_pct))


def _told(clues: Sequence[Clue], off_pct: float) -> str:
    """The likely cause, and what else is odd."""
    first, *others = clues
    also = (f"{each.cause}{', too little to explain it' if explains_nothing(each, off_pct) else ''}" for each in others)
    further = f" (also: {'; '.join(also)})" if others else ""
    return f"{capitalised(cause_with_share(first, off_pct))}{further}"


_CLUES: Mapping[Metric, tuple[Callable[[Case], tuple[Clue, ...]], str]] = {
    Metric.SAMPLES_PER_SECOND: (slow_clues, "no measured figure distinguishes the node from its peers"),
    Metric.MEMORY_GB: (
        memory_clues, "versions, execution and GPU are those of its peers, but it allocated more memory",
    ),
    Metric.TEMPERATURE_C: (temperature_clues, "its peers are as hot, or their temperature is not known"),
}  # fmt: skip


def _unknown(node: NodeVerdict, because: str) -> Clue:
    return Clue(CAUSE_UNKNOWN, f"nothing explains it: {because}", TRAITS[node.why].next_step)


def _unsteady(node: NodeVerdict, group: GroupVerdict, case: Case) -> Finding:
    clues = slow_clues(case) or (_unknown(node, "only its scatter distinguishes the node from its peers"),)
    lowest = case.gap(SM_CLOCK_MIN_MHZ.value)
    fell = ""
    if lowest and lowest.pct <= -MIN_CLOCK_GAP_PCT:
        fell = f"; its SM clock fell to {lowest.own:.0f} MHz at the lowest, its peers' to {lowest.peers:.0f}"
    return _finding(
        node,
        Why.UNSTEADY,
        clues=clues,
        measured=f"a scatter of {noise_share(node.noise_pct)}",
        expected=f"{noise_share(group.noise_pct)}, as its peers",
        cause=f"{_told(clues, 0.0)}{fell}",
    )


def _gone(node: NodeVerdict, own: Sequence[RunResult], troubles: Sequence[str]) -> Finding:
    """Failed, or missing: with what the cluster says of the node."""
    of_cluster = f"The cluster says of the node: {listing(troubles)}" if troubles else None
    if node.why is Why.MISSING:
        fields = {"summary": "was expected, but gave no result", "cause": of_cluster}
        return _finding(node, "node_missing", (), (), measured="no result", expected="at least one", **fields)
    failed = [(run.status, run.error.kind) for run in own if run.error and run.error.kind not in NOT_FREE]
    status, kind = failed[0] if failed else (Status.ERROR, "")
    return _finding(
        node,
        f"run_{status.value}",
        measured=f"{len(failed)} of {len(own)} runs failed",
        expected="0",
        cause=of_cluster,
        resolution=NEXT_STEP.get(kind) or NEXT_STEP[status],
    )

"""Runs that may be compared: groups of equal work, the entries of a group, one for each strategy and size, and the kind
of GPU of each node, also where its run does not report it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from bench_image.contract.fingerprint import fingerprint
from bench_image.contract.options import Strategy
from bench_image.contract.result import RunResult
from bench_image.contract.result_sections import Clock
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import AUTO, PRESET_SETTINGS, Device, Preset
from trainbench.core.formats import count, share
from trainbench.core.grouping import grouped
from trainbench.core.known_values import known_median
from trainbench.figure_catalogue.figure import Figure
from trainbench.figure_catalogue.run_figures import PEAK_MEMORY_GB, SAMPLES_PER_SECOND, TOKENS_PER_SECOND
from trainbench.judging.noise import Run, chance_of_median, to_pct
from trainbench.planning.plan import Skipped
from trainbench.results.campaign import Campaign
from trainbench.results.readings import gpu_name, hardware_name, is_measured

# The settings of one preset: jobs that are equal at these settings differ in their presets only.
DECIDED_BY_PRESET: Mapping[str, Any] = {"preset": Preset.AS_USERS_RUN, **PRESET_SETTINGS[Preset.AS_USERS_RUN]}


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkGroup:
    """Runs of equal work on the same kind of GPU; `spec` is the first one's."""

    spec: RunSpec
    gpu_name: str | None
    results: tuple[RunResult, ...]

    @property
    def hardware(self) -> str:
        return hardware_name(self.spec, self.gpu_name)

    @property
    def rank_noun(self) -> str:
        """ "GPU"; "process" on a CPU."""
        return self.spec.work.device.rank_noun


def by_work(spec: RunSpec) -> str:
    """Strategies, numbers of GPUs and lengths of measurement may differ; of a command of the user's own the samples of
    a step too, which are of all its GPUs. Fewer samples than GPUs: its log does not tell them, and no other size is
    like it.
    """
    work, gpus = spec.work, spec.placement.world_size
    if work.own_job and work.micro_batch_size != AUTO and (gpus == 1 or work.micro_batch_size >= gpus):
        work = work.model_copy(update={"micro_batch_size": AUTO})
    return fingerprint(work)


def by_placed_work(spec: RunSpec) -> str:
    """The length of the measurement may differ."""
    return fingerprint(spec.work, spec.placement)


def by_job(spec: RunSpec) -> str:
    """Presets, and what they decide, may differ."""
    return by_placed_work(spec.changed(work=DECIDED_BY_PRESET))


def work_groups(results: Sequence[RunResult], key: Callable[[RunSpec], str] = by_work) -> tuple[WorkGroup, ...]:
    """The measured runs of one `key` and kind of GPU, in the order of their first run.

    A micro-batch that the program chose is that run's work. Failed runs and drills are left out.
    """
    groups = grouped(((key(run.effective_spec), gpu_name(run)), run) for run in results if is_measured(run))
    return tuple(
        WorkGroup(spec=members[0].effective_spec, gpu_name=gpu, results=tuple(members))
        for (_, gpu), members in groups.items()
    )


def differences(one: WorkGroup, other: WorkGroup) -> tuple[str, ...]:
    """The differences between the work of two groups, as "gradient_accumulation_steps 4 vs 1"."""
    mine, its = (group.spec.work.model_dump(mode="json") for group in (one, other))
    fields = tuple(f"{name} {value_text(a)} vs {value_text(b)}" for name, a, b in _differing(mine, its))
    return fields if one.hardware == other.hardware else (*fields, f"GPU {one.hardware} vs {other.hardware}")


def changed_fields(before: RunSpec, after: RunSpec) -> tuple[str, ...]:
    """The changes from `before` to `after`, as "seq_length 512, was 1024"."""
    old, new = (spec.work.model_dump(mode="json") | spec.placement.model_dump(mode="json") for spec in (before, after))
    return tuple(f"{name} {value_text(a)}, was {value_text(b)}" for name, a, b in _differing(new, old))


def nearest_group(group: WorkGroup, others: Sequence[WorkGroup]) -> WorkGroup | None:
    """The group that differs least from `group`; None when there is no other."""
    rest = [other for other in others if other is not group]
    return min(rest, key=lambda other: len(differences(group, other)), default=None)


def work_names(groups: Sequence[WorkGroup]) -> tuple[str, ...]:
    """The name of each group, as "tier-a full, batch 1 x 2048 tokens, accumulation 4, tuned, NVIDIA A10", with its
    differences from other groups of that name.
    """
    by_name, names = grouped((_plain_name(group), group) for group in groups), []
    for group in groups:
        others = [other for other in by_name[_plain_name(group)] if other is not group]
        apart = (difference.split(" vs ", 1)[0] for other in others for difference in differences(group, other))
        names.append(", ".join([_plain_name(group), *dict.fromkeys(apart)]))
    return tuple(names)


def named_work_groups(results: Sequence[RunResult]) -> list[tuple[str, WorkGroup]]:
    """The groups of equal work, each with its name among them."""
    groups = work_groups(results)
    return list(zip(work_names(groups), groups, strict=True))


def _plain_name(group: WorkGroup) -> str:
    work = group.spec.work
    is_one_size = len({result.effective_spec.work.size for result in group.results}) == 1
    steps = work.gradient_accumulation_steps
    parts = (
        work.name,
        work.size if is_one_size else "",
        f"accumulation {steps}" if steps > 1 else "",
        "" if work.own_job else work.preset.value,
        group.hardware,
    )
    return ", ".join(filter(None, parts))


def _differing(one: dict[str, Any], other: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object, object]]:
    for name in one | other:
        mine, its = one.get(name), other.get(name)
        if isinstance(mine, dict) and isinstance(its, dict):
            yield from _differing(mine, its, f"{prefix}{name}.")
        elif mine != its:
            yield f"{prefix}{name}", mine, its


def value_text(value: Any) -> str:
    """The value of a field of the work as text."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, dict):
        return f"shards in {value['folder']}" if "folder" in value else "given"
    return value if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True, kw_only=True)
class MeasuredRuns:
    """Runs that stand for one thing: their figures are medians."""

    results: tuple[RunResult, ...]

    def figure(self, figure: Figure) -> float | None:
        return self.median(figure.value)

    def median(self, value: Callable[[RunResult], float | None]) -> float | None:
        return known_median(map(value, self.results))

    @cached_property
    def noise(self) -> float:
        """How far chance may have moved the throughput, as a logarithm: see `chance_of_median`."""
        return chance_of_median(list(map(run_of, self.results)))

    @property
    def noise_pct(self) -> float:
        return to_pct(self.noise)


def run_of(result: RunResult) -> Run:
    """A run that measured a throughput, as noise is estimated from it."""
    performance = result.performance
    windows = tuple(window.samples_per_second for window in performance.windows)
    return Run(result.spec.identity.round, performance.samples_per_second or 0.0, windows)


@dataclass(frozen=True, kw_only=True)
class Entry(MeasuredRuns):
    """The runs of one strategy at one size."""

    strategy: Strategy
    world_size: int

    @cached_property
    def tokens_per_s(self) -> float:
        return self.figure(TOKENS_PER_SECOND) or 0.0

    @cached_property
    def samples_per_s(self) -> float:
        return self.figure(SAMPLES_PER_SECOND) or 0.0

    @cached_property
    def memory_gb(self) -> float | None:
        return self.figure(PEAK_MEMORY_GB)

    @property
    def num_nodes(self) -> int:
        return max(result.spec.placement.nodes for result in self.results)

    @cached_property
    def nodes(self) -> frozenset[str]:
        """The machines of all runs."""
        return frozenset(name for result in self.results for name in result.spec.identity.nodes)

    @property
    def on_cpu(self) -> bool:
        return self.results[0].spec.work.device is Device.CPU

    @property
    def by_cpu_time(self) -> bool:
        """Whether its rates are by the process' CPU time, which is not the time on the wall."""
        return self.results[0].performance.clock is Clock.PROCESS_CPU

    @property
    def size(self) -> str:
        """ "4 GPUs", on a CPU "4 processes"; with the number of nodes when there are several."""
        of = f" of {count(self.num_nodes, 'node')}" if self.num_nodes > 1 else ""
        return f"{count(self.world_size, self.results[0].spec.work.device.rank_noun)}{of}"

    @property
    def name(self) -> str:
        """ "ddp on 4 GPUs"."""
        return f"{self.strategy} on {self.size}"


def entries(group: WorkGroup, size: int) -> list[Entry]:
    """The entries of one world size, fastest first."""
    runs = grouped((r.spec.placement.strategy, r) for r in group.results if r.spec.placement.world_size == size)
    of_size = [Entry(strategy=strategy, world_size=size, results=tuple(of)) for strategy, of in runs.items()]
    return sorted(of_size, key=lambda entry: -entry.tokens_per_s)


def all_entries(group: WorkGroup) -> list[Entry]:
    """The entries of all world sizes, the smallest size first, within a size the fastest."""
    return [entry for size in world_sizes(group) for entry in entries(group, size)]


def world_sizes(group: WorkGroup) -> list[int]:
    """The numbers of GPUs that were measured, smallest first."""
    return sorted({result.spec.placement.world_size for result in group.results})


def apart_pct(one: Entry, other: Entry) -> float:
    """How far the slower lies below the faster, in percent of the faster."""
    low, high = sorted((one.tokens_per_s, other.tokens_per_s))
    return 100 * (1 - low / high) if high else 0.0


def both_noises_pct(one: Entry, other: Entry) -> float:
    """How far apart chance may bring two independent figures, in percent of the larger."""
    return to_pct(math.hypot(one.noise, other.noise))


def is_tie(one: Entry, other: Entry) -> bool:
    """Whether two entries differ by no more than their noise."""
    return apart_pct(one, other) <= both_noises_pct(one, other)


def level_with(entry: Entry, others: Sequence[Entry]) -> list[Entry]:
    """The members of `others` that differ from `entry` by no more than the noise."""
    return [other for other in others if other is not entry and is_tie(entry, other)]


def places(ranked: Sequence[Entry]) -> list[str]:
    """The place of each strategy of one size, the fastest first: "2 of 3"; "too noisy" where another is level with it,
    "alone" without another.
    """
    if len(ranked) == 1:
        return ["alone"]
    return [
        "too noisy" if level_with(each, ranked) else f"{number} of {len(ranked)}"
        for number, each in enumerate(ranked, start=1)
    ]


def tie_sentences(ranked: Sequence[Entry]) -> tuple[str, ...]:
    """A sentence for each pair of neighbours in the ranking whose difference is within their noise."""
    return tuple(
        f"{first.name} and {second.strategy} are level: {share(apart_pct(first, second))} apart, within their noise of "
        f"{share(both_noises_pct(first, second))}."
        for first, second in pairwise(ranked)
        if is_tie(first, second)
    )


CPU, UNKNOWN = "CPU", "GPU unknown"


def gpu_kind_by_node(campaign: Campaign) -> Mapping[str, str]:
    """Node -> its GPU's name as NVML prints it; as the cluster labels it where no run of that kind reports it; else
    CPU or "GPU unknown".
    """
    reported = {r.spec.identity.node: name for r in campaign.results if (name := gpu_name(r))}
    labels = {node.name: node.gpu_product for node in campaign.known if node.gpu_product}
    labels |= {node: skip.gpu_product for skip in campaign.skipped if skip.gpu_product for node in skip.nodes}
    spelled = {gpu_label(name): name for name in reported.values()}
    on_cpu = {r.spec.identity.node for r in campaign.results if r.spec.work.device is Device.CPU}
    nodes = dict.fromkeys([*(r.spec.identity.node for r in campaign.results), *labels, *reported])
    return {
        node: CPU
        if node in on_cpu
        else reported.get(node) or spelled.get(gpu_label(labels.get(node)), labels.get(node)) or UNKNOWN
        for node in nodes
    }


def kind_of_skipped(skip: Skipped, of_node: Mapping[str, str]) -> tuple[str, ...]:
    """The kinds that were left out, each once."""
    return tuple(dict.fromkeys(of_node.get(node, UNKNOWN) for node in skip.nodes))


def gpu_label(name: str | None) -> str:
    """A GPU's name as GPU feature discovery writes it into a label: without spaces."""
    return "-".join((name or "").split())

"""Groups of runs that may be ranked against each other: those of equal work, by fingerprint."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench_image.contract.fingerprint import fingerprint
from bench_image.contract.result import RunResult
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import PRESET_SETTINGS, Preset
from trainbench.core.grouping import grouped
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
    """Strategies, numbers of GPUs and lengths of measurement may differ."""
    return fingerprint(spec.work)


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
    by_name = grouped((_plain_name(group), group) for group in groups)
    return tuple(_name_among(group, by_name[_plain_name(group)]) for group in groups)


def named_work_groups(results: Sequence[RunResult]) -> list[tuple[str, WorkGroup]]:
    """The groups of equal work, each with its name among them."""
    groups = work_groups(results)
    return list(zip(work_names(groups), groups, strict=True))


def _plain_name(group: WorkGroup) -> str:
    work = group.spec.work
    steps = work.gradient_accumulation_steps
    parts = (
        f"{work.model} {work.recipe}",
        f"batch {work.micro_batch_size} x {work.seq_length} tokens",
        f"accumulation {steps}" if steps > 1 else "",
        work.preset.value,
        group.hardware,
    )
    return ", ".join(filter(None, parts))


def _name_among(group: WorkGroup, namesakes: Sequence[WorkGroup]) -> str:
    others = [other for other in namesakes if other is not group]
    own = dict.fromkeys(difference.split(" vs ", 1)[0] for other in others for difference in differences(group, other))
    return ", ".join([_plain_name(group), *own])


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

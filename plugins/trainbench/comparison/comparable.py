"""Which runs may be ranked against each other: those that did equal work, as their fingerprints prove."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench_image.contract.fingerprint import ACROSS_STRATEGIES, HOW_MEASURED, NOT_WORK, fingerprint
from bench_image.contract.result import RunResult
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Device
from trainbench.results.readings import gpu_name, is_measured

# What may differ between the rows of a table of strategies: strategy and number of GPUs, and how long was measured.
ACROSS = ACROSS_STRATEGIES | HOW_MEASURED
# Presets do one training job by other means; these are the means.
MEANS = frozenset({"preset", "optimizer", "gradient_checkpointing"})


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkGroup:
    """Runs of equal work on the same kind of GPU; `work` is the first one's."""

    work: RunSpec
    gpu_name: str | None
    results: tuple[RunResult, ...]

    @property
    def hardware(self) -> str:
        return "CPU" if self.work.device is Device.CPU else self.gpu_name or "GPU unknown"


def work_groups(results: Sequence[RunResult], besides: frozenset[str] = ACROSS) -> tuple[WorkGroup, ...]:
    """The measured runs by what they did, in the order of their first run; fields in `besides` may differ.

    What counts is what ran: a micro-batch that the program chose is that run's work. Failed runs and drills are left
    out.
    """
    groups: dict[tuple[str, str | None], list[RunResult]] = {}
    for result in results:
        if is_measured(result):
            groups.setdefault((fingerprint(result.work, besides), gpu_name(result)), []).append(result)
    return tuple(
        WorkGroup(work=members[0].work, gpu_name=gpu, results=tuple(members)) for (_, gpu), members in groups.items()
    )


def differences(one: WorkGroup, other: WorkGroup, besides: frozenset[str] = ACROSS) -> tuple[str, ...]:
    """What makes two groups unequal work, as "gradient_accumulation_steps 4 vs 1"."""
    mine, its = (group.work.model_dump(mode="json", exclude=set(NOT_WORK | besides)) for group in (one, other))
    fields = tuple(f"{name} {told(a)} vs {told(b)}" for name, a, b in _differing(mine, its))
    return fields if one.hardware == other.hardware else (*fields, f"GPU {one.hardware} vs {other.hardware}")


def changed_fields(before: RunSpec, after: RunSpec) -> tuple[str, ...]:
    """What makes `after` other work than `before`, as "seq_length 512, was 1024"."""
    old, new = (work.model_dump(mode="json", exclude=set(NOT_WORK | HOW_MEASURED)) for work in (before, after))
    return tuple(f"{name} {told(a)}, was {told(b)}" for name, a, b in _differing(new, old))


def nearest(group: WorkGroup, others: Sequence[WorkGroup], besides: frozenset[str] = ACROSS) -> WorkGroup | None:
    """The group that differs least from `group`; None when there is no other."""
    rest = [other for other in others if other is not group]
    return min(rest, key=lambda other: len(differences(group, other, besides)), default=None)


def work_names(groups: Sequence[WorkGroup], besides: frozenset[str] = ACROSS) -> tuple[str, ...]:
    """For each group "tier-a full, batch 1 x 2048 tokens, accumulation 4, tuned, NVIDIA A10", and in what it differs
    from another of that name.
    """
    by_name: dict[str, list[WorkGroup]] = {}
    for group in groups:
        by_name.setdefault(_plain_name(group), []).append(group)
    return tuple(_name_among(group, by_name[_plain_name(group)], besides) for group in groups)


def _plain_name(group: WorkGroup) -> str:
    work = group.work
    steps = work.gradient_accumulation_steps
    parts = (
        f"{work.model} {work.recipe}",
        f"batch {work.micro_batch_size} x {work.seq_length} tokens",
        f"accumulation {steps}" if steps > 1 else "",
        work.preset.value,
        group.hardware,
    )
    return ", ".join(filter(None, parts))


def _name_among(group: WorkGroup, namesakes: Sequence[WorkGroup], besides: frozenset[str]) -> str:
    others = [other for other in namesakes if other is not group]
    own = dict.fromkeys(
        difference.split(" vs ", 1)[0] for other in others for difference in differences(group, other, besides)
    )
    return ", ".join([_plain_name(group), *own])


def _differing(one: dict[str, Any], other: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object, object]]:
    for name in one | other:
        mine, its = one.get(name), other.get(name)
        if isinstance(mine, dict) and isinstance(its, dict):
            yield from _differing(mine, its, f"{prefix}{name}.")
        elif mine != its:
            yield f"{prefix}{name}", mine, its


def told(value: Any) -> str:
    """The value of a field of the work, in a word."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, dict):
        return f"shards in {value['folder']}" if "folder" in value else "given"
    return value if isinstance(value, str) else json.dumps(value)

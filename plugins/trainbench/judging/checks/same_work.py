"""Checks that runs of equal work computed the same: losses, parameters, execution. Fingerprints compare plans only.

Equal work at one seed on one kind of GPU has nearly the same losses. Of the equal runs in docs/results (114 of 28
works: QLoRA, LoRA, full, 16 and 8 bit) the first measured losses lie at most 0.031 % apart, the mean losses over
equally many steps at most 0.035 %. A node that is off by FIRST_LOSS_PCT or MEAN_LOSS_PCT computes something else: other
weights, other data or wrong numbers, and no other figure shows it. Its figures do not measure the work, so
`fail_unequal_work` turns the run into a failed one.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from bench_image.contract.result import Phase, RunError, RunResult, Status
from bench_image.contract.result_sections import Performance
from trainbench.core.formats import listing
from trainbench.core.grouping import grouped
from trainbench.core.verdicts import OTHER_WORK, Finding, Level
from trainbench.judging.node_runs import choice_of, gpu_name
from trainbench.results.setups import setup_of, versions

FIRST_LOSS_PCT = 0.1  # of the peers' first loss: over 3 times what equal runs differ by
MEAN_LOSS_PCT = 0.5  # of the peers' mean loss: over 14 times. Errors of rounding grow with the steps
SMALLEST_DIFFERENCE = 0.005  # of losses near 0, where a percentage is meaningless
OTHER_EXECUTION, OTHER_VERSIONS = "other_execution", "other_versions"

Parameters = tuple[int, int]  # total, trainable


class _Losses(NamedTuple):
    """`num_steps`: over which the mean is taken. `fall`: between the first step and the last."""

    first: float | None
    mean: float | None
    num_steps: int
    fall: float


class _Member(NamedTuple):
    """One run of the work, or one independent rank of it. None: unknown."""

    place: int  # in the results
    rank: int | None
    node: str
    who: str  # "node-3" or "node-3, GPU 5 (GPU-6f1e)"
    losses: _Losses
    parameters: Parameters | None


class _Usual(NamedTuple):
    """The values that more than half of a group's machines share, two at least; None without such a majority."""

    first_loss: float | None
    mean_loss: _Losses | None
    parameters: Parameters | None


def fail_unequal_work(results: Sequence[RunResult], beside: Sequence[RunResult] = ()) -> tuple[RunResult, ...]:
    """The results, in which each run that computed something else than most of its peers is a failed run.

    Its figures stay in it, and its error names the difference. `beside`: further peers. Without a majority nothing
    changes, and `unequal_work_findings` reports the group.
    """
    everything = (*results, *beside)
    reasons: dict[int, dict[int | None, str]] = {}
    for members in _groups(everything):
        for member, reason in _odd(members):
            reasons.setdefault(member.place, {})[member.rank] = reason
    return tuple(_failed(run, reasons[i]) if i in reasons else run for i, run in enumerate(results))


def unequal_work_findings(results: Sequence[RunResult]) -> tuple[Finding, ...]:
    """Findings on runs with another execution or version than their peers, and on groups without a majority. They fail
    no run.
    """
    return (*_unlike_most(results), *(finding for members in _groups(results) for finding in _no_majority(members)))


def _groups(results: Sequence[RunResult]) -> list[list[_Member]]:
    """Runs of one work, one choice and one kind of GPU. Drilled runs compute the same, only slower."""
    work = ((_work(result), member) for place, result in enumerate(results) for member in _members(place, result))
    return list(grouped(work).values())


def _work(result: RunResult) -> Hashable:
    return result.spec.identity.campaign_id, result.spec.identity.group_id, gpu_name(result), choice_of(result)


def _members(place: int, result: RunResult) -> Iterator[_Member]:
    """The run, or those of its independent ranks that ended well; empty for a failed run."""
    total, trainable, node = result.parameters.total, result.parameters.trainable, result.spec.identity.node
    parameters = None if total is None or trainable is None else (total, trainable)
    own = [(rank, rank.performance) for rank in result.ranks if rank.performance is not None]
    if not own and result.status is Status.OK:
        yield _Member(place, None, node, node, _losses(result.performance), parameters)
    for rank, performance in own:
        if rank.status is Status.OK:
            gpu = f"GPU {rank.rank}" + (f" ({rank.gpu_uuid})" if rank.gpu_uuid else "")
            yield _Member(place, rank.rank, node, f"{node}, {gpu}", _losses(performance), parameters)


def _losses(performance: Performance) -> _Losses:
    first, last = performance.first_loss, performance.last_loss
    fall = abs(first - last) if first is not None and last is not None else 0.0
    return _Losses(first, performance.mean_loss, performance.measured_steps, fall)


def _odd(members: Sequence[_Member]) -> Iterator[tuple[_Member, str]]:
    """The members that differ from their group's majority, each with a phrase on the difference."""
    usual = _usual(members)
    for member in members:
        if usual.parameters and member.parameters and member.parameters != usual.parameters:
            yield member, f"{_counted(member.parameters)}, its peers {_counted(usual.parameters)}"
        elif _differ(member.losses.first, usual.first_loss):
            yield member, f"first loss {member.losses.first:.5g}, its peers {usual.first_loss:.5g} at the same seed"
        elif usual.mean_loss and _means_differ(member.losses, usual.mean_loss):
            yield member, f"mean loss {member.losses.mean:.5g}, its peers {usual.mean_loss.mean:.5g} at the same seed"


def _usual(members: Sequence[_Member]) -> _Usual:
    """The majority's values; each machine has one vote, however often it ran."""
    firsts, means = _firsts(members), _means(members)
    parameters = {member.who: member.parameters for member in members if member.parameters}  # of the last run
    first = statistics.median_low(firsts.values()) if firsts else None
    mean = _middle(means.values())
    same_first = sum(not _differ(loss, first) for loss in firsts.values())
    same_mean = sum(not _means_differ(losses, mean) for losses in means.values()) if mean else 0
    kinds = Counter(parameters.values()).most_common(1)
    return _Usual(
        first_loss=first if _is_majority(same_first, len(firsts)) else None,
        mean_loss=mean if _is_majority(same_mean, len(means)) else None,
        parameters=kinds[0][0] if kinds and _is_majority(kinds[0][1], len(parameters)) else None,
    )


def _is_majority(votes: int, of: int) -> bool:
    return votes >= 2 and 2 * votes > of


def _firsts(members: Sequence[_Member]) -> dict[str, float]:
    """Machine -> the median first loss of its runs."""
    known = ((member.who, member.losses.first) for member in members)
    of = grouped((who, loss) for who, loss in known if loss is not None and math.isfinite(loss))
    return {who: statistics.median_low(losses) for who, losses in of.items()}


def _means(members: Sequence[_Member]) -> dict[str, _Losses]:
    """Machine -> the losses of its run with the median mean loss."""
    known = ((member.who, member.losses) for member in members)
    of = grouped((who, losses) for who, losses in known if losses.mean is not None and math.isfinite(losses.mean))
    return {who: middle for who, losses in of.items() if (middle := _middle(losses))}


def _middle(losses: Iterable[_Losses]) -> _Losses | None:
    """Those with the median mean; of an even number the lower middle one."""
    ordered = sorted(losses, key=lambda each: each.mean or 0.0)
    return ordered[(len(ordered) - 1) // 2] if ordered else None


def _differ(loss: float | None, other: float | None, limit_pct: float = FIRST_LOSS_PCT, allowed: float = 0.0) -> bool:
    if loss is None or other is None:
        return False
    allowed += max(abs(other) * limit_pct / 100, SMALLEST_DIFFERENCE)
    return not abs(loss - other) <= allowed  # so that NaN differs


def _means_differ(own: _Losses, usual: _Losses) -> bool:
    """A node that is slow does fewer steps within the time of a window, and losses fall: the mean of fewer steps is
    higher by at most the share of steps that it lacks, of the fall.
    """
    few, many = sorted((own.num_steps, usual.num_steps))
    lacking = 1 - few / many if many else 0.0
    return _differ(own.mean, usual.mean, MEAN_LOSS_PCT, allowed=lacking * usual.fall)


def _counted(parameters: Parameters) -> str:
    return f"{parameters[0]:,} parameters, {parameters[1]:,} of them trained"


def _failed(result: RunResult, reasons: dict[int | None, str]) -> RunResult:
    """The result as failed; of independent ranks only the odd ones fail. An error of the run itself comes first."""
    node = result.spec.identity.node
    texts = [
        f"{node if rank is None else f'GPU {rank} of {node}'} computes something else: {reason}"
        for rank, reason in reasons.items()
    ]
    before = (result.error.message,) if result.error else ()
    message = "; ".join((*before, *texts))[:4000]
    error = result.error or RunError(kind=OTHER_WORK, message=message, phase=Phase.MEASURE, rank=next(iter(reasons)))
    ranks = tuple(
        own.model_copy(update={"status": Status.ERROR}) if own.rank in reasons or None in reasons else own
        for own in result.ranks
    )
    status = Status.ERROR if result.status is Status.OK else result.status
    return result.model_copy(
        update={"status": status, "error": error.model_copy(update={"message": message}), "ranks": ranks}
    )


def _no_majority(members: Sequence[_Member]) -> Iterator[Finding]:
    usual, firsts, means = _usual(members), _firsts(members), _means(members)
    parameters = {member.who: member.parameters for member in members if member.parameters}
    middle = _middle(means.values())
    differences = []
    if usual.parameters is None and len(set(parameters.values())) > 1:
        differences.append(listing(f"{who}: {_counted(of)}" for who, of in parameters.items()))
    if usual.first_loss is None and _differ(max(firsts.values(), default=None), min(firsts.values(), default=None)):
        differences.append(listing(f"{who}: first loss {loss:.5g}" for who, loss in firsts.items()))
    elif middle and usual.mean_loss is None and any(_means_differ(losses, middle) for losses in means.values()):
        differences.append(listing(f"{who}: mean loss {losses.mean:.5g}" for who, losses in means.items()))
    if differences:
        yield Finding(
            level=Level.ERROR,
            category=OTHER_WORK,
            nodes=tuple(dict.fromkeys(member.node for member in members)),
            measured="; ".join(differences),
            expected=f"equal parameters, first losses within {FIRST_LOSS_PCT:g} %, mean losses within "
            f"{MEAN_LOSS_PCT:g} %",
            summary="do not compute the same, and without a majority it is unknown which is wrong: their speeds "
            "cannot be compared",
            resolution="run the check on more nodes of this kind; one that computes wrong numbers must not be used",
        )


def _unlike_most(results: Sequence[RunResult]) -> Iterator[Finding]:
    """Findings on nodes with another execution, or other versions, than most runs of their work."""
    good = [result for result in results if result.status is Status.OK]
    for kind in _KINDS:
        known = grouped((_work(run), (run.spec.identity.node, own)) for run in good if (own := kind.read(run)))
        for runs in known.values():
            ((most, _),) = Counter(tuple(sorted(own.items())) for _, own in runs).most_common(1)
            usual = dict(most)
            differ = (
                (node, f"{name}: {own.get(name, 'unknown')}, usually {usual.get(name, 'unknown')}")
                for node, own in runs
                for name in sorted(own.keys() | usual.keys())
                if own.get(name) != usual.get(name)
            )
            for node, differences in grouped(differ).items():
                yield Finding(
                    level=kind.level,
                    category=kind.category,
                    nodes=(node,),
                    measured=listing(dict.fromkeys(differences)),
                    expected="as on most of its peers",
                    summary=kind.summary,
                    resolution=kind.resolution,
                )


class _Kind(NamedTuple):
    level: Level
    category: str
    read: Callable[[RunResult], Mapping[str, str]]  # empty: not known
    summary: str
    resolution: str


def _execution(run: RunResult) -> Mapping[str, str]:
    template = {"pod template": run.context.pod_template} if run.context and run.context.pod_template else {}
    return {**run.chosen.execution, **template} if run.chosen else {}


def _versions(run: RunResult) -> Mapping[str, str]:
    return {name: value for name, value in versions(setup_of(run.context)).items() if name != "pod template"}


_KINDS = (
    _Kind(
        Level.WARNING, OTHER_EXECUTION, _execution,
        "executes the same work unlike most of its peers (dtypes, kernels, compilation or pod template): their speeds "
        "are not comparable",
        "compare image, pod template, libraries and GPU memory of the node with those of its peers",
    ),
    _Kind(
        Level.INFO, OTHER_VERSIONS, _versions,
        "has other versions or limits than most of its peers",
        "nothing while a rollout goes on; then bring all nodes to one version, so that none explains a slow node",
    ),
)  # fmt: skip

"""Checks that runs of equal work computed the same: losses and parameters. Fingerprints compare plans only.

Equal work at one seed on one kind of GPU has nearly the same losses. Of the equal runs in docs/results (211 of 67
works: QLoRA, LoRA, full, 16 and 8 bit) the first measured losses lie at most 0.031 % apart, the mean losses over
equally many steps at most 0.059 %. A node that is off by FIRST_LOSS_PCT or MEAN_LOSS_PCT computes something else: other
weights, other data or wrong numbers, and no other figure shows it. Its figures do not measure the work, so
`fail_unequal_work` turns the run into a failed one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bench_image.contract.result import Phase, RunError, RunResult, Status
from bench_image.contract.result_sections import Performance
from trainbench.core.formats import listing
from trainbench.core.grouping import grouped
from trainbench.core.verdicts import OTHER_WORK, Finding, Level, gpu_title
from trainbench.judging.node_runs import GpuPlace, by_gpu, choice_of
from trainbench.results.readings import gpu_name

FIRST_LOSS_PCT = 0.1  # of the peers' first loss: over 3 times what equal runs differ by
MEAN_LOSS_PCT = 0.5  # of the peers' mean loss: over 8 times. Errors of rounding grow with the steps
SMALLEST_DIFFERENCE = 0.005  # of losses near 0, where a percentage is meaningless


class _Member(NamedTuple):
    """One run of the work, or the part of it on one GPU that measured by itself."""

    place: int  # of the run in the results
    gpu: GpuPlace | None
    run: RunResult

    @property
    def node(self) -> str:
        return self.run.spec.identity.node

    @property
    def who(self) -> str:
        """ "node-3" or "node-3, GPU 5 (GPU-6f1e)"."""
        return f"{self.node}, {gpu_title(self.gpu.index, self.gpu.uuid)}" if self.gpu else self.node

    @property
    def rank(self) -> int | None:
        return self.run.ranks[0].rank if self.gpu else None


class _Figure(NamedTuple):
    """One thing that equal work has in common. `read`: None: unknown. `order`: by which its middle is found."""

    read: Callable[[_Member], Any]
    order: Callable[[Any], tuple[float, ...]]
    differ: Callable[[Any, Any], bool]
    text: Callable[[Any], str]
    name: str = ""

    def phrase(self, own: Any) -> str:
        return f"{self.name} {self.text(own)}".lstrip()

    def of_machines(self, members: Sequence[_Member]) -> dict[str, Any]:
        """Machine -> the lower middle of its runs' values: each machine has one vote, however often it ran."""
        of = grouped((member.who, own) for member in members if (own := self.read(member)) is not None)
        return {who: self.middle(values) for who, values in of.items()}

    def middle(self, values: Iterable[Any]) -> Any:
        ordered = sorted(values, key=self.order)
        return ordered[(len(ordered) - 1) // 2]

    def usual(self, members: Sequence[_Member]) -> Any:
        """The value that more than half of the machines share, two at least; None without such a majority."""
        if not (values := self.of_machines(members).values()):
            return None
        middle = self.middle(values)
        votes = sum(not self.differ(own, middle) for own in values)
        return middle if votes >= 2 and 2 * votes > len(values) else None


def fail_unequal_work(results: Sequence[RunResult], beside: Sequence[RunResult] = ()) -> tuple[RunResult, ...]:
    """The results, in which each run that computed something else than most of its peers is a failed run.

    Its figures stay in it, and its error names the difference. `beside`: further peers. Without a majority nothing
    changes, and `unequal_work_findings` reports the group.
    """
    of_groups = [each for members in _groups((*results, *beside)) for each in _odd(members)]
    odd = grouped((member.place, (member, why)) for member, why in of_groups)
    return tuple(_failed(run, odd[place]) if place in odd else run for place, run in enumerate(results))


def unequal_work_findings(results: Sequence[RunResult]) -> tuple[Finding, ...]:
    """Findings on groups without a majority. They fail no run."""
    return tuple(finding for members in _groups(results) for finding in _no_majority(members))


def _groups(results: Sequence[RunResult]) -> list[list[_Member]]:
    """Runs of one work, one choice and one kind of GPU. Drilled runs compute the same, only slower."""
    work = (
        ((run.spec.identity.campaign_id, run.spec.identity.group_id, gpu_name(run), choice_of(run)), part)
        for place, run in enumerate(results)
        for part in ([_Member(place, *of_gpu) for of_gpu in by_gpu(run).items()] or [_Member(place, None, run)])
        if part.run.status is Status.OK
    )
    return list(grouped(work).values())


def _odd(members: Sequence[_Member]) -> Iterator[tuple[_Member, str]]:
    """The members that differ from their group's majority, each with a phrase on the first difference."""
    usual = [(figure, of_most) for figure in _FIGURES if (of_most := figure.usual(members)) is not None]
    for member in members:
        for figure, of_most in usual:
            own = figure.read(member)
            if own is not None and figure.differ(own, of_most):
                seed = " at the same seed" if figure.name else ""
                yield member, f"{figure.phrase(own)}, its peers {figure.text(of_most)}{seed}"
                break


def _differ(loss: float, other: float, limit_pct: float, allowed: float = 0.0) -> bool:
    allowed += max(abs(other) * limit_pct / 100, SMALLEST_DIFFERENCE)
    return abs(loss - other) > allowed


def _means_differ(own: Performance, usual: Performance) -> bool:
    """A node that is slow does fewer steps within the time of a window, and losses fall: the mean of fewer steps is
    higher by at most the share of steps that it lacks, of the fall.
    """
    few, many = sorted((own.measured_steps, usual.measured_steps))
    lacking = 1 - few / many if many else 0.0
    ends = usual.first_loss, usual.last_loss
    fall = abs(ends[0] - ends[1]) if ends[0] is not None and ends[1] is not None else 0.0
    return _differ(own.mean_loss or 0.0, usual.mean_loss or 0.0, MEAN_LOSS_PCT, allowed=lacking * fall)


def _parameters(member: _Member) -> tuple[int, int] | None:
    total, trained = member.run.parameters.total, member.run.parameters.trainable
    return None if total is None or trained is None else (total, trained)


_FIGURES = (
    _Figure(_parameters, tuple, operator.ne, lambda own: f"{own[0]:,} parameters, {own[1]:,} of them trained"),
    _Figure(
        lambda member: member.run.performance.first_loss, lambda loss: (loss,),
        lambda own, usual: _differ(own, usual, FIRST_LOSS_PCT), lambda loss: f"{loss:.5g}", "first loss",
    ),
    _Figure(
        lambda member: None if member.run.performance.mean_loss is None else member.run.performance,
        lambda performance: (performance.mean_loss,), _means_differ,
        lambda performance: f"{performance.mean_loss:.5g}", "mean loss",
    ),
)  # fmt: skip


def _failed(result: RunResult, odd: Sequence[tuple[_Member, str]]) -> RunResult:
    """The result as failed; of independent ranks only the odd ones fail. An error of the run itself comes first."""
    ranks, said = {member.rank for member, _ in odd}, [result.error.message] if result.error else []
    for member, why in odd:
        who = f"GPU {member.gpu.index} of {member.node}" if member.gpu else member.node
        said.append(f"{who} computes something else: {why}")
    message = "; ".join(said)[:4000]
    error = result.error or RunError(kind=OTHER_WORK, message=message, phase=Phase.MEASURE, rank=odd[0][0].rank)
    return result.model_copy(
        update={
            "status": Status.ERROR if result.status is Status.OK else result.status,
            "error": error.model_copy(update={"message": message}),
            "ranks": tuple(
                own.model_copy(update={"status": Status.ERROR}) if ranks & {own.rank, None} else own
                for own in result.ranks
            ),
        }
    )


def _no_majority(members: Sequence[_Member]) -> Iterator[Finding]:
    differences = [
        listing(f"{who}: {figure.phrase(own)}" for who, own in values.items())
        for figure in _FIGURES
        if len(values := figure.of_machines(members)) > 1 and figure.usual(members) is None
    ]
    if differences:
        yield Finding(
            level=Level.ERROR,
            category=OTHER_WORK,
            nodes=tuple(dict.fromkeys(member.node for member in members)),
            measured=differences[0],
            expected=f"equal parameters, first losses within {FIRST_LOSS_PCT:g} %, mean losses within "
            f"{MEAN_LOSS_PCT:g} %",
            summary="do not compute the same, and without a majority it is unknown which is wrong: their speeds "
            "cannot be compared",
            resolution="run the check on more nodes of this kind; one that computes wrong numbers must not be used",
        )

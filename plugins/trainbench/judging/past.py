"""A unit's own past: its earlier campaigns, the baseline made from them, and since when it is slower; and what judging
reads from the history, so that the judgement needs no database.

A unit is a set of GPUs (by UUID; without UUIDs the node's name) at one work, under any node name, driver and image: a
version that changed may be the cause of a slowdown, and is no reason to forget the past.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from bench_image.contract.result import RunResult, Status
from trainbench.core.baselines import Baseline
from trainbench.core.formats import count, day, listing
from trainbench.core.grouping import grouped
from trainbench.core.known_values import known_median
from trainbench.core.verdicts import Metric
from trainbench.judging import noise
from trainbench.judging.expectations import Expected
from trainbench.judging.node_runs import judged_rate, run_figure
from trainbench.judging.noise import (
    MIN_SD,
    PRIOR,
    Noise,
    Run,
    between_rounds,
    deviation_pct,
    median_noise,
    median_variance,
)
from trainbench.results.readings import gpu_name, shared_by
from trainbench.results.setups import Setup, change_phrases, setup_of

BASELINE_NIGHTS = 10  # the first ones make the baseline
LEAST_COMMON = 4  # units of a night: what fewer have in common is mostly their own change
RISING_NIGHTS = 3  # nights in a row beyond the limit raise it


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """One campaign's valid runs of one node and work: medians, and the last run's setup. `at`: by the campaign's clock.
    `counts`: it may enter a baseline. A shared night does not, nor one that is slow, hot or heavy by its own past; but
    the date of a change is searched in all nights.
    """

    campaign_id: str
    at: datetime
    node: str
    fingerprint: str
    gpu_name: str | None
    samples_per_second: float
    memory_gb: float | None
    temperature_c: float | None
    setup: Setup
    counts: bool = True

    @property
    def unit(self) -> tuple[str, str | None, str | frozenset[str]]:
        """The work, and the GPUs by UUID; without UUIDs the node's name."""
        return self.fingerprint, self.gpu_name, self.setup.gpu_uuids or self.node


class Past(NamedTuple):
    """The past of one unit. `samples_per_second`: the baseline."""

    samples_per_second: float
    memory_gb: float | None
    temperature_c: float | None
    nights: tuple[NodeRecord, ...]  # that made the baseline or came after it: those of today's level
    all_nights: tuple[NodeRecord, ...]

    @property
    def expected(self) -> Expected:
        """The variance is in units of one night's."""
        num = min(len(self.nights), BASELINE_NIGHTS)
        source = f"its own past of {count(num, 'night')} from {day(self.nights[0].at)}"
        return Expected(self.samples_per_second, source, median_variance(num))


def records_of(results: Iterable[RunResult], at: datetime) -> tuple[NodeRecord, ...]:
    """Records of the valid runs on one node alone, without drills and runs on a shared GPU."""
    together = grouped(
        ((run.spec.identity.campaign_id, run.spec.identity.node, run.effective_spec.fingerprint, gpu_name(run)), run)
        for run in sorted(results, key=lambda run: (run.spec.identity.round, run.started_at))
        if run.status is Status.OK and run.spec.placement.nodes == 1 and not run.spec.drill and judged_rate(run)
    )
    # Of one node and work at a time: the setups of all runs would take as much memory as the runs.
    return tuple(
        record
        for (campaign_id, node, fingerprint, gpu), runs in together.items()
        for record in join_records(
            NodeRecord(
                campaign_id=campaign_id,
                at=at,
                node=node,
                fingerprint=fingerprint,
                gpu_name=gpu,
                samples_per_second=judged_rate(run) or 0.0,
                memory_gb=run_figure(run, Metric.MEMORY_GB),
                temperature_c=run_figure(run, Metric.TEMPERATURE_C),
                setup=setup_of(run.context),
                counts=shared_by(run) is None,
            )
            for run in runs
        )
    )


def join_records(runs: Iterable[NodeRecord]) -> tuple[NodeRecord, ...]:
    """Records of single runs -> one record for each campaign, node and work, in the order of their first runs."""
    together = grouped(((run.campaign_id, run.node, run.fingerprint, run.gpu_name), run) for run in runs)
    return tuple(_joined(same) if len(same) > 1 else same[0] for same in together.values())


def _joined(runs: Sequence[NodeRecord]) -> NodeRecord:
    gpus = frozenset[str]().union(*(run.setup.gpu_uuids for run in runs))
    return replace(
        runs[-1],
        at=min(run.at for run in runs),
        samples_per_second=statistics.median(run.samples_per_second for run in runs),
        memory_gb=known_median(run.memory_gb for run in runs),
        temperature_c=known_median(run.temperature_c for run in runs),
        setup=runs[-1].setup.model_copy(update={"gpu_uuids": gpus}),
        counts=all(run.counts for run in runs),
    )


def past_of(tonight: NodeRecord, earlier: Iterable[NodeRecord], limit_pct: float) -> Past | None:
    """The past of tonight's unit; None: it was never measured, or no night counts.

    The baseline is the median of the first BASELINE_NIGHTS nights that count. RISING_NIGHTS nights in a row that are
    faster than it by more than `limit_pct` begin a new one. It never falls by itself.
    """
    nights = sorted((record for record in earlier if record.unit == tonight.unit), key=lambda record: record.at)
    level: list[NodeRecord] = []
    for night in (night for night in nights if night.counts):
        level.append(night)
        if len(level) > RISING_NIGHTS:
            before, last = _median(level[:-RISING_NIGHTS]), level[-RISING_NIGHTS:]
            if all(deviation_pct(risen.samples_per_second, before) > limit_pct for risen in last):
                level = last
    if not level:
        return None
    first = level[:BASELINE_NIGHTS]
    return Past(
        samples_per_second=_median(level),
        memory_gb=known_median(night.memory_gb for night in first),
        temperature_c=known_median(night.temperature_c for night in first),
        nights=tuple(level),
        all_nights=tuple(nights),
    )


def _median(level: Sequence[NodeRecord]) -> float:
    return statistics.median(night.samples_per_second for night in level[:BASELINE_NIGHTS])


def night_noise(pasts: Iterable[Past], run_noise: Noise | None, *, without_common: bool = False) -> Noise:
    """What a unit's nights differ by: the variances of their nights pooled over the units, and PRIOR (or the noise of
    one run, where that is larger), weighted by their degrees of freedom. `without_common`: what a night did to all
    units is taken out, where it measured LEAST_COMMON of them or more.
    """
    numbers: dict[str, int] = {}  # of the campaigns
    units = [
        [
            Run(numbers.setdefault(night.campaign_id, len(numbers)), night.samples_per_second, ())
            for night in past.nights
        ]
        for past in pasts
    ]
    squares, lost = between_rounds(units, LEAST_COMMON if without_common else math.inf)
    prior = PRIOR._replace(sd=max(PRIOR.sd, run_noise.sd)) if run_noise else PRIOR
    found = noise.joined([prior, median_noise(squares, lost)]) or prior
    return found._replace(sd=max(found.sd, MIN_SD))


def slowdown(past: Past, tonight: NodeRecord) -> str:
    """ "since 12 Nov 2026, when the driver went from 575.1 to 580.95", of a unit that is slower than its baseline.

    The date is that of the first night of the unbroken row of nights, tonight included, that lie nearer to tonight's
    rate than to the baseline; what changed is what changed on the unit that night.
    """
    middle = math.sqrt(past.samples_per_second * tonight.samples_per_second)
    nights = [*past.all_nights, tonight]
    first = len(nights) - 1
    while first and nights[first - 1].samples_per_second < middle:
        first -= 1
    before = [night.setup for night in nights[:first]][-BASELINE_NIGHTS:]
    changes = change_phrases(before, nights[first].setup) if before else ()
    return f"since {day(nights[first].at)}{f', when {listing(changes)}' if changes else ''}"


class NoHistory:
    """What judging reads of earlier campaigns, here of none, as for results that others measured. `history.History`
    reads those of a database.
    """

    def node_records(self, fingerprints: Collection[str], campaign_id: str, before: datetime) -> Sequence[NodeRecord]:
        """Earlier campaigns of each node at these works, with any driver and image, oldest first."""
        return ()

    def last_measured(self, since: datetime) -> Mapping[str, datetime]:
        """Node -> start of its last valid run, for nodes with a run since the given time."""
        return {}

    def baselines(self) -> Sequence[Baseline]:
        """All accepted baselines, the oldest first."""
        return ()


NO_HISTORY = NoHistory()

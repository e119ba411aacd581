"""Each node against its own past: dated changes, slowdowns without a date, and open slowdowns that last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from bench_image.contract.result import RunResult
from trainbench.core.verdicts import Finding, HistoryVerdict, State, Tolerances
from trainbench.judging.noise import deviation_pct
from trainbench.judging.over_time import baseline_deviation, lasting_slowdowns, level_changes, renames
from trainbench.judging.over_time.baseline_deviation import trend_findings
from trainbench.judging.over_time.lasting_slowdowns import Slowdown, lasting_slowdown_findings
from trainbench.judging.over_time.level_changes import LevelChange, level_change_findings
from trainbench.judging.over_time.node_history import NodeRecord
from trainbench.judging.over_time.renames import Rename
from trainbench.judging.over_time.undecided_streaks import Streak

NodeWork = tuple[str, str]  # node, and group id or fingerprint of the work


@dataclass(frozen=True, kw_only=True)
class OwnPast:
    """Tonight's nodes and their earlier campaigns. `now`, `earlier`: one record for each campaign, node and work."""

    now: Sequence[NodeRecord]
    earlier: Sequence[NodeRecord]
    verdicts: Sequence[HistoryVerdict]  # tonight's runs against their baselines
    renamed: Sequence[Rename]
    last_measured: Mapping[
        str, datetime
    ]  # node -> its last valid run before tonight; empty where the form names the nodes
    undecided: Mapping[str, Streak]  # node -> its streak of campaigns without a verdict, up to the one before
    slowdowns: Sequence[Slowdown]  # with an open warning

    @property
    def old_names(self) -> tuple[str, ...]:
        return tuple(rename.was for rename in self.renamed)

    @property
    def under_same_name(self) -> tuple[NodeRecord, ...]:
        """`now` without the nodes that were renamed: those have their GPUs from their old name."""
        renamed = {rename.node for rename in self.renamed}
        return tuple(record for record in self.now if record.node not in renamed)


def own_past_findings(past: OwnPast, results: Sequence[RunResult], tolerances: Tolerances) -> tuple[Finding, ...]:
    """Findings on dated changes, then on undated deviations from the baseline, then on slowdowns that last."""
    names = renames.names(past.renamed)
    all_series = level_changes.series_of((*past.earlier, *past.now), names)
    tonight = {key: all_series[key] for key in dict.fromkeys(record.series_key for record in past.now)}
    # Where a dated change and a deviation from the baseline are the same loss, only the dated one is reported.
    changes = level_changes.find(tonight, tolerances)
    dated = _rates_after_slowdown(changes, results)
    undated = [verdict for verdict in past.verdicts if not _is_explained(verdict, dated, tolerances)]
    off_baseline = [finding for verdict in undated for finding in trend_findings(verdict)]
    # A slowdown whose step is older than the history window is neither; only its open warning keeps it.
    known_slower = _slower(changes, off_baseline)
    lasting = lasting_slowdowns.lasting(past.slowdowns, past.now, known_slower, names)
    # A node that is still slower was not spared by a change that slowed the others.
    still = {slowdown.change.node for slowdown in lasting}
    others = {key: series for key, series in tonight.items() if key[0] not in still}
    return (*level_change_findings(changes, others), *off_baseline, *lasting_slowdown_findings(lasting))


def _slower(changes: Sequence[LevelChange], off_baseline: Sequence[Finding]) -> set[NodeWork]:
    """(node, fingerprint) of each of tonight's slowdowns."""
    of_baseline = (c for f in off_baseline if f.category == baseline_deviation.HISTORY_SLOWER for c in f.changes)
    dated = {(change.node, change.fingerprint) for change in changes if change.category in level_changes.SLOWER}
    return dated | {(change.node, change.fingerprint) for change in of_baseline}


def _rates_after_slowdown(changes: Sequence[LevelChange], results: Sequence[RunResult]) -> dict[NodeWork, float]:
    """(node, group) -> samples/s after its dated slowdown; of several works of a group those of the slowest."""
    after = {(c.node, c.fingerprint): c.after for c in changes if c.category in level_changes.SLOWER}
    slowed = {node for node, _ in after}
    rates: dict[NodeWork, float] = {}
    for result in results:
        node, group = result.spec.identity.node, result.spec.identity.group_id
        if node in slowed and (rate := after.get((node, result.effective_spec.fingerprint))) is not None:
            rates[node, group] = min(rate, rates.get((node, group), rate))
    return rates


def _is_explained(verdict: HistoryVerdict, dated: Mapping[NodeWork, float], tolerances: Tolerances) -> bool:
    """Whether a dated slowdown at the same work explains the deviation: tonight's rate is not below that after it."""
    after, rate = dated.get((verdict.node, verdict.group_id)), verdict.samples_per_second
    if verdict.state is not State.BREACH or after is None or rate is None:
        return False
    return deviation_pct(rate, after) >= -(verdict.limit_pct or tolerances.history_pct)

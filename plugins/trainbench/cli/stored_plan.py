"""Stored results -> their plan, to judge them again or to write their reports again."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from upath import UPath

from bench_image.contract.flops import lora_targets
from bench_image.contract.model_shapes import MODELS
from bench_image.contract.parse import explain
from bench_image.contract.result import RunResult
from bench_image.contract.work import DiskData
from trainbench.core.formats import count
from trainbench.core.grouping import grouped
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import FIELDS, BenchmarkParams, form, parse_params
from trainbench.params.refusals import ParamsError
from trainbench.pipeline import Measured
from trainbench.planning.plan import NO_RESULT, Plan, Skipped, identifier
from trainbench.results.arrivals import PlannedCampaign
from trainbench.results.artefacts import CAMPAIGN_FILE, PLAN_FILE, Store, read_campaign
from trainbench.results.campaign import COMMAND_LINE, RESULT_FILES, WITHOUT_DAG, Campaign
from trainbench.results.collect import collect
from trainbench.results.readings import gpu_name
from trainbench.results.store_files import BrokenFile, Progress, StoredResults, StoreError, is_folder, read_results

JUDGING_SECTIONS = ("Limits", "Cost", "Report")
MAX_ROUNDS = 20  # of BenchmarkParams

T = TypeVar("T")


@dataclass(frozen=True)
class StoredRuns:
    """`measured` and `reruns`: stored results as the pipeline judges them, without a history yet. `campaign`: the
    stored verdict; None when there are only result files. `broken`: files that cannot be read.
    """

    measured: Measured
    reruns: tuple[RunResult, ...]
    campaign: Campaign | None
    broken: tuple[BrokenFile, ...]

    @property
    def is_ours(self) -> bool:
        """Measured on nodes of this installation, so that its history knows their past."""
        if self.campaign:
            return not self.campaign.is_imported
        return self.measured.suite != RESULT_FILES

    @property
    def is_of_dag(self) -> bool:
        """Planned by a DAG run and without a verdict. Airflow alone knows whether that run is still at work."""
        return self.campaign is None and self.measured.suite not in WITHOUT_DAG

    @property
    def num_absent(self) -> int:
        """Runs of a campaign of the command line that have no result, as it is at work or was stopped."""
        return sum(skip.state == NO_RESULT for skip in self.measured.plan.skipped)

    @property
    def unfinished(self) -> str:
        """A sentence on a campaign without a verdict."""
        plan = self.measured.plan
        of_all = f"{len(plan.specs)} of {count(len(plan.specs) + self.num_absent, 'run')}"
        return f"{plan.campaign_id} has no verdict yet: {of_all} have a result"


def open_stored(source: str, store: Store, changes: Mapping[str, str], on_progress: Progress) -> StoredRuns:
    """Read `source`: a folder with result.json files at any depth, or the id of a campaign in `store`. `changes` are
    parameters to judge by instead; `on_progress` gets (files read, files). Raises StoreError and ParamsError.
    """
    allowed = [name for name, field in form().items() if field["section"] in JUDGING_SECTIONS]
    for name in changes:
        if name not in allowed:
            raise ParamsError(f"{name} cannot be changed after the runs: choose from {', '.join(allowed)}")
    if is_folder(source):
        folder = Path(source).resolve()
        verdict = folder / "summary" / CAMPAIGN_FILE
        if verdict.is_file():
            return _of_campaign(read_campaign(UPath(verdict)), changes)
        return _of_results(identifier(folder.name, 150), read_results(UPath(folder), on_progress), changes)
    if source not in store.campaign_ids():
        known = ", ".join(store.campaign_ids()[-10:]) or "none, the store is empty"
        raise StoreError(f"'{source}' is neither a folder nor a campaign of the store: there are {known}")
    try:
        return _of_campaign(store.read_campaign(source), changes)
    except StoreError:  # stopped before it was published: only its results are stored
        stored, planned = store.read_results(source, on_progress), store.read_plan(source)
    # Without any result there is nothing to judge: the task may have failed after it stored the plan.
    if planned and stored.results:
        return _of_planned(planned, stored, changes)
    return _of_results(source, stored, changes)


def _of_campaign(campaign: Campaign, changes: Mapping[str, str]) -> StoredRuns:
    params = parse_params({**campaign.params, **changes})
    # Loose results have no re-runs: all their rounds count, also beyond what the form allows.
    last = math.inf if campaign.suite == RESULT_FILES else params.rounds
    first = tuple(result for result in campaign.results if result.spec.identity.round <= last)
    again = tuple(result for result in campaign.results if result.spec.identity.round > last)
    shared = {name: getattr(campaign, name) for name in ("campaign_id", "skipped", "campaign_kind", "labels", "known")}
    plan = Plan(
        params=params,
        nodes=_distinct(result.spec.identity.node for result in campaign.results),
        specs=tuple(result.spec for result in first),
        has_reruns=campaign.suite != RESULT_FILES,
        **shared,
    )
    shared = {name: getattr(campaign, name) for name in ("suite", "started_at", "finished_at", "dag_run_id")}
    measured = Measured(plan=plan, results=first, **shared)
    return StoredRuns(measured=measured, reruns=again, campaign=campaign, broken=())


def _of_planned(text: bytes, stored: StoredResults, changes: Mapping[str, str]) -> StoredRuns:
    """A campaign without a verdict. A planned run without a result is a failed run; of a campaign of the command line
    it is not judged, whether it was stopped or is still to come.
    """
    try:
        planned = PlannedCampaign.model_validate_json(text)
    except ValidationError as error:
        raise StoreError(f"the campaign's {PLAN_FILE} is not a plan of this version: {explain(error)}") from None
    by_run = {result.spec.identity.run_id: result for result in stored.results}
    at = max(planned.planned_at, *(result.finished_at for result in stored.results))
    specs, skipped = planned.plan.specs, planned.plan.skipped
    if planned.suite == COMMAND_LINE:
        absent = (spec.identity.run_id for spec in specs if spec.identity.run_id not in by_run)
        why = "the campaign is at work or was stopped before this run had a result"
        skipped += tuple(Skipped(what=run_id, reason=why, state=NO_RESULT) for run_id in absent)
        specs = tuple(spec for spec in specs if spec.identity.run_id in by_run)
    results = tuple(by_run.get(spec.identity.run_id) or collect([spec], [None], at)[0] for spec in specs)
    again = tuple(run for run_id, run in by_run.items() if run_id not in {spec.identity.run_id for spec in specs})
    params = parse_params({**planned.plan.params.model_dump(mode="json"), **changes})
    measured = Measured(
        plan=planned.plan.model_copy(
            update={"params": params, "specs": specs, "skipped": skipped, "has_reruns": bool(again)}
        ),
        results=results,
        suite=planned.suite,
        started_at=planned.planned_at,
        finished_at=at,
        dag_run_id=planned.dag_run_id,
    )
    return StoredRuns(measured=measured, reruns=again, campaign=None, broken=stored.broken)


def _of_results(name: str, stored: StoredResults, changes: Mapping[str, str]) -> StoredRuns:
    results = _as_one_campaign(name, stored.readable(name))
    specs = tuple(result.spec for result in results)
    plan = Plan(
        campaign_id=specs[0].identity.campaign_id,
        params=_params_of(results, changes),
        nodes=_distinct(spec.identity.node for spec in specs),
        specs=specs,
        skipped=(),
        has_reruns=False,
        campaign_kind=_kind_of(results),
    )
    measured = Measured(
        plan=plan,
        results=results,
        suite=RESULT_FILES,
        started_at=min(result.started_at for result in results),
        finished_at=max(result.finished_at for result in results),
    )
    return StoredRuns(measured=measured, reruns=(), campaign=None, broken=stored.broken)


def _kind_of(results: Sequence[RunResult]) -> CampaignKind:
    """Machines of several kinds of GPU, none of which has a peer, are compared side by side, not judged."""
    kinds = grouped((gpu_name(result), result.spec.identity.node) for result in results if gpu_name(result))
    alone = all(len(set(nodes)) == 1 for nodes in kinds.values())
    return CampaignKind.HARDWARE if len(kinds) > 1 and alone else CampaignKind.NODES


def _as_one_campaign(name: str, results: Sequence[RunResult]) -> tuple[RunResult, ...]:
    """Files of several campaigns are judged as one named `name`; one spec run several times becomes rounds, by time."""
    campaign_ids = {result.spec.identity.campaign_id for result in results}
    campaign_id = campaign_ids.pop() if len(campaign_ids) == 1 else name
    has_repeats = len({result.spec.identity.run_id for result in results}) < len(results)
    rounds: Counter[tuple[str, str]] = Counter()
    renamed = []
    for result in sorted(results, key=lambda result: result.started_at):
        changes: dict[str, Any] = {"campaign_id": campaign_id}
        if has_repeats:
            key = (result.spec.identity.group_id, result.spec.identity.node)
            rounds[key] += 1
            changes |= {"round": rounds[key], "run_id": identifier("-".join([*key, f"r{rounds[key]}"]), 200)}
        if has_repeats or result.spec.identity.campaign_id != campaign_id:
            result = result.model_copy(update={"spec": result.spec.changed(identity=changes)})
        renamed.append(result)
    return tuple(renamed)


def _params_of(results: Sequence[RunResult], changes: Mapping[str, str]) -> BenchmarkParams:
    """The parameters that follow from the specs; all others keep their defaults."""
    spec = results[0].spec
    values: dict[str, Any] = {}
    for name, field in FIELDS.items():  # of the form, that the spec holds at the same place
        value: Any = spec
        for part in field.path:
            value = getattr(value, part, None)
        if value is not None:
            values[name] = value
    values |= {
        "nodes": _distinct(result.spec.identity.node for result in results),
        "strategies": _distinct(result.spec.placement.strategy for result in results if not result.spec.work.own_job),
        "rounds": min(max(result.spec.identity.round for result in results), MAX_ROUNDS),
    }
    if not values["strategies"]:
        del values["strategies"]  # a command of the user's own goes by its own
    if spec.work.own_job:
        del values["model"]
    if spec.work.lora:
        is_attention = spec.work.lora.targets == lora_targets(spec.work.shape, "attention")
        values["lora_targets"] = "attention" if is_attention else "all"
    if isinstance(spec.work.data, DiskData):
        values["data_folder"] = spec.work.data.folder
    if spec.work.dimensions:  # the form refuses a known name with other dimensions
        values["model"] = identifier(f"{spec.work.model}-custom" if spec.work.model in MODELS else spec.work.model, 64)
    return parse_params(values | dict(changes))


def _distinct(values: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(values))

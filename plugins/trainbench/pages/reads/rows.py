"""The rows that the pages show. An unknown number is None. `dag_id` and `dag_run_id` make the link to Airflow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from trainbench.core.baselines import Baseline
from trainbench.core.verdicts import Confirmation, State
from trainbench.figure_catalogue.figure import Figure
from trainbench.figure_catalogue.run_figures import STORED
from trainbench.history.breach import Breach
from trainbench.judging.node_condition import TRAITS, Condition, FleetSummary, NodeCondition, Reach, fleet_summary
from trainbench.results.campaign import IMPORTED_SUITE


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """The choices of the filters, each in alphabetical order."""

    gpu_names: tuple[str, ...]
    models: tuple[str, ...]
    recipes: tuple[str, ...]
    strategies: tuple[str, ...]
    dag_ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CampaignRow:
    campaign_id: str
    dag_id: str
    dag_run_id: str | None
    title: str
    campaign_kind: str
    started_at: datetime
    finished_at: datetime
    is_drill: bool
    num_runs: int
    num_failed: int  # runs
    num_nodes: int  # judged
    num_red: int  # nodes


class AlikeNodes(NamedTuple):
    """Nodes, in natural order, of one condition for one reason ("" where there is nothing to add)."""

    condition: Condition
    reason: str
    nodes: tuple[str, ...]

    @property
    def phrase(self) -> str:
        """ "fell behind their own past: -4.0 %"; goes on from the names."""
        trait = TRAITS[self.condition]
        verb = trait.one if len(self.nodes) == 1 else trait.several
        return f"{verb}: {self.reason}" if self.reason else verb


@dataclass(frozen=True, kw_only=True, slots=True)
class Overview:
    num_nodes: int  # judged within MEASURED_DAYS, red and missing ones included
    num_measured: int  # of these with a figure
    conditions: tuple[NodeCondition, ...]  # of these nodes and of those with an open breach, in natural order
    last_campaign: CampaignRow | None
    measured_since: date
    spend_since: date
    spent: CostRow

    @property
    def summary(self) -> FleetSummary:
        """The headline with names but without reasons, which follow it; of many conditions only numbers."""
        most = 3 if len({node.condition for node in self.conditions}) <= 3 else 0
        return fleet_summary((node._replace(reason="") for node in self.conditions), most)

    @property
    def unwell(self) -> tuple[AlikeNodes, ...]:
        """Red nodes, then warnings, grouped by condition and reason."""
        alike: dict[tuple[Condition, str], list[str]] = {}
        for node in sorted(self.conditions, key=NodeCondition.urgency):
            if node.condition is not Condition.WELL:
                # each red node has a card below
                reason = "" if node.reach is Reach.RED else node.reason
                alike.setdefault((node.condition, reason), []).append(node.node)
        return tuple(AlikeNodes(*key, tuple(names)) for key, names in alike.items())

    @property
    def num_red(self) -> int:
        return sum(node.reach is Reach.RED for node in self.conditions)

    @property
    def num_warned(self) -> int:
        return sum(node.reach is Reach.WARNING for node in self.conditions)

    @property
    def num_acknowledged(self) -> int:
        return self.summary.counts.get(Condition.ACKNOWLEDGED, 0)


class HeatCell(NamedTuple):
    """One node on one day: the worst of its conditions. A tuple: a map has thousands."""

    day: str
    condition: Condition
    deviation_pct: float | None  # of samples/s: the largest of all verdicts by amount
    num_verdicts: int
    campaign_id: str  # of the worst verdict; of equals the one recorded last
    dag_id: str
    dag_run_id: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class HeatRow:
    """`cells`: one for each day of the map, None where the node was not judged."""

    node: str
    gpu_name: str | None
    num_red_days: int
    cells: tuple[HeatCell | None, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class HeatMap:
    """The map. Order of nodes: red most recently, red on more days, larger deviation, name."""

    days: tuple[str, ...]  # oldest first, as 2026-11-21
    rows: tuple[HeatRow, ...]
    num_nodes: int
    num_red_nodes: int  # on any of the days
    page: int
    num_pages: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Breaches:
    """Breaches. `rows` ends at a limit; the numbers count all."""

    rows: tuple[Breach, ...]
    num_total: int


@dataclass(frozen=True, kw_only=True, slots=True)
class NodePoint:
    """One campaign's verdict on the node at one work."""

    at: datetime
    samples_per_second: float | None
    own_median_samples_per_second: float | None  # of its own past
    peers_samples_per_second: float | None  # the reference
    deviation_pct: float | None
    history_deviation_pct: float | None
    memory_deviation_pct: float | None
    temperature_deviation_c: float | None
    samples_per_second_limit_pct: float | None  # this and the next two: of the campaign; None: not recorded then
    memory_limit_pct: float | None
    temperature_limit_c: float | None
    state: State
    history_state: State | None
    confirmation: Confirmation
    is_watched: bool
    is_drill: bool
    reason: str | None
    num_runs: int
    campaign_id: str
    run_id: str | None  # the run with the median throughput
    dag_id: str
    dag_run_id: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSeries:
    """The points of a node at one work, the oldest first."""

    group_id: str
    label: str | None
    gpu_name: str | None
    model: str | None
    recipe: str | None
    strategy: str | None
    preset: str | None
    points: tuple[NodePoint, ...]


class EventKind(StrEnum):
    SETUP = "setup"  # driver, image, kernel, VBIOS, power limit, pod template, GPU or a library
    BREACH_OPENED = "breach_opened"
    BREACH_CLOSED = "breach_closed"
    ACKNOWLEDGED = "acknowledged"
    BASELINE = "baseline"  # accepted or revoked
    MARKED = "marked"  # other work is kept away
    FREED = "freed"


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeEvent:
    """An event of a node. `what`: the changed item, or the breach's state; `was`, `now`: its values, if any."""

    at: datetime
    kind: EventKind
    what: str
    was: str | None = None
    now: str | None = None
    text: str  # one sentence, as plain text
    campaign_id: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class NodePage:
    """A node's page, newest event first. `is_cut`: the limits left rows out; a shorter time shows them."""

    node: str
    condition: NodeCondition
    series: tuple[NodeSeries, ...]
    events: tuple[NodeEvent, ...]
    open_breaches: tuple[Breach, ...]
    baselines: tuple[Baseline, ...]  # in force for it
    is_cut: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredFigures:
    """`figures`: name in the catalogue -> value, of every figure that the history stores."""

    figures: Mapping[str, float | None]

    def figure(self, figure: Figure) -> float | None:
        return self.figures[figure.name]

    def cells(self, names: Iterable[str]) -> list[Any]:
        """The cells of a CSV row: these fields, then the figures."""
        return [*(getattr(self, name) for name in names), *(self.figure(each) for each in STORED)]


@dataclass(frozen=True, kw_only=True, slots=True)
class StrategyRow(StoredFigures):
    """Medians over the campaigns of each campaign's median. Rows of one `work_key` and GPU did equal work."""

    work_key: str
    gpu_name: str | None
    model: str
    recipe: str
    preset: str
    micro_batch_size: int | None
    seq_length: int | None
    strategy: str
    world_size: int
    place: int | None  # by tokens/s among the rows of its work, GPU and world size; None: not measured here
    num_campaigns: int
    num_runs: int
    num_failed: int
    is_imported: bool = False  # others measured it: it has no place

    @property
    def on_cpu(self) -> bool:
        """Whether no run reported a GPU: `world_size` counts processes then."""
        return self.gpu_name is None


@dataclass(frozen=True, kw_only=True, slots=True)
class Strategies:
    rows: tuple[StrategyRow, ...]
    is_cut: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class CostRow:
    """A row of costs. `name`: the month as 2026-11, the DAG, or the work. `usd`, `gpu_hours`: sums of known values."""

    name: str
    usd: float | None
    gpu_hours: float | None
    num_runs: int
    num_unpriced: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """Costs: months with the newest first, the others with the most expensive first."""

    total: CostRow
    imported: CostRow  # at the prices of this installation, in no other sum
    months: tuple[CostRow, ...]
    dags: tuple[CostRow, ...]
    works: tuple[CostRow, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRow(StoredFigures):
    campaign_id: str
    run_id: str
    dag_id: str
    dag_run_id: str | None
    node: str
    peers: tuple[str, ...]
    round: int
    gpu_name: str | None
    model: str
    recipe: str
    strategy: str
    preset: str
    world_size: int | None
    micro_batch_size: int | None
    seq_length: int | None
    status: str
    state: State | None  # the campaign's verdict on the node; None: it judged none
    history_state: State | None
    is_drill: bool
    started_at: datetime
    finished_at: datetime
    driver: str | None
    image: str | None
    torch: str | None

    @property
    def is_imported(self) -> bool:
        """Whether others measured it, on a node that has no page."""
        return self.dag_id == IMPORTED_SUITE


class RunSort(StrEnum):
    """The order of runs. By time: newest campaign first, within it the latest start. Others rank the newest only."""

    NEWEST = "newest"
    OLDEST = "oldest"
    SLOWEST = "slowest"
    FASTEST = "fastest"
    DEAREST = "dearest"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunsPage:
    """A page of runs. `num_ranked`: number of newest runs that were sorted; all of them when sorted by time."""

    rows: tuple[RunRow, ...]
    num_total: int
    num_ranked: int
    page: int
    num_pages: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPage:
    """`label`: the name that the plan gave the work. `verdict`: the campaign's on the node of this run. `others`: the
    node's other runs of the same work there.
    """

    run: RunRow
    campaign: CampaignRow
    group_id: str
    label: str | None
    verdict: NodePoint | None
    others: tuple[str, ...]

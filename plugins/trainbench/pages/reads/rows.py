"""The rows that the pages show. An unknown number is None. `dag_id` and `dag_run_id` make the link to Airflow."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import SimpleNamespace
from typing import NamedTuple

from trainbench.core.baselines import Baseline
from trainbench.core.formats import count
from trainbench.core.states import FleetSummary, NodeState, fleet_summary, word
from trainbench.core.verdicts import Against, Metric, State, Why
from trainbench.figure_catalogue.figure import Figure
from trainbench.history.notices import Notice
from trainbench.history.spending import Spend, Unpriced
from trainbench.results.campaign import IMPORTED_SUITE


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices of the filters, each in alphabetical order; campaigns with the newest first."""

    gpu_names: tuple[str, ...]
    models: tuple[str, ...]
    recipes: tuple[str, ...]
    strategies: tuple[str, ...]
    nodes: tuple[str, ...]
    campaigns: tuple[str, ...]
    dag_ids: tuple[str, ...]


class LastRun(NamedTuple):
    """The newest campaign. `num_red`: nodes."""

    dag_id: str
    dag_run_id: str | None
    finished_at: datetime
    is_drill: bool
    num_red: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Overview:
    num_nodes: int  # judged within MEASURED_DAYS, red and missing ones included
    num_measured: int  # of these with a figure
    states: tuple[NodeState, ...]  # now, of these nodes and of those with an open notice, in natural order
    last_run: LastRun | None
    spent: Spend  # within SPEND_DAYS

    @property
    def summary(self) -> FleetSummary:
        """The headline with names but without reasons, which follow it; of many different nodes only numbers."""
        most = 3 if len({node.why for node in self.states}) <= 3 else 0
        return fleet_summary((node._replace(reason="") for node in self.states), most)

    @property
    def unwell(self) -> tuple[tuple[NodeState, ...], ...]:
        """The nodes that are not well, the worst first; those of one state and kind of reason together. A red node, or
        one that was, stands by itself.
        """
        alike: dict[tuple[str, State, Why], list[NodeState]] = {}
        for node in sorted(self.states, key=NodeState.urgency):
            if node.state is not State.WELL:
                alone = node.node if node.state in (State.RED, State.ACKNOWLEDGED) else ""
                alike.setdefault((alone, node.state, node.why), []).append(node)
        return tuple(map(tuple, alike.values()))


class HeatCell(NamedTuple):
    """One node on one day: the worst of its states. A tuple: a map has thousands."""

    day: str
    state: State
    why: Why
    metric: Metric | None  # this and the next two: of the comparison that decided; None: no single one did
    against: Against | None
    deviation: float | None  # percent, or degrees C
    num_verdicts: int
    campaign_id: str  # of the worst verdict; of equals the one recorded last
    dag_id: str
    dag_run_id: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class HeatRow:
    """`cells`: one for each day of the map, None where the node was not judged."""

    node: str
    gpu_name: str | None
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
class Notices:
    """`rows` ends at a limit; the number counts all."""

    rows: tuple[Notice, ...]
    num_total: int


class StoredRow(SimpleNamespace):
    """A row as the history has it: each column is an attribute, and so is each figure, under its name."""

    def figure(self, figure: Figure) -> float | None:
        value: float | None = getattr(self, figure.name)
        return value


class NodePoint(StoredRow):
    """One campaign's verdict on the node at one work, with the limits of that campaign, None where it recorded none.
    `peers_expected`, `past_expected`, `level_expected`: the samples/s that it should have made; `run_id`: the run with
    the median throughput.
    """

    @property
    def word(self) -> str:
        return word(NodeState("", self.state, self.why))

    @property
    def work_name(self) -> str:
        return self.label or " · ".join(filter(None, (self.model, self.recipe, self.strategy))) or self.group_id


Series = tuple[NodePoint, ...]  # of a node at one work, the oldest first


class EventKind(StrEnum):
    SETUP = "setup"  # driver, image, kernel, VBIOS, power limit, pod template, GPU or a library
    OPENED = "opened"  # a notice
    CLOSED = "closed"
    ACKNOWLEDGED = "acknowledged"
    BASELINE = "baseline"  # accepted or revoked
    MARKED = "marked"  # other work is kept away
    FREED = "freed"


class NodeEvent(NamedTuple):
    """An event of a node. `what`: the changed item, or the notice's reason."""

    at: datetime
    kind: EventKind
    what: str
    text: str  # one sentence, as plain text
    campaign_id: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class NodePage:
    """A node's page, newest event first. `is_cut`: the limits left rows out; a shorter time shows them."""

    node: str
    state: NodeState
    series: tuple[Series, ...]
    events: tuple[NodeEvent, ...]
    open_notices: tuple[Notice, ...]
    baselines: tuple[Baseline, ...]  # in force for it
    is_cut: bool


class StrategyRow(StoredRow):
    """Medians over the campaigns, of which the newest ended `at`, of each campaign's median. Rows of one `work_key` and
    GPU did equal work. `noise`: of the median of its campaigns, or of the runs of the only one. Rows are ranked as the
    entries of a campaign are.
    """

    @property
    def is_measured_here(self) -> bool:
        return bool(self.tokens_per_second) and not self.is_imported

    @property
    def on_cpu(self) -> bool:
        """Whether no run reported a GPU: `world_size` counts processes then."""
        return self.gpu_name is None

    by_cpu_time = on_cpu

    @property
    def tokens_per_s(self) -> float:
        return self.tokens_per_second or 0.0

    @property
    def samples_per_s(self) -> float:
        return self.samples_per_second or 0.0

    @property
    def name(self) -> str:
        return f"{self.strategy} on {count(self.world_size, 'process' if self.on_cpu else 'GPU')}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Strategies:
    rows: tuple[StrategyRow, ...]
    is_cut: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """Costs: months with the newest first, the others with the most expensive first."""

    total: Spend
    imported: Spend  # at the prices of this installation, in no other sum
    months: tuple[Spend, ...]
    dags: tuple[Spend, ...]
    works: tuple[Spend, ...]
    unpriced: tuple[Unpriced, ...]


class RunRow(StoredRow):
    """A run. `state`, `why`: of the campaign's verdict on its node; None: it judged none."""

    @property
    def word(self) -> str:
        return word(NodeState(self.node, self.state, self.why)) if self.state and self.why else ""

    @property
    def is_imported(self) -> bool:
        """Whether others measured it, on a node that has no page."""
        return bool(self.dag_id == IMPORTED_SUITE)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunsPage:
    """A page of runs; the last one may not reach the oldest."""

    rows: tuple[RunRow, ...]
    num_total: int
    num_failed: int
    page: int
    num_pages: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPage:
    """`label`: the name that the plan gave the work. `verdict`: the campaign's on the node of this run. `notice`: the
    one that is open on its node. `others`: the node's other runs of the same work there.
    """

    run: RunRow
    label: str | None
    verdict: NodePoint | None
    notice: Notice | None
    others: tuple[str, ...]

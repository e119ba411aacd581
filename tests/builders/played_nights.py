"""Whole nights through the pipeline and a real SQLite history, with what people receive of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from bench_image.contract.result import RunResult
from bench_image.contract.spec import RunSpec
from tests.builders import STARTED_AT, make_result
from tests.builders.databases import empty_database
from trainbench.alerting.notice_text import Event, message
from trainbench.alerting.outbox import Outbox
from trainbench.core.states import NodeState
from trainbench.core.verdicts import Level, NodeVerdict, Why
from trainbench.history.history import History, open_history
from trainbench.judging.levels import KnownLevel, Levels
from trainbench.params.campaign_params import parse_params
from trainbench.pipeline import Judged, Measured, assess, judge
from trainbench.planning.nodes import Fleet
from trainbench.planning.plan import make_plan
from trainbench.results.campaign import Campaign
from trainbench.settings.channels import Mail

DAG = "node_consistency"
EVERYTHING = Mail(kind="mail", to=("fleet@example.org",), at_least=Level.WARNING)
Rates = Mapping[str, float] | Callable[[str, int], float]  # node (and round) -> share of 10 samples/s


class Told(NamedTuple):
    event: Event
    node: str
    text: str  # of the message that it is in


class Night(NamedTuple):
    campaign: Campaign
    told: Sequence[Told]
    reran: tuple[str, ...]

    def verdict(self, node: str) -> NodeVerdict:
        return next(verdict for verdict in self.campaign.nodes if verdict.node == node)

    @property
    def whys(self) -> dict[str, Why]:
        """Without the nodes that are well."""
        return {state.node: state.why for state in self.campaign.node_states if state.why is not Why.WELL}


class Nights:
    """A fleet that is checked night after night, one minute each."""

    def __init__(
        self, folder: Path, *nodes: str, noise_pct: float = 0.1, levels: Sequence[KnownLevel] = (), **params: Any
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.history: History = open_history(empty_database("sqlite", folder, has_tables=True))
        self.nodes, self.noise_pct, self.levels, self.params = nodes, noise_pct, tuple(levels), params
        self.played: list[Night] = []
        self.draw = random.Random(2026)

    def night(
        self,
        rates: Rates | None = None,
        *,
        nodes: Sequence[str] = (),
        machines: Mapping[str, str] | None = None,
        fields: Mapping[str, Mapping[str, Any]] | None = None,
        change: Callable[[RunResult], RunResult] = lambda run: run,
    ) -> Night:
        """`rates`: 1 where nothing is said. `machines`: node -> the machine that has this name tonight. `fields`: node
        -> fields of its results; `change`: what else to do to each result.
        """
        at = STARTED_AT + timedelta(days=len(self.played))
        params = parse_params({"nodes": nodes or self.nodes, "strategies": ["single"], "rounds": 1, **self.params})
        plan = make_plan(params, Fleet(), f"night-{len(self.played) + 1}")

        def run(spec: RunSpec) -> RunResult:
            node, round_ = spec.identity.node, spec.identity.round
            share = rates(node, round_) if callable(rates) else (rates or {}).get(node, 1.0)
            rate = 10.0 * share * (1 + self.draw.gauss(0, self.noise_pct / 100))
            windows = [rate * (1 + self.draw.gauss(0, self.noise_pct / 100)) for _ in range(3)]
            machine = (machines or {}).get(node, node)
            made = make_result(machine, rate, windows=windows, **(fields or {}).get(node, {}))
            times = {"started_at": at + timedelta(minutes=round_), "finished_at": at + timedelta(minutes=round_ + 1)}
            return change(made.model_copy(update={"spec": spec, **times}))

        measured = Measured(
            plan=plan,
            results=tuple(map(run, plan.specs)),
            suite=DAG,
            started_at=at,
            finished_at=at + timedelta(minutes=9),
            history=self.history,
            levels=Levels(tuple(self.levels)),
        )
        first: Judged = judge(measured)
        reruns = [run(spec) for spec in first.rerun_specs]
        campaign = assess(first.with_reruns(reruns, measured.finished_at))
        self.history.record(campaign)
        reran = tuple(dict.fromkeys(spec.identity.node for spec in first.rerun_specs))
        self.played.append(Night(campaign, self._told(campaign), reran))
        return self.played[-1]

    def _told(self, campaign: Campaign) -> list[Told]:
        outbox, now = Outbox(self.history.engine), campaign.finished_at + timedelta(minutes=1)
        taken = outbox.take(DAG, EVERYTHING, now)
        outbox.end(taken, EVERYTHING, now)
        told = []
        for event in Event:
            of_event = [due.notice for due in taken if due.event is event]
            if of_event:
                text = message(of_event, event, None).slack
                told += [Told(event, notice.node, text) for notice in of_event]
        return told

    @property
    def told(self) -> list[tuple[int, Event, str]]:
        """(night from 1, event, node) of everything that anybody received."""
        return [(i, told.event, told.node) for i, night in enumerate(self.played, 1) for told in night.told]

    def fleet(self) -> dict[str, NodeState]:
        """Each node as the Fleet page shows it after the last night."""
        state = self.history.fleet_state(self.played[-1].campaign.finished_at, timedelta(hours=36))
        return {node.state.node: node.state for node in state.nodes}

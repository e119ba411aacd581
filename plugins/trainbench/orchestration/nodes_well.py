"""The sensor that lets a DAG go on only where the history says that its nodes are well."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import BaseSensorOperator, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout, AirflowSkipException

from trainbench.core.formats import listing, moment
from trainbench.core.states import TRAITS, NodeState, told
from trainbench.core.verdicts import State, Why
from trainbench.orchestration.plan_tasks import OUTAGE_RETRIES
from trainbench.settings.environment import read_settings

MAX_NAMED = 10  # nodes in the message


class NodesWellSensor(BaseSensorOperator):
    """Succeeds where the last verdict of each named node is `well` and fresh. It starts no pod.

    By default it asks once, and fails with a sentence that names each other node, its reason, since when, and the next
    step. With a `timeout` it asks again until then, and holds no worker in between.
    """

    template_fields: Sequence[str] = ("nodes",)

    def __init__(
        self,
        *,
        nodes: Iterable[str] | Any,
        max_age_h: float = 36.0,
        timeout: timedelta | float = 0,
        poke_interval: timedelta | float = 300,
        mode: str = "reschedule",
        **kwargs: Any,
    ) -> None:
        """`nodes`: names, or one text with commas; a template or another task's output may give them. `max_age_h`: an
        older verdict counts as none. `timeout`: seconds to wait for a better verdict.
        """
        kwargs = {**OUTAGE_RETRIES, **kwargs}  # the history may be away
        super().__init__(timeout=timeout, poke_interval=poke_interval, mode=mode, **kwargs)
        if isinstance(max_age_h, bool) or not 0 < max_age_h <= 8760:
            raise ValueError(f"max_age_h is {max_age_h}: give hours, more than 0 and at most 8760")
        self.nodes, self.max_age_h = nodes, max_age_h
        self._said = ""

    def execute(self, context: Context) -> Any:
        try:
            return super().execute(context)
        except (AirflowSensorTimeout, AirflowSkipException) as late:  # the latter with `soft_fail`
            raise type(late)(self._said or str(late)) from None

    def poke(self, context: Context) -> bool:
        from trainbench.history.history import open_history
        from trainbench.results.artefacts import open_store

        given = self.nodes.split(",") if isinstance(self.nodes, str) else self.nodes or ()
        names = tuple(name.strip() for name in given if isinstance(name, str) and name.strip())
        if not names:
            raise AirflowFailException(f"nodes is {self.nodes!r:.200}: name at least one node")
        settings, now = read_settings(), datetime.now(UTC)
        history = open_history(settings.history_url, open_store(settings.store))
        states = history.states_of(names, now, timedelta(hours=self.max_age_h))
        self._said = not_well(states, self.max_age_h)
        self.log.info("%s", self._said or f"well: {listing(names, MAX_NAMED)}")
        return not self._said


def not_well(states: Iterable[NodeState], max_age_h: float) -> str:
    """One sentence for each node that is not well, the most urgent first; empty where all are."""
    others = sorted((state for state in states if state.state is not State.WELL), key=NodeState.urgency)
    if not others:
        return ""
    more = f"; and {len(others) - MAX_NAMED} more" if len(others) > MAX_NAMED else ""
    return "; ".join(_clause(state, max_age_h) for state in others[:MAX_NAMED]) + more


def _clause(state: NodeState, max_age_h: float) -> str:
    """ "node-3 is slow: samples/s -9.7 %, since 2026-11-21 02:00:00 UTC (next: drain it)"."""
    step = TRAITS[told(state)].next_step
    if state.why is Why.STALE:
        since = f"has no verdict of the last {max_age_h:g} h"
        last = f", its last is of {moment(state.since)}" if state.since else ", and never had one"
        return f"{state.node} {since}{last} (next: {step})"
    since = f", since {moment(state.since)}" if state.since else ""
    return f"{state.phrase}{since} (next: {step})"

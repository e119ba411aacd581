"""Tables of the noise floor: the spread of equal runs on each node, and the smallest slowdown that can be detected."""

from __future__ import annotations

from collections.abc import Mapping

from trainbench.comparison.noise_advice import noise_advice, num_nodes
from trainbench.comparison.noise_floor import PAST_CAMPAIGNS, ROUNDS, Floor, Spread, floors, measures_noise
from trainbench.core.formats import NA, share
from trainbench.core.tables import Column, Table, integer, make_table, text, text_row
from trainbench.figure_catalogue.run_figures import SAMPLES_PER_SECOND, share_2
from trainbench.figure_catalogue.table_figures import (
    NOISE_BETWEEN_RUNS,
    NOISE_INTERVAL,
    NOISE_WITHIN_RUNS,
    RANGE,
    SMALLEST_SLOWDOWN,
)
from trainbench.reporting import verdict_text, work_names
from trainbench.results.campaign import Campaign

NODES = (3, 4, 8, 16)


def noise_tables(campaign: Campaign) -> tuple[Table, ...]:
    """Two tables for each work and kind of GPU; empty where the noise was not measured."""
    if not measures_noise(campaign):
        return ()
    runs = verdict_text.runs_of_groups(campaign)
    tables_of_floors = (
        (_noise(campaign, floor, runs), _smallest_slowdowns(campaign, floor)) for floor in floors(campaign.results)
    )
    return tuple(table for tables in tables_of_floors for table in tables if table)


def _noise(campaign: Campaign, floor: Floor, runs: Mapping[str, Mapping[str, str | None]]) -> Table:
    """The table of noise. `runs`: group id -> node -> id of the run to show."""
    pooled = [
        text_row(
            "all nodes",
            *(("all",) if floor.is_per_gpu else ()),
            str(sum(node.num_runs for node in floor.nodes)),
            NA,
            *_spread(floor.between),
            _spread(floor.within)[0],
            NA,
        )
    ]
    return make_table(
        floor.nodes,
        (
            text("node", lambda node: node.node),
            *((text("GPU", lambda node: node.gpu or "all"),) if floor.is_per_gpu else ()),
            integer("runs", lambda node: node.num_runs),
            SAMPLES_PER_SECOND.column(lambda node: node.samples_per_second),
            NOISE_BETWEEN_RUNS.column(lambda node: _spread(node.between)[0]),
            NOISE_INTERVAL.column(lambda node: _spread(node.between)[1]),
            NOISE_WITHIN_RUNS.column(lambda node: _spread(node.within)[0]),
            RANGE.column(lambda node: node.range_pct, write=share_2),
        ),
        run_id=lambda node: runs[floor.group_id][node.node],
        more=pooled if len(floor.nodes) > 1 else (),
        notes=(
            "Standard deviations of samples/s. All nodes: pooled, without the common effect of a round"
            + (", one GPU of each node at a time." if floor.is_per_gpu else "."),
            *noise_advice(floor, campaign.params),
        ),
        title=work_names.group_name(campaign, floor.group_id),
    )


def _smallest_slowdowns(campaign: Campaign, floor: Floor) -> Table | None:
    if floor.between is None:
        return None
    sizes = sorted({*NODES, num_nodes(floor)})
    unit, own = ("GPU", "the slowest GPU of a node ") if floor.is_per_gpu else ("node", "")

    def slowdown_column(heading: str, peers: int | None) -> Column[int]:
        return SMALLEST_SLOWDOWN.column(
            lambda rounds: floor.detectable_pct(rounds, peers, in_19_of_20=True), heading, write=share_2
        )

    return make_table(
        ROUNDS,
        (
            integer("rounds", lambda rounds: rounds),
            *(slowdown_column(f"{size} nodes", size - 1) for size in sizes),
            slowdown_column("own past", None),
        ),
        notes=(
            f"A {unit} that is slower by this much is detected in 19 of 20 nights, unless the limit is wider. Own "
            f"past: {own}against its last {PAST_CAMPAIGNS} campaigns, without changes between days.",
        ),
        title=f"Smallest slowdown that is detected: {work_names.group_name(campaign, floor.group_id)}",
    )


def _spread(spread: Spread | None) -> tuple[str, str]:
    if spread is None:
        return NA, NA
    return share(spread.sd_pct, 2), f"{share(spread.low_pct, 2)} to {share(spread.high_pct, 2)}"

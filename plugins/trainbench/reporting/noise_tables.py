"""The noise floor as tables: how much equal runs differ on each node, and which slowdown can be found here."""

from __future__ import annotations

from collections.abc import Mapping

from trainbench.comparison.noise_advice import advice, num_nodes
from trainbench.comparison.noise_floor import PAST_CAMPAIGNS, ROUNDS, Floor, Spread, floors, measures_noise
from trainbench.core.formats import NA, figure, share
from trainbench.core.tables import Row, Table
from trainbench.reporting import verdict_text
from trainbench.results.campaign import Campaign

NODES = (3, 4, 8, 16)


def noise_tables(campaign: Campaign) -> tuple[Table, ...]:
    """Two tables for each work and kind of GPU; none where the noise was not measured."""
    if not measures_noise(campaign):
        return ()
    runs = verdict_text.runs_of_groups(campaign)
    found = ((_noise(campaign, floor, runs), _found(campaign, floor)) for floor in floors(campaign.results))
    return tuple(table for tables in found for table in tables if table)


def _noise(campaign: Campaign, floor: Floor, runs: Mapping[str, Mapping[str, str | None]]) -> Table:
    """`runs`: group id -> node -> the run to show for it."""
    gpu = ("GPU",) if floor.is_per_gpu else ()
    figures = ("runs", "samples/s", "between runs", "95 % interval", "within runs", "fastest \u2212 slowest")
    rows = [
        Row(
            cells=(
                node.node,
                *((node.gpu or "all",) if gpu else ()),
                str(node.num_runs),
                figure(node.samples_per_second),
                *_spread(node.between),
                _spread(node.within)[0],
                share(node.range_pct, 2),
            ),
            run_id=runs[floor.group_id][node.node],
        )
        for node in floor.nodes
    ]
    if len(rows) > 1:
        num_runs = str(sum(node.num_runs for node in floor.nodes))
        name = ("all nodes", "all") if gpu else ("all nodes",)
        rows.append(Row(cells=(*name, num_runs, NA, *_spread(floor.between), _spread(floor.within)[0], NA)))
    return Table(
        columns=("node", *gpu, *figures),
        numeric=frozenset(figures),
        rows=tuple(rows),
        notes=(
            "Standard deviations of samples/s. All nodes: pooled, without what a round does to all nodes alike"
            + (", one GPU of each node at a time." if gpu else "."),
            *advice(floor, campaign.params),
        ),
        title=verdict_text.group_name(campaign, floor.group_id),
    )


def _found(campaign: Campaign, floor: Floor) -> Table | None:
    if floor.between is None:
        return None
    sizes = sorted({*NODES, num_nodes(floor)})
    unit, own = ("GPU", "the slowest GPU of a node ") if floor.is_per_gpu else ("node", "")
    columns = ("rounds", *(f"{size} nodes" for size in sizes), "own history")
    return Table(
        columns=columns,
        numeric=frozenset(columns),
        rows=tuple(
            Row(
                cells=(
                    str(rounds),
                    *(share(floor.told_pct(rounds, size - 1, found=True), 2) for size in sizes),
                    share(floor.told_pct(rounds, None, found=True), 2),
                )
            )
            for rounds in ROUNDS
        ),
        notes=(
            f"Slower by this much, a {unit} is told from chance in 19 of 20 nights, where the limit is no wider. Own "
            f"history: {own}against its last {PAST_CAMPAIGNS} campaigns; what differs from day to day is not in it.",
        ),
        title=f"Smallest slowdown that is found: {verdict_text.group_name(campaign, floor.group_id)}",
    )


def _spread(spread: Spread | None) -> tuple[str, str]:
    if spread is None:
        return NA, NA
    return share(spread.sd_pct, 2), f"{share(spread.low_pct, 2)} to {share(spread.high_pct, 2)}"

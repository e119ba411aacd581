"""Tables of GPUs that were measured independently, one for each work, the worst GPU first."""

from __future__ import annotations

from operator import itemgetter

from trainbench.core.formats import NA
from trainbench.core.tables import Table, make_table, text
from trainbench.core.verdicts import GroupVerdict, Metric
from trainbench.figure_catalogue.run_figures import TEMPERATURE_MEAN_C
from trainbench.judging.peers.gpu_verdicts import badness
from trainbench.reporting.verdict_text import judged_columns, state_text, tone_of
from trainbench.reporting.work_names import group_name
from trainbench.results.campaign import Campaign


def gpu_tables(campaign: Campaign) -> tuple[Table, ...]:
    """The tables; empty for a campaign without independent GPUs."""
    return tuple(_table(campaign, group) for group in campaign.groups if any(node.gpus for node in group.nodes))


def _table(campaign: Campaign, group: GroupVerdict) -> Table:
    gpus = [(node.node, gpu) for node in group.nodes for gpu in node.gpus]
    return make_table(
        sorted(gpus, key=lambda pair: badness(pair[1])[:2]),
        (
            text("node", lambda pair: pair[0]),
            text("GPU", lambda pair: str(pair[1].index)),
            text("UUID", lambda pair: pair[1].uuid or NA),
            *judged_columns(itemgetter(1), "against its peers"),
            TEMPERATURE_MEAN_C.column(lambda pair: pair[1].value(Metric.TEMPERATURE_C), "temperature", is_number=False),
            text("state", lambda pair: state_text(pair[1])),
        ),
        tone=lambda pair: tone_of(pair[1]),
        title=group_name(campaign, group.group_id),
    )

"""One table for each work that ran on each GPU by itself: every GPU of every node, the worst first."""

from __future__ import annotations

from trainbench.core.formats import NA, degrees, figure, percent
from trainbench.core.tables import Row, Table, Tone
from trainbench.core.verdicts import RED, GpuVerdict, GroupVerdict, Metric, State
from trainbench.judging.peers.gpu_verdicts import badness
from trainbench.reporting.verdict_text import group_name
from trainbench.results.campaign import Campaign

COLUMNS = ("node", "GPU", "UUID", "samples/s", "against its peers", "memory GB", "temperature", "state")


def gpu_tables(campaign: Campaign) -> tuple[Table, ...]:
    """Nothing for a campaign without nodes whose GPUs measured by themselves."""
    return tuple(_table(campaign, group) for group in campaign.groups if any(node.gpus for node in group.nodes))


def _table(campaign: Campaign, group: GroupVerdict) -> Table:
    gpus = [(node.node, gpu) for node in group.nodes for gpu in node.gpus]
    worst_first = sorted(gpus, key=lambda pair: badness(pair[1])[:2])
    return Table(
        columns=COLUMNS,
        numeric=frozenset((COLUMNS[3], COLUMNS[4], COLUMNS[5])),
        rows=tuple(_row(node, gpu) for node, gpu in worst_first),
        title=group_name(campaign, group.group_id),
    )


def _row(node: str, gpu: GpuVerdict) -> Row:
    rate, memory, heat = (gpu.metric(metric) for metric in Metric)
    words = [gpu.state.value.replace("_", " ")]
    words += [word for word, holds in (("watched", gpu.is_watched), ("unsteady", gpu.is_unsteady)) if holds]
    is_well = gpu.state is State.OK and not (gpu.is_watched or gpu.is_unsteady)
    return Row(
        cells=(
            node,
            str(gpu.index),
            gpu.uuid or NA,
            figure(rate.value) if rate else NA,
            percent(rate.deviation) if rate else NA,
            figure(memory.value) if memory else NA,
            degrees(heat.value) if heat and heat.value is not None else NA,
            ", ".join(words),
        ),
        tone=Tone.BAD if gpu.state in RED else Tone.GOOD if is_well else Tone.WARN,
    )

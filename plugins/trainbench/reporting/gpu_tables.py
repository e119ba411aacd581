"""One table for each work that ran on each GPU by itself: every GPU of every node, the worst first."""

from __future__ import annotations

from trainbench.core.formats import NA
from trainbench.core.tables import Table, Tone, make_table, text
from trainbench.core.verdicts import RED, GpuVerdict, GroupVerdict, Metric, State
from trainbench.figure_catalogue.run_figures import PEAK_MEMORY_GB, SAMPLES_PER_SECOND, TEMPERATURE_MEAN_C
from trainbench.figure_catalogue.table_figures import DEVIATION
from trainbench.judging.peers.gpu_verdicts import badness
from trainbench.reporting.work_names import group_name
from trainbench.results.campaign import Campaign


def gpu_tables(campaign: Campaign) -> tuple[Table, ...]:
    """Nothing for a campaign without nodes whose GPUs measured by themselves."""
    return tuple(_table(campaign, group) for group in campaign.groups if any(node.gpus for node in group.nodes))


def _table(campaign: Campaign, group: GroupVerdict) -> Table:
    gpus = [(node.node, gpu) for node in group.nodes for gpu in node.gpus]
    return make_table(
        sorted(gpus, key=lambda pair: badness(pair[1])[:2]),
        (
            text("node", lambda pair: pair[0]),
            text("GPU", lambda pair: str(pair[1].index)),
            text("UUID", lambda pair: pair[1].uuid or NA),
            SAMPLES_PER_SECOND.column(lambda pair: _value(pair[1], Metric.SAMPLES_PER_SECOND)),
            DEVIATION.column(lambda pair: _deviation(pair[1]), "against its peers"),
            PEAK_MEMORY_GB.column(lambda pair: _value(pair[1], Metric.MEMORY_GB)),
            TEMPERATURE_MEAN_C.column(
                lambda pair: _value(pair[1], Metric.TEMPERATURE_C), "temperature", is_number=False
            ),
            text("state", lambda pair: ", ".join([pair[1].state.value.replace("_", " "), *_doubts(pair[1])])),
        ),
        tone=lambda pair: _tone(pair[1]),
        title=group_name(campaign, group.group_id),
    )


def _value(gpu: GpuVerdict, metric: Metric) -> float | None:
    verdict = gpu.metric(metric)
    return verdict.value if verdict else None


def _deviation(gpu: GpuVerdict) -> float | None:
    verdict = gpu.metric(Metric.SAMPLES_PER_SECOND)
    return verdict.deviation if verdict else None


def _doubts(gpu: GpuVerdict) -> list[str]:
    return [word for word, holds in (("watched", gpu.is_watched), ("unsteady", gpu.is_unsteady)) if holds]


def _tone(gpu: GpuVerdict) -> Tone:
    is_well = gpu.state is State.OK and not _doubts(gpu)
    return Tone.BAD if gpu.state in RED else Tone.GOOD if is_well else Tone.WARN

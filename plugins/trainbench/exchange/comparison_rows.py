"""Rows of a comparison across machines: one for each benchmark file, or for each kind of run in a folder."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench_image.contract.flops import num_parameters
from bench_image.contract.frozen import Frozen
from bench_image.contract.result import RunResult
from bench_image.contract.work import Device, DiskData, Work
from trainbench.comparison.entries import half_range_pct
from trainbench.core.formats import count, one_line
from trainbench.core.known_values import known_median
from trainbench.figure_catalogue.figure import Figure
from trainbench.figure_catalogue.run_figures import (
    GPU_UTILISATION_MEAN_PCT,
    HALF_WIDTH_PCT,
    MEDIAN_STEP_TIME_S,
    PEAK_MEMORY_GB,
    SAMPLES_PER_SECOND,
    TOKENS_PER_SECOND,
)
from trainbench.results.readings import gpu_name, hardware_name
from trainbench.results.setups import setup_of

COMPARED = (SAMPLES_PER_SECOND, TOKENS_PER_SECOND, MEDIAN_STEP_TIME_S, PEAK_MEMORY_GB, GPU_UTILISATION_MEAN_PCT)


class ComparisonRow(Frozen):
    """One row of a comparison: medians over `num_runs` runs of one kind. `job`: the settings that must be equal to
    rank.

    `apart_pct`: half of the range of the runs' samples/s over their median; of a single run its own 95 % half-width, or
    half of the range of its epochs.
    """

    name: str
    addresses: tuple[str, ...]  # of the raw files, at most MAX_ADDRESSES
    program: str
    label: str
    num_parameters: int | None = None  # None: unknown
    job: Mapping[str, str]
    strategy: str | None = None
    hardware: str
    num_gpus: int  # 0 on the CPU
    num_ranks: int
    batch_per_rank: int | None  # samples of one rank in one optimizer step
    nodes: int = 1
    num_runs: int = 1
    figures: Mapping[str, float | None]  # of COMPARED, by their names in the catalogue; samples/s is always known
    epoch_s: float | None  # of the whole data set
    apart_pct: float | None
    apart_from: str | None  # the source of `apart_pct`
    usd_per_gpu_hour: float | None = None
    price_source: str | None = None
    pod_template: str | None = None  # its digest; "none": without one; None: not known

    def figure(self, figure: Figure) -> float | None:
        return self.figures[figure.name]

    @property
    def size(self) -> str:
        """ "4 GPUs"; on the CPU "2 processes"."""
        return count(self.num_gpus, "GPU") if self.num_gpus else count(self.num_ranks, "process")

    @property
    def samples_per_s(self) -> float:
        return self.figures[SAMPLES_PER_SECOND.name] or 0.0

    @property
    def global_batch(self) -> int | None:
        return None if self.batch_per_rank is None else self.batch_per_rank * self.num_ranks


MAX_ADDRESSES = 20


@dataclass
class Collector:
    """Collects files one by one and keeps a few figures of each, so that 100,000 results fit into memory."""

    _runs: dict[tuple[str, ...], _Runs] = field(default_factory=dict)
    _order: list[ComparisonRow | _Runs] = field(default_factory=list)

    def add_result(self, source: str, address: str, result: RunResult) -> None:
        """Add a measured run. Runs of one source, campaign, work, hardware and pod template become one row."""
        identity, template = result.spec.identity, setup_of(result.context).pod_template or ""
        key = (source, identity.campaign_id, result.effective_spec.fingerprint, gpu_name(result) or "", template)
        if key not in self._runs:
            self._runs[key] = _Runs(row_of_run(source, address, result), source)
            self._order.append(self._runs[key])
        self._runs[key].add(address, result)

    def add_row(self, row: ComparisonRow) -> None:
        """Add a file of another format, which is a row of its own."""
        self._order.append(row)

    def rows(self) -> tuple[ComparisonRow, ...]:
        """The rows, in the order in which their first files were added."""
        campaigns: dict[str, set[str]] = {}
        for source, campaign_id, *_ in self._runs:
            campaigns.setdefault(source, set()).add(campaign_id)
        for (source, campaign_id, *_), runs in self._runs.items():
            runs.name = source if len(campaigns[source]) == 1 else campaign_id
        return tuple(item.row() if isinstance(item, _Runs) else item for item in self._order)


@dataclass
class _Runs:
    """Runs of one kind: the first run's row, and the compared figures of each."""

    first: ComparisonRow
    name: str
    addresses: list[str] = field(default_factory=list)
    figures: list[tuple[float | None, ...]] = field(default_factory=list)
    nodes: set[str] = field(default_factory=set)

    def add(self, address: str, result: RunResult) -> None:
        if len(self.addresses) < MAX_ADDRESSES:
            self.addresses.append(address)
        self.figures.append(tuple(each.value(result) for each in COMPARED))
        self.nodes.add(result.spec.identity.node)

    def row(self) -> ComparisonRow:
        columns = dict(zip(COMPARED, zip(*self.figures, strict=True), strict=True))
        rates = [rate for rate in columns[SAMPLES_PER_SECOND] if rate is not None]
        rate, epoch_s = statistics.median(rates), self.first.epoch_s
        several = {
            "epoch_s": None if epoch_s is None else epoch_s * self.first.samples_per_s / rate,
            **apart(rates, "runs"),
        }
        figures = {each.name: known_median(values) for each, values in columns.items()}
        of_all = {"addresses": tuple(self.addresses), "nodes": len(self.nodes), "figures": figures}
        return self.first.model_copy(
            update={"name": self.name, "num_runs": len(rates), **of_all, **(several if len(rates) > 1 else {})}
        )


def row_of_run(name: str, address: str, result: RunResult) -> ComparisonRow:
    spec, half_width_pct = result.effective_spec, HALF_WIDTH_PCT.value(result)
    figures = {each.name: each.value(result) for each in COMPARED}
    work, rate = spec.work, figures[SAMPLES_PER_SECOND.name]
    return ComparisonRow(
        name=name,
        addresses=(address,),
        program="trainbench",
        label=f"{work.model} {work.recipe}, {work.seq_length} tokens, {work.precision}, {work.preset}",
        num_parameters=num_parameters(work.shape),
        job=_job(work),
        strategy=spec.placement.strategy.value,
        hardware=hardware_name(spec, gpu_name(result)),
        num_gpus=0 if work.device is Device.CPU else spec.placement.world_size,
        num_ranks=spec.placement.world_size,
        batch_per_rank=work.samples_per_micro_step * work.gradient_accumulation_steps,
        figures=figures,
        epoch_s=work.data.num_samples / rate if rate and isinstance(work.data, DiskData) else None,
        apart_pct=half_width_pct,
        apart_from=None if half_width_pct is None else "95 % interval of the mean step",
        usd_per_gpu_hour=result.cost.usd_per_gpu_hour,
        price_source=result.cost.price_source,
        pod_template=setup_of(result.context).pod_template,
    )


def same_job(one: ComparisonRow, other: ComparisonRow) -> bool:
    """Whether the two may be ranked: the same job, with an equal batch per rank or an equal batch of all ranks."""
    if one.job != other.job or one.program != other.program:
        return False
    return one.batch_per_rank == other.batch_per_rank or one.global_batch == other.global_batch


def differences(one: ComparisonRow, other: ComparisonRow) -> tuple[str, ...]:
    """The differences of two jobs: "seq_length 512 vs 1024"."""
    sentences = [
        f"{name} {one_line(one.job.get(name, 'none'), 60)} vs {one_line(other.job.get(name, 'none'), 60)}"
        for name in dict.fromkeys((*one.job, *other.job))
        if one.job.get(name) != other.job.get(name)
    ]
    if one.program != other.program:
        sentences.insert(0, f"measured by {one.program} vs {other.program}")
    if not sentences and not same_job(one, other):
        sentences.append(
            f"batch {one.batch_per_rank} x {one.num_ranks} ranks vs {other.batch_per_rank} x {other.num_ranks} ranks"
        )
    return tuple(sentences)


def row_of_epochs(name: str, address: str, result: RunResult) -> ComparisonRow:
    """The row of a run of the encoder-decoder's own program, whose windows are epochs."""
    windows = result.performance.windows
    more: dict[str, object] = {"epoch_s": statistics.fmean(window.wall_s for window in windows)}
    if len(windows) > 1:  # of a single epoch the row has its own half-width
        more |= apart([window.samples_per_second for window in windows], "epochs")
    return row_of_run(name, address, result).model_copy(update=more)


def _job(work: Work) -> dict[str, str]:
    """Each setting of the work as text, except the batch, which depends on the number of GPUs, and the data folder."""
    fields = work.model_dump(mode="json", exclude={"micro_batch_size", "gradient_accumulation_steps"})
    if fields["data"] != "memory":
        fields["data"] = "disk"
    return flattened(fields)


def flattened(fields: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Each setting as text, a nested one by its path: "dimensions.hidden_size"."""
    texts: dict[str, str] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping) and value:
            texts |= flattened(value, f"{prefix}{name}.")
        else:
            texts[prefix + name] = value if isinstance(value, str) else json.dumps(value)
    return texts


def compared_figures(known: Mapping[Figure, float | None]) -> dict[str, float | None]:
    return {each.name: known.get(each) for each in COMPARED}


def apart(rates: Sequence[float | None], what: str) -> dict[str, Any]:
    """Half of the range of samples/s of several runs or epochs; unknown where one of them is."""
    known = [rate for rate in rates if rate is not None]
    if len(known) < 2 or len(known) < len(rates):
        return {"apart_pct": None, "apart_from": None}
    return {"apart_pct": half_range_pct(known), "apart_from": f"half of the range of {len(known)} {what}"}

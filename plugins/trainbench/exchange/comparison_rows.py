"""Rows of a comparison across machines: one for each benchmark file, or for each kind of run in a folder."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench_image.contract.frozen import Frozen
from bench_image.contract.result import RunResult
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Device, DiskData, Work
from trainbench.core.formats import one_line
from trainbench.core.known_values import known_median
from trainbench.exchange.bench_files import OldFile, OwnFile
from trainbench.results.readings import gpu_name, utilisation_mean_pct

OLD_PROGRAM = "benchmark.py"


class Reading(Frozen):
    """The figures of one run; None: not known. `epoch_s`: of the whole data set."""

    samples_per_s: float
    tokens_per_s: float | None = None
    step_s: float | None = None
    epoch_s: float | None = None
    memory_gb: float | None = None
    utilisation_pct: float | None = None
    half_width_pct: float | None = None  # of the run itself: 95 % of the mean step time
    usd_per_gpu_hour: float | None = None  # as stored with the run
    price_source: str | None = None


class Contender(Frozen):
    """One row of a comparison: medians over `num_runs` runs of one kind. `job`: all that must be equal but the batch.

    `apart_pct`: half of the range of the runs' samples/s over their median; of a single run its own 95 % half-width, or
    half of the range of its epochs.
    """

    name: str
    addresses: tuple[str, ...]  # of the raw files, at most MAX_ADDRESSES
    program: str
    label: str
    job: Mapping[str, str]
    strategy: str | None
    hardware: str
    num_gpus: int  # 0 on the CPU
    num_ranks: int
    batch_per_rank: int | None  # samples of one rank in one optimizer step
    nodes: int
    num_runs: int
    samples_per_s: float
    tokens_per_s: float | None
    step_s: float | None
    epoch_s: float | None
    memory_gb: float | None
    utilisation_pct: float | None
    apart_pct: float | None
    apart_from: str | None  # what `apart_pct` comes from
    usd_per_gpu_hour: float | None
    price_source: str | None

    @property
    def global_batch(self) -> int | None:
        return None if self.batch_per_rank is None else self.batch_per_rank * self.num_ranks


MAX_ADDRESSES = 20


@dataclass
class Collector:
    """Takes files one by one and keeps a few figures of each: 100,000 results fit into memory."""

    _runs: dict[tuple[str, ...], _Runs] = field(default_factory=dict)
    _order: list[Contender | _Runs] = field(default_factory=list)

    def add_result(self, source: str, address: str, result: RunResult) -> None:
        """A run that measured something. Runs of one source and campaign that did the same on the same hardware become
        one row.
        """
        key = (source, result.spec.identity.campaign_id, result.effective_spec.fingerprint, gpu_name(result) or "")
        if key not in self._runs:
            self._runs[key] = _Runs(source, result.effective_spec, gpu_name(result))
            self._order.append(self._runs[key])
        self._runs[key].add(address, result)

    def add_bench_file(self, name: str, address: str, file: OwnFile | OldFile) -> None:
        """A file of its own program is a row of its own."""
        self._order.append(_of_own(name, address, file) if isinstance(file, OwnFile) else _of_old(name, address, file))

    def contenders(self) -> tuple[Contender, ...]:
        """In the order in which they came."""
        campaigns: dict[str, set[str]] = {}
        for source, campaign_id, *_ in self._runs:
            campaigns.setdefault(source, set()).add(campaign_id)
        for (source, campaign_id, *_), runs in self._runs.items():
            runs.name = source if len(campaigns[source]) == 1 else campaign_id
        return tuple(item.contender() if isinstance(item, _Runs) else item for item in self._order)


@dataclass
class _Runs:
    name: str
    spec: RunSpec
    gpu: str | None
    addresses: list[str] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    nodes: set[str] = field(default_factory=set)

    def add(self, address: str, result: RunResult) -> None:
        if len(self.addresses) < MAX_ADDRESSES:
            self.addresses.append(address)
        self.readings.append(_reading(result))
        self.nodes.add(result.spec.identity.node)

    def contender(self) -> Contender:
        rates = [reading.samples_per_s for reading in self.readings]
        apart_pct, apart_from = _apart(rates, self.readings[0].half_width_pct)
        first = self.readings[0]
        return Contender(
            name=self.name,
            addresses=tuple(self.addresses),
            program="trainbench",
            label=_label(self.spec.work),
            job=_job(self.spec.work),
            strategy=self.spec.placement.strategy.value,
            hardware=_hardware(self.spec, self.gpu),
            num_gpus=0 if self.spec.work.device is Device.CPU else self.spec.placement.world_size,
            num_ranks=self.spec.placement.world_size,
            batch_per_rank=self.spec.work.samples_per_micro_step * self.spec.work.gradient_accumulation_steps,
            nodes=len(self.nodes),
            num_runs=len(rates),
            samples_per_s=statistics.median(rates),
            tokens_per_s=known_median(r.tokens_per_s for r in self.readings),
            step_s=known_median(r.step_s for r in self.readings),
            epoch_s=known_median(r.epoch_s for r in self.readings),
            memory_gb=known_median(r.memory_gb for r in self.readings),
            utilisation_pct=known_median(r.utilisation_pct for r in self.readings),
            apart_pct=apart_pct,
            apart_from=apart_from,
            usd_per_gpu_hour=first.usd_per_gpu_hour,
            price_source=first.price_source,
        )


def same_job(one: Contender, other: Contender) -> bool:
    """Whether the two may be ranked: the same job, with an equal batch per rank or an equal batch of all ranks."""
    if one.job != other.job or one.program != other.program:
        return False
    return one.batch_per_rank == other.batch_per_rank or one.global_batch == other.global_batch


def differences(one: Contender, other: Contender) -> tuple[str, ...]:
    """What makes two jobs unequal: "seq_length 512 vs 1024"."""
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


def _reading(result: RunResult) -> Reading:
    performance, data = result.performance, result.effective_spec.work.data
    assert performance.samples_per_second is not None
    return Reading(
        samples_per_s=performance.samples_per_second,
        tokens_per_s=performance.tokens_per_second,
        step_s=performance.step_time.median_s if performance.step_time else None,
        epoch_s=data.num_samples / performance.samples_per_second if isinstance(data, DiskData) else None,
        memory_gb=result.memory.peak_during_training,
        utilisation_pct=utilisation_mean_pct(result),
        half_width_pct=performance.step_time.half_width_pct if performance.step_time else None,
        usd_per_gpu_hour=result.cost.usd_per_gpu_hour,
        price_source=result.cost.price_source,
    )


def _of_own(name: str, address: str, file: OwnFile) -> Contender:
    runs = _Runs(name, file.result.effective_spec, gpu_name(file.result))
    runs.add(address, file.result)
    apart_pct, apart_from = _apart_epochs([epoch.samples_per_second for epoch in file.epochs])
    own: dict[str, object] = {"epoch_s": file.epoch_mean_s, "utilisation_pct": file.utilisation_mean_pct}
    if apart_pct is not None:
        own |= {"apart_pct": apart_pct, "apart_from": apart_from}
    return runs.contender().model_copy(update=own)


def _of_old(name: str, address: str, file: OldFile) -> Contender:
    apart_pct, apart_from = _apart_epochs([epoch.samples_per_second for epoch in file.epochs])
    memory_mb = file.summary.peak_gpu_memory_mb
    return Contender(
        name=name,
        addresses=(address,),
        program=OLD_PROGRAM,
        label="encoder-decoder",
        job=file.job,
        strategy=None,
        hardware=file.metadata.gpu_name,
        num_gpus=file.metadata.gpu_count,
        num_ranks=max(1, file.metadata.gpu_count),
        batch_per_rank=file.batch_size,
        nodes=1,
        num_runs=1,
        samples_per_s=file.summary.avg_throughput_samples_per_s,
        tokens_per_s=None,
        step_s=None,
        epoch_s=file.summary.avg_wall_time_per_epoch_s,
        memory_gb=None if memory_mb is None else memory_mb / 1000,
        utilisation_pct=file.summary.avg_gpu_utilisation_pct,
        apart_pct=apart_pct,
        apart_from=apart_from,
        usd_per_gpu_hour=None,
        price_source=None,
    )


def _job(work: Work) -> dict[str, str]:
    """Each setting of the work as text, except the batch, which machines of other sizes may share out, and the folder
    of the data.
    """
    fields = work.model_dump(mode="json", exclude={"micro_batch_size", "gradient_accumulation_steps"})
    if fields["data"] != "memory":
        fields["data"] = "disk"
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()}


def _label(work: Work) -> str:
    return f"{work.model} {work.recipe}, {work.seq_length} tokens, {work.precision}, {work.preset}"


def _hardware(spec: RunSpec, gpu: str | None) -> str:
    return "CPU" if spec.work.device is Device.CPU else gpu or "GPU unknown"


def _apart(rates: Sequence[float], half_width_pct: float | None) -> tuple[float | None, str | None]:
    """(half of the range / median in percent, what of); of one run its own half-width."""
    if len(rates) > 1:
        return 100 * (max(rates) - min(rates)) / 2 / statistics.median(rates), f"half of the range of {len(rates)} runs"
    return half_width_pct, None if half_width_pct is None else "95 % interval of the mean step"


def _apart_epochs(rates: Sequence[float | None]) -> tuple[float | None, str | None]:
    known = [rate for rate in rates if rate is not None]
    if len(known) < 2 or len(known) < len(rates):
        return None, None
    return _apart(known, None)[0], f"half of the range of {len(known)} epochs"

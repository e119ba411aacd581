"""Result files of ours and of other programs, as rows of a comparison.

Of `benchmark.py` of an encoder-decoder: metadata, config, summary and epochs, memory in MB = 1e6 bytes.

Of the flat result.json of a published comparison of strategies, one for each run: `tokens_per_sec` of all GPUs, memory
in GB of 1e9 bytes. Two of its fields are not read: `mean_step_time_sec` counts one micro-step as a step where gradients
accumulate, and `h2d_gbps_per_gpu` is bytes of the batches over the time of the run, not the rate of a copy.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from bench_image.contract.flops import num_parameters
from bench_image.contract.frozen import ContractError, Frozen
from bench_image.contract.parse import explain, parse_result, strict_json
from bench_image.contract.pod_io import MAX_RESULT_BYTES, RESULT_FILE
from bench_image.contract.result import RunResult
from bench_image.contract.seq2seq_file import CAMPAIGN as SEQ2SEQ
from bench_image.contract.work import Device, DiskData
from trainbench.core.formats import NA, count, listing, one_line
from trainbench.core.known_values import known_median
from trainbench.core.user_error import UserError
from trainbench.figure_catalogue.figure import Figure
from trainbench.figure_catalogue.run_figures import (
    GPU_UTILISATION_MEAN_PCT,
    HALF_WIDTH_PCT,
    MEDIAN_STEP_TIME_S,
    PEAK_MEMORY_GB,
    SAMPLES_PER_SECOND,
    TOKENS_PER_SECOND,
)
from trainbench.results.artefacts import CAMPAIGN_FILE, Store, read_campaign
from trainbench.results.readings import gpu_name, hardware_name, is_measured
from trainbench.results.setups import setup_of
from trainbench.results.store_files import (
    BrokenFile,
    Progress,
    StoreError,
    address,
    is_file,
    is_folder,
    no_progress,
    read_bounded,
)

if TYPE_CHECKING:
    from upath import UPath


COMPARED = (SAMPLES_PER_SECOND, TOKENS_PER_SECOND, MEDIAN_STEP_TIME_S, PEAK_MEMORY_GB, GPU_UTILISATION_MEAN_PCT)
MAX_ADDRESSES = 20


class ComparisonRow(Frozen):
    """One row of a comparison: medians over `num_runs` runs of one kind. `job`: the settings that must be equal to
    rank.

    `apart_pct`: half of the range of the runs' samples/s over their median; of a single run its own 95 % half-width, or
    half of the range of its epochs. What `compare` adds is None where it is not known, or the baseline did other work:
    `relative_rate` = samples/s / the baseline's, `relative_usd` likewise per 1K samples. `is_ranked`: False where
    neither the batch of a GPU nor that of all is the baseline's, so a step is other work.
    """

    number: int = 0  # from 1, in the order of the sources and of --cost

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
    apart_pct: float | None = None
    apart_from: str | None = None  # the source of `apart_pct`
    usd_per_gpu_hour: float | None = None
    price_source: str | None = None
    pod_template: str | None = None  # its digest; "none": without one; None: not known
    usd_per_1000_samples: float | None = None
    usd_per_1m_tokens: float | None = None
    usd_per_epoch: float | None = None
    relative_rate: float | None = None
    relative_usd: float | None = None
    is_ranked: bool = False
    is_baseline: bool = False

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
    def batch(self) -> str:
        """ "4 x 8 = 32"."""
        return NA if self.batch_per_rank is None else f"{self.batch_per_rank} x {self.num_ranks} = {self.global_batch}"

    @property
    def global_batch(self) -> int | None:
        return None if self.batch_per_rank is None else self.batch_per_rank * self.num_ranks


def row_of_runs(name: str, runs: Sequence[tuple[str, RunResult]]) -> ComparisonRow:
    """The row of runs of one kind, each with the address of its file. A single run has its own uncertainty."""
    results = [result for _, result in runs]
    first, spec = results[0], results[0].effective_spec
    work, half_width_pct = spec.work, HALF_WIDTH_PCT.value(first)
    figures = {each.name: known_median(each.value(result) for result in results) for each in COMPARED}
    ranks, samples = spec.placement.world_size, work.samples_per_micro_step * work.gradient_accumulation_steps
    about: dict[str, Any]
    if work.own_job:  # what its fingerprint has; the samples of its step are of all GPUs together
        job = {"device": work.device.value, **work.own_job.canonical()}
        about = {"label": work.name, "batch_per_rank": None if samples % ranks else samples // ranks}
    else:
        # Each setting, except the batch, which depends on the number of GPUs, and the data folder.
        job = work.model_dump(mode="json", exclude={"micro_batch_size", "gradient_accumulation_steps"})
        job |= {} if job["data"] == "memory" else {"data": "disk"}
        label = f"{work.model} {work.recipe}, {work.seq_length} tokens, {work.precision}, {work.preset}"
        about = {"label": label, "num_parameters": num_parameters(work.shape), "batch_per_rank": samples}
    rate, windows = figures[SAMPLES_PER_SECOND.name], first.performance.windows
    epoch_s = work.data.num_samples / rate if rate and isinstance(work.data, DiskData) else None
    uncertainty = apart([SAMPLES_PER_SECOND.value(result) for result in results], "runs")
    if len(results) == 1 and half_width_pct is not None:
        uncertainty = {"apart_pct": half_width_pct, "apart_from": "95 % interval of the mean step"}
    if spec.identity.campaign_id == SEQ2SEQ:  # one run, whose windows are epochs
        epoch_s = statistics.fmean(window.wall_s for window in windows)
        if len(windows) > 1:
            uncertainty = apart([window.samples_per_second for window in windows], "epochs")
    return ComparisonRow(
        name=name,
        addresses=tuple(address for address, _ in runs[:MAX_ADDRESSES]),
        program="trainbench",
        job=flattened(job),
        strategy=spec.placement.strategy.value,
        hardware=hardware_name(spec, gpu_name(first)),
        num_gpus=0 if work.device is Device.CPU else ranks,
        num_ranks=ranks,
        nodes=len({result.spec.identity.node for result in results}),
        num_runs=len(results),
        figures=figures,
        epoch_s=epoch_s,
        usd_per_gpu_hour=first.cost.usd_per_gpu_hour,
        price_source=first.cost.price_source,
        pod_template=setup_of(first.context).pod_template,
        **about,
        **uncertainty,
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


def flattened(fields: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Each setting as text, a nested one by its path: "dimensions.hidden_size"."""
    texts: dict[str, str] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping) and value:
            texts |= flattened(value, f"{prefix}{name}.")
        else:
            texts[prefix + name] = value if isinstance(value, str) else json.dumps(value)
    return texts


def apart(rates: Sequence[float | None], what: str) -> dict[str, Any]:
    """Half of the range of samples/s of several runs or epochs; unknown where one of them is."""
    known = [rate for rate in rates if rate is not None]
    if len(known) < 2 or len(known) < len(rates):
        return {"apart_pct": None, "apart_from": None}
    half_range_pct = 50 * (max(known) - min(known)) / statistics.median(known)
    return {"apart_pct": half_range_pct, "apart_from": f"half of the range of {len(known)} {what}"}


# Files of other programs.

MAX_EPOCHS, MAX_COUNT = 10_000, 1_000_000
BATCH = ("batch_size", "batch-size")
# Of version 0.1.0: a result for publication and a bench file, with the result inside.
FORMATS_OF_0_1 = ("trainbench-submission", "trainbench-encoder-decoder")


class ForeignFileError(UserError, ValueError):
    """The file has no known format, or an impossible figure; the message names it."""


class Foreign(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, protected_namespaces=())


class Epoch(Foreign):
    wall_time_s: float = Field(gt=0, validation_alias=AliasChoices("wall_time_s", "wall_time", "time_s"))
    samples_per_second: float | None = Field(
        None, gt=0, validation_alias=AliasChoices("samples_per_second", "throughput_samples_per_s", "throughput")
    )


class Metadata(Foreign):
    gpu_name: str = Field(min_length=1, max_length=500)
    gpu_count: int = Field(ge=0, le=65_536)


class Summary(Foreign):
    avg_wall_time_per_epoch_s: float = Field(gt=0)
    avg_throughput_samples_per_s: float = Field(gt=0)
    peak_gpu_memory_mb: float | None = Field(None, ge=0)
    avg_gpu_utilisation_pct: float | None = Field(
        None, ge=0, le=100, validation_alias=AliasChoices("avg_gpu_utilisation_pct", "avg_gpu_utilization_pct")
    )


class BenchmarkPyFile(Foreign):
    metadata: Metadata
    config: dict[str, Any] = Field(max_length=200)
    summary: Summary
    epochs: tuple[Epoch, ...] = Field((), max_length=MAX_EPOCHS)

    def row(self, name: str, address: str) -> ComparisonRow:
        batch = next((self.config[key] for key in BATCH if key in self.config), None)
        memory_mb = self.summary.peak_gpu_memory_mb
        known = {
            SAMPLES_PER_SECOND: self.summary.avg_throughput_samples_per_s,
            PEAK_MEMORY_GB: None if memory_mb is None else memory_mb / 1000,
            GPU_UTILISATION_MEAN_PCT: self.summary.avg_gpu_utilisation_pct,
        }
        return ComparisonRow(
            name=name,
            addresses=(address,),
            program="benchmark.py",
            label="encoder-decoder",
            job=flattened({key: value for key, value in self.config.items() if key not in BATCH}),
            hardware=self.metadata.gpu_name,
            num_gpus=self.metadata.gpu_count,
            num_ranks=max(1, self.metadata.gpu_count),
            batch_per_rank=batch if isinstance(batch, int) and batch > 0 else None,
            figures={each.name: known.get(each) for each in COMPARED},
            epoch_s=self.summary.avg_wall_time_per_epoch_s,
            **apart([epoch.samples_per_second for epoch in self.epochs], "epochs"),
        )


class FlatResult(Foreign):
    """The run of rank 0, whose figures are those of all ranks."""

    model_config = Foreign.model_config | ConfigDict(strict=True)

    strategy: str = Field(min_length=1, max_length=50)
    world_size: int = Field(ge=1, le=MAX_COUNT)
    rank: Literal[0] = 0
    seq_len: int = Field(ge=1, le=MAX_COUNT)
    tier: str = Field(min_length=1, max_length=50)
    per_device_batch: int = Field(ge=1, le=MAX_COUNT)
    grad_accum: int = Field(1, ge=1, le=MAX_COUNT)
    tokens_per_sec: float = Field(gt=0)
    peak_vram_gb: float | None = Field(None, ge=0)
    # What only metrics.csv hands on.
    steps: int | None = Field(None, ge=0, le=MAX_COUNT)
    mean_step_time_sec: float | None = Field(None, ge=0)
    mean_loss: float | None = None
    h2d_gbps_per_gpu: float | None = Field(None, ge=0)

    @property
    def work(self) -> tuple[str, int, int, int]:
        """Equal for equal work of each GPU."""
        return self.tier, self.seq_len, self.per_device_batch, self.grad_accum

    def row(self, name: str, address: str) -> ComparisonRow:
        known = {
            SAMPLES_PER_SECOND: self.tokens_per_sec / self.seq_len,
            TOKENS_PER_SECOND: self.tokens_per_sec,
            PEAK_MEMORY_GB: self.peak_vram_gb,
        }
        return ComparisonRow(
            name=name,
            addresses=(address,),
            program="a flat result.json",
            label=f"tier {self.tier}, {self.seq_len} tokens",
            job={"tier": self.tier, "seq_length": str(self.seq_len)},
            strategy=self.strategy,
            hardware="GPU unknown",
            num_gpus=self.world_size,
            num_ranks=self.world_size,
            batch_per_rank=self.per_device_batch * self.grad_accum,
            figures={each.name: known.get(each) for each in COMPARED},
            epoch_s=None,
        )


MAX_FILE_BYTES = 2 * MAX_RESULT_BYTES  # bench files and exported ones are indented


Content = RunResult | BenchmarkPyFile | FlatResult


def parse_file(content: bytes) -> Content:
    """The one reader of result files: ours by itself or within a file as 0.1.0 wrote it, and foreign ones.
    Raises only ForeignFileError and ContractError, for any content. The caller bounds the size.
    """
    try:
        document = strict_json(content)
    except ContractError:
        raise
    except (ValueError, RecursionError) as error:
        raise ForeignFileError(f"no JSON (truncated?): {error}") from None
    if not isinstance(document, dict):
        raise ForeignFileError("no benchmark: its JSON is not an object")
    if document.get("format") in FORMATS_OF_0_1:
        return parse_result(json.dumps(document.get("result")))
    try:
        if "metadata" in document:
            return BenchmarkPyFile.model_validate(document)
        if {"strategy", "tokens_per_sec"} <= document.keys() and "schema_version" not in document:
            return FlatResult.model_validate(document)
    except ValidationError as error:
        kind = "flat result of a strategy comparison" if "strategy" in document else "file of benchmark.py"
        raise ForeignFileError(f"no {kind}: {explain(error)}") from None
    return parse_result(content)


# The files of a comparison.

BENCH_FILES = "bench_*.json"


@dataclass(frozen=True)
class Gathered:
    """The rows. `notes`: sentences on files that are no row, and on the rows."""

    rows: tuple[ComparisonRow, ...]
    notes: tuple[str, ...]
    broken: tuple[BrokenFile, ...]


@dataclass(frozen=True)
class ResultFile:
    source: str  # as the user named it
    path: UPath
    root: UPath | None = None  # the folder below which no link is followed; None: a person named the file


def find_result_files(sources: Sequence[str], store: Store) -> tuple[ResultFile, ...]:
    """The files of each source: a file, a folder with files at any depth, or the id of a campaign in `store`. Raises
    StoreError for another source or one without results.
    """
    from upath import UPath

    result_files: list[ResultFile] = []
    for source in sources:
        root: UPath | None = None
        if is_file(source):
            files = [UPath(Path(source).absolute())]
        elif is_folder(source):
            root = UPath(Path(source).absolute())
            files = _files_below(root) or sorted(root.glob("*.json"), key=str)  # published ones have names of their own
        elif source in store.campaign_ids():
            root = store.root
            files = _files_below(root / "campaigns" / source)
        else:
            raise StoreError(f"'{source}' is neither a file, nor a folder, nor a campaign of the store {store.root}")
        if not files:
            raise StoreError(f"'{source}' holds neither {RESULT_FILE} nor {BENCH_FILES} files")
        result_files += [ResultFile(_name(source, sources), path, root) for path in files]
    return tuple(result_files)


def _name(source: str, sources: Sequence[str]) -> str:
    """The name of a source: the last part of its path, or the whole path where another has the same."""
    path = Path(source).resolve()
    others = {Path(other).resolve() for other in sources} - {path}
    return source if any(other.name == path.name for other in others) else path.name or source


def _files_below(folder: UPath) -> list[UPath]:
    """Of a published campaign the verdict, which has its results as judged and with their cost."""
    found = [path for name in (BENCH_FILES, CAMPAIGN_FILE, RESULT_FILE) for path in sorted(folder.rglob(name), key=str)]
    published = {path.parent.parent for path in found if path.name == CAMPAIGN_FILE}
    return [path for path in found if path.name != RESULT_FILE or path.parent.parent.parent not in published]


def _contents(file: ResultFile) -> Iterator[tuple[ResultFile, Content]]:
    """What the file holds; of a published campaign's verdict its results, each with the file that its pod printed."""
    if file.path.name != CAMPAIGN_FILE:
        yield file, parse_file(read_bounded(file.path, MAX_FILE_BYTES, file.root))
        return
    for result in read_campaign(file.path, file.root).results:
        path = file.path.parent.parent / "runs" / result.spec.identity.run_id / RESULT_FILE
        yield ResultFile(file.source, path, file.root), result


def contents_of(
    files: Sequence[ResultFile], progress: Progress = no_progress
) -> tuple[list[tuple[ResultFile, Content]], tuple[BrokenFile, ...]]:
    """What all files hold, in their order, and those that cannot be read; `progress` is called after each."""
    found: list[tuple[ResultFile, Content]] = []
    broken = []
    for number, file in enumerate(files, 1):
        try:
            found += _contents(file)
        except (ContractError, UserError) as error:
            broken.append(BrokenFile(address(file.path), str(error)))
        progress(number, len(files))
    return found, tuple(broken)


def read_result_files(files: Sequence[ResultFile], progress: Progress = no_progress) -> Gathered:
    """The rows of all files, in their order; `progress` is called after each."""
    read, broken = contents_of(files, progress)
    found: dict[str, tuple[ResultFile, Content]] = {}  # by the identity of its run
    twice: list[str] = []
    for each, content in read:
        first, _ = found.setdefault(_identity(content), (each, content))
        if first is not each:
            twice.append(f"{address(each.path)} is {address(first.path)}")
    left_out = {identity: why for identity, (_, content) in found.items() if (why := _why_left_out(content))}
    failed = Counter(why for why in left_out.values() if why != DRILL)
    num_drills = len(left_out) - failed.total()
    notes = []
    if twice:
        notes.append(f"{count(len(twice), 'file')} of runs that were read before, counted once: {listing(twice)}.")
    if failed:
        listed = listing(f"{number} {what}" for what, number in failed.most_common())
        notes.append(f"Failed, so no row: {count(failed.total(), 'run')}, {listed}.")
    if num_drills:
        notes.append(f"{count(num_drills, 'drill')} left out: slowed on purpose.")
    shown = [each for identity, each in found.items() if identity not in left_out]
    return Gathered(tuple(_rows(shown)), tuple(notes), broken)


def _identity(content: Content) -> str:
    """By which a run is known again: its ids, which are unique within one installation only, and figures; of a file
    without ids the whole content.
    """
    if not isinstance(content, RunResult):
        return content.model_dump_json()
    identity, figures = content.spec.identity, content.performance
    ids = (identity.campaign_id, identity.run_id, identity.node, content.started_at.timestamp())
    return " ".join(map(str, (*ids, figures.samples_per_second, figures.measured_wall_s, gpu_name(content))))


DRILL = "drill"


def _why_left_out(content: Content) -> str | None:
    if not isinstance(content, RunResult):
        return None
    placement = content.spec.placement
    if content.error is not None or content.performance.samples_per_second is None:
        ended = content.status.value if content.error else "without samples/s"
        return f"{ended} ({placement.strategy} on {placement.world_size})"
    return None if is_measured(content) else DRILL


def _rows(found: Iterable[tuple[ResultFile, Content]]) -> Iterator[ComparisonRow]:
    """Runs of one source, campaign, work, hardware and pod template are one row; any other file is one by itself, a
    bench file too.
    """
    kinds: dict[tuple[str, ...], list[tuple[ResultFile, Content]]] = {}
    campaigns: dict[str, set[str]] = {}
    for file, content in found:
        key: tuple[str, ...] = (address(file.path),)
        if isinstance(content, RunResult) and content.spec.identity.campaign_id != SEQ2SEQ:
            campaign_id, template = content.spec.identity.campaign_id, setup_of(content.context).pod_template or ""
            campaigns.setdefault(file.source, set()).add(campaign_id)
            key = (file.source, campaign_id, content.effective_spec.fingerprint, gpu_name(content) or "", template)
        kinds.setdefault(key, []).append((file, content))
    for key, of_kind in kinds.items():
        file, content = of_kind[0]
        if isinstance(content, RunResult):
            name = file.path.stem if len(key) == 1 else file.source if len(campaigns[file.source]) == 1 else key[1]
            yield row_of_runs(name, [(address(each.path), run) for each, run in of_kind if isinstance(run, RunResult)])
        else:  # each flat one is named result.json: its folder names the run
            named_by = file.path.parent.name if isinstance(content, FlatResult) else file.path.stem
            yield content.row(named_by, key[0])

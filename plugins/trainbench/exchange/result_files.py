"""Result files of ours and of other programs, as rows of a comparison.

Of `benchmark.py` of an encoder-decoder: metadata, config, summary and epochs, memory in MB = 1e6 bytes.

Of the flat result.json of a published comparison of strategies, one for each run: `tokens_per_sec` of all GPUs, memory
in GB of 1e9 bytes. Two of its fields are not read: `mean_step_time_sec` counts one micro-step as a step where gradients
accumulate, and `h2d_gbps_per_gpu` is bytes of the batches over the time of the run, not the rate of a copy.
"""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from bench_image.contract.flops import num_parameters
from bench_image.contract.frozen import ContractError, Frozen
from bench_image.contract.parse import explain, strict_json
from bench_image.contract.pod_io import MAX_RESULT_BYTES, RESULT_FILE
from bench_image.contract.result import RunResult
from bench_image.contract.seq2seq_file import FORMAT, FORMAT_VERSION
from bench_image.contract.work import Device, DiskData
from trainbench.comparison.entries import half_range_pct
from trainbench.core.formats import count, listing, one_line
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
from trainbench.results.campaign import IMPORTED
from trainbench.results.collect import parse_payload
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

    broken: list[BrokenFile] = field(default_factory=list)
    _runs: dict[tuple[str, ...], _Runs] = field(default_factory=dict)
    _order: list[ComparisonRow | _Runs] = field(default_factory=list)
    _seen: dict[str, str] = field(default_factory=dict)  # identity of a run -> its first file
    _twice: list[tuple[str, str]] = field(default_factory=list)
    _failed: Counter[str] = field(default_factory=Counter)
    _num_drills: int = 0

    def add_result(self, source: str, address: str, result: RunResult) -> None:
        """Add a measured run. Runs of one source, campaign, work, hardware and pod template become one row."""
        identity, template = result.spec.identity, setup_of(result.context).pod_template or ""
        key = (source, identity.campaign_id, result.effective_spec.fingerprint, gpu_name(result) or "", template)
        if key not in self._runs:
            self._runs[key] = _Runs(row_of_run(source, address, result), source)
            self._order.append(self._runs[key])
        self._runs[key].add(address, result)

    def rows(self) -> tuple[ComparisonRow, ...]:
        """The rows, in the order in which their first files were added."""
        campaigns: dict[str, set[str]] = {}
        for source, campaign_id, *_ in self._runs:
            campaigns.setdefault(source, set()).add(campaign_id)
        for (source, campaign_id, *_), runs in self._runs.items():
            runs.name = source if len(campaigns[source]) == 1 else campaign_id
        return tuple(item.row() if isinstance(item, _Runs) else item for item in self._order)

    def read(self, file: ResultFile) -> None:
        try:
            if file.path.name == CAMPAIGN_FILE:
                runs = file.path.parent.parent / "runs"
                for result in read_campaign(file.path, file.root).results:
                    path = runs / result.spec.identity.run_id / RESULT_FILE
                    self._take_result(ResultFile(file.source, path, file.root), result)
                return
            content = read_bounded(file.path, MAX_FILE_BYTES, file.root)
            if SCHEMA.match(content):
                self._take_result(file, parse_payload(content))
            elif FLAT.search(content[:MAX_FLAT_BYTES]) and is_flat(content):
                # Each one is named result.json: its folder names the run.
                self._take_foreign(file, file.path.parent.name, parse_flat(content))
            elif file.path.name == RESULT_FILE:
                self._take_result(file, parse_payload(content))
            elif SUBMISSION.match(content):
                raise BenchFileError(IMPORT_FIRST)
            elif isinstance(document := parse_bench_file(content), RunResult):
                self._take_result(file, document, of_epochs=True)
            else:
                self._take_foreign(file, file.path.stem, document)
        except (BenchFileError, ContractError, StoreError) as error:
            self.broken.append(BrokenFile(address(file.path), str(error)))

    def notes(self) -> Iterator[str]:
        if self._twice:
            listed = listing(f"{address} is {first}" for address, first in self._twice)
            yield f"{count(len(self._twice), 'file')} of runs that were read before, counted once: {listed}."
        if self._failed:
            listed = listing(f"{number} {what}" for what, number in self._failed.most_common())
            yield f"Failed, so no row: {count(self._failed.total(), 'run')}, {listed}."
        if self._num_drills:
            yield f"{count(self._num_drills, 'drill')} left out: slowed on purpose."

    def _take_result(self, file: ResultFile, result: RunResult, of_epochs: bool = False) -> None:
        # A key of the run from its ids and figures, because ids are unique within one installation only.
        spec, figures = result.spec, result.performance
        key = (spec.identity.campaign_id, spec.identity.run_id, spec.identity.node, result.started_at.timestamp())
        key_of_figures = (figures.samples_per_second, figures.measured_wall_s, gpu_name(result))
        if not self._is_new(" ".join(map(str, (*key, *key_of_figures))), file):
            return
        if result.error is not None:
            self._failed[f"{result.status.value} ({spec.placement.strategy} on {spec.placement.world_size})"] += 1
            return
        self._num_drills += spec.drill is not None
        if not is_measured(result):
            return
        if of_epochs:
            self._order.append(row_of_epochs(file.path.stem, address(file.path), result))
        else:
            self.add_result(file.source, address(file.path), result)

    def _take_foreign(self, file: ResultFile, name: str, document: BenchmarkPyFile | FlatResult) -> None:
        """A file without ids: its whole content is its key."""
        if self._is_new(document.model_dump_json(), file):
            self._order.append(document.row(name, address(file.path)))

    def _is_new(self, identity: str, file: ResultFile) -> bool:
        if first := self._seen.get(identity):
            self._twice.append((address(file.path), first))
            return False
        self._seen[identity] = address(file.path)
        return True


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
    # Each setting, except the batch, which depends on the number of GPUs, and the data folder.
    job = work.model_dump(mode="json", exclude={"micro_batch_size", "gradient_accumulation_steps"})
    job |= {} if job["data"] == "memory" else {"data": "disk"}
    return ComparisonRow(
        name=name,
        addresses=(address,),
        program="trainbench",
        label=f"{work.model} {work.recipe}, {work.seq_length} tokens, {work.precision}, {work.preset}",
        num_parameters=num_parameters(work.shape),
        job=flattened(job),
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


MAX_EPOCHS, MAX_COUNT = 10_000, 1_000_000
BATCH = ("batch_size", "batch-size")


class BenchFileError(UserError, ValueError):
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
            figures=compared_figures(
                {
                    SAMPLES_PER_SECOND: self.summary.avg_throughput_samples_per_s,
                    PEAK_MEMORY_GB: None if memory_mb is None else memory_mb / 1000,
                    GPU_UTILISATION_MEAN_PCT: self.summary.avg_gpu_utilisation_pct,
                }
            ),
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
            figures=compared_figures(
                {
                    SAMPLES_PER_SECOND: self.tokens_per_sec / self.seq_len,
                    TOKENS_PER_SECOND: self.tokens_per_sec,
                    PEAK_MEMORY_GB: self.peak_vram_gb,
                }
            ),
            epoch_s=None,
            apart_pct=None,
            apart_from=None,
        )


def is_flat(content: bytes) -> bool:
    """Whether a JSON document has the fields of a flat result and no schema of ours."""
    try:
        document = parse_json(content)
    except BenchFileError:
        return False
    return "schema_version" not in document and {"strategy", "tokens_per_sec"} <= document.keys()


def parse_json(content: bytes) -> dict[str, Any]:
    """The JSON object in a file. Raises only BenchFileError, for any content. The caller bounds the size."""
    try:
        document = strict_json(content)
    except (ValueError, RecursionError) as error:
        raise BenchFileError(f"no JSON (truncated?): {error}") from None
    if not isinstance(document, dict):
        raise BenchFileError("no benchmark: its JSON is not an object")
    return document


def parse_flat(content: bytes) -> FlatResult:
    """Raises BenchFileError, which names the wrong field."""
    try:
        return FlatResult.model_validate(parse_json(content))
    except ValidationError as error:
        raise BenchFileError(f"no flat result of a strategy comparison: {explain(error)}") from None


def parse_bench_file(content: bytes) -> RunResult | BenchmarkPyFile:
    """A file bench_*.json: of the encoder-decoder's own program, which holds a whole result, or of `benchmark.py`.
    Raises only BenchFileError, for any content.
    """
    document = parse_json(content)
    try:
        if "format" not in document:
            return BenchmarkPyFile.model_validate(document)
        if document["format"] != FORMAT or document.get("format_version") != FORMAT_VERSION:
            version = f"{document['format']!r:.60} version {document.get('format_version')!r:.20}"
            raise BenchFileError(f"format {version}; this version reads {FORMAT} version {FORMAT_VERSION}")
        return parse_payload(document.get("result"))
    except ValidationError as error:
        raise BenchFileError(f"no benchmark file of a known format: {explain(error)}") from None
    except ContractError as error:
        raise BenchFileError(str(error)) from None


BENCH_FILES = "bench_*.json"
MAX_FILE_BYTES = 2 * MAX_RESULT_BYTES  # a bench_ file holds a whole indented result
SCHEMA = re.compile(rb'^\s*\{\s*"schema_version"\s*:\s*\d{1,9}\b')
FLAT = re.compile(rb'"tokens_per_sec"\s*:')
SUBMISSION = re.compile(rb'^\s*\{\s*"format"\s*:\s*"trainbench-submission"')
IMPORT_FIRST = (
    "to compare published results, run `trainbench import FILE` first, then compare the campaign that it prints"
)
MAX_LOOKED_AT = 20
MAX_FLAT_BYTES = 10_000  # a larger file is none


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
            files = _files_below(root)
        elif source in store.campaign_ids():
            root = store.root
            files = _files_below(root / "campaigns" / source)
        else:
            published = f"; {IMPORT_FIRST}" if source.startswith(IMPORTED) else ""
            raise StoreError(
                f"'{source}' is neither a file, nor a folder, nor a campaign of the store {store.root}{published}"
            )
        if not files:
            published = f"; {IMPORT_FIRST}" if _holds_submissions(Path(source)) else ""
            raise StoreError(f"'{source}' holds neither {RESULT_FILE} nor {BENCH_FILES} files{published}")
        result_files += [ResultFile(_name(source, sources), path, root) for path in files]
    return tuple(result_files)


def _holds_submissions(folder: Path) -> bool:
    for path in sorted(folder.glob("*.json"))[:MAX_LOOKED_AT]:
        with path.open("rb") as file:
            if SUBMISSION.match(file.read(MAX_FLAT_BYTES)):
                return True
    return False


def _name(source: str, sources: Sequence[str]) -> str:
    """The name of a source: the last part of its path, or the whole path where another has the same."""
    path = Path(source).resolve()
    others = {Path(other).resolve() for other in sources} - {path}
    return source if any(other.name == path.name for other in others) else path.name or source


def read_result_files(files: Sequence[ResultFile], progress: Progress = no_progress) -> Gathered:
    """Read every file once and call `progress` after each."""
    collector = Collector()
    for number, item in enumerate(files, 1):
        collector.read(item)
        progress(number, len(files))
    return Gathered(collector.rows(), tuple(collector.notes()), tuple(collector.broken))


def _files_below(folder: UPath) -> list[UPath]:
    """Files below a folder, bench_ files first: ours lie beside the result that they contain, with more figures. Of a
    published campaign the verdict, which has its results as judged and with their cost.
    """
    found = [path for name in (BENCH_FILES, CAMPAIGN_FILE, RESULT_FILE) for path in sorted(folder.rglob(name), key=str)]
    published = {path.parent.parent for path in found if path.name == CAMPAIGN_FILE}
    return [path for path in found if path.name != RESULT_FILE or path.parent.parent.parent not in published]

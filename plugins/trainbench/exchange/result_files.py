"""Reads result files of any kind into rows of a comparison; notes name every file that is left out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench_image.contract.frozen import ContractError
from bench_image.contract.pod_io import MAX_RESULT_BYTES, RESULT_FILE
from bench_image.contract.result import RunResult
from trainbench.core.formats import count, listing
from trainbench.exchange.comparison_rows import Collector, ComparisonRow, row_of_epochs
from trainbench.exchange.foreign_files import (
    BenchFileError,
    BenchmarkPyFile,
    FlatResult,
    is_flat,
    parse_bench_file,
    parse_flat,
)
from trainbench.results.artefacts import Store
from trainbench.results.campaign import IMPORTED
from trainbench.results.collect import parse_payload
from trainbench.results.readings import gpu_name, is_measured
from trainbench.results.store_files import StoreError, address, is_file, is_folder, read_bounded
from trainbench.results.stored_results import BrokenFile

if TYPE_CHECKING:
    from upath import UPath

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
    path = _resolved(source)
    has_namesake = any(other.name == path.name and other != path for other in map(_resolved, sources))
    return source if has_namesake else path.name or source


def _resolved(source: str) -> Path:
    return Path(source).resolve()


def read_result_files(files: Sequence[ResultFile], on_read: Callable[[], None] = lambda: None) -> Gathered:
    """Read every file once and call `on_read` after each."""
    reader = _Reader()
    for item in files:
        reader.read(item)
        on_read()
    return Gathered(reader.collector.rows(), tuple(reader.notes()), tuple(reader.broken))


class _Reader:
    def __init__(self) -> None:
        self.collector = Collector()
        self.broken: list[BrokenFile] = []
        self._seen: dict[str, str] = {}  # identity of a run -> its first file
        self._twice: list[tuple[str, str]] = []
        self._failed: Counter[str] = Counter()
        self._num_drills = 0

    def read(self, file: ResultFile) -> None:
        try:
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
        if not self._is_new(_identity(result), file) or not self._measured(result):
            return
        if of_epochs:
            self.collector.add_row(row_of_epochs(file.path.stem, address(file.path), result))
        else:
            self.collector.add_result(file.source, address(file.path), result)

    def _take_foreign(self, file: ResultFile, name: str, document: BenchmarkPyFile | FlatResult) -> None:
        """A file without ids: its whole content is its key."""
        if self._is_new(document.model_dump_json(), file):
            self.collector.add_row(document.row(name, address(file.path)))

    def _measured(self, result: RunResult) -> bool:
        if result.error is not None:
            self._failed[
                f"{result.status.value} ({result.spec.placement.strategy} on {result.spec.placement.world_size})"
            ] += 1
            return False
        self._num_drills += result.spec.drill is not None
        return is_measured(result)

    def _is_new(self, identity: str, file: ResultFile) -> bool:
        if first := self._seen.get(identity):
            self._twice.append((address(file.path), first))
            return False
        self._seen[identity] = address(file.path)
        return True


def _files_below(folder: UPath) -> list[UPath]:
    """Files below a folder, bench_ files first: ours lie beside the result that they contain, with more figures."""
    return [path for name in (BENCH_FILES, RESULT_FILE) for path in sorted(folder.rglob(name), key=str)]


def _identity(result: RunResult) -> str:
    """A key of the run from its ids and figures, because ids are unique within one installation only."""
    spec, rate = result.spec, result.performance.samples_per_second
    ids = f"{spec.identity.campaign_id} {spec.identity.run_id} {spec.identity.node} {result.started_at.timestamp()}"
    return f"{ids} {rate} {result.performance.measured_wall_s} {gpu_name(result)}"

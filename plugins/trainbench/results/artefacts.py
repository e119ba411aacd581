"""The files of a store: of each campaign its plan, results and summary; cost reports.

    {root}/campaigns/{campaign_id}/plan.json
    {root}/campaigns/{campaign_id}/runs/{run_id}/result.json and pod.log; rank-0.json, rank-0.log, ... of a gang's pods
    {root}/campaigns/{campaign_id}/summary/verdict.json, metrics.csv, BENCHMARK_REPORT.md, plots/*.png, ...
    {root}/cost/{report_id}/COST_REPORT.md, cost_report.html, costs.csv, costs.json
    {root}/levels.toml: the fleet's own known levels, see `trainbench.judging.levels`

The root is a local folder or an object store (`s3://`, `gs://`); both look the same through `UPath`.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from pydantic import ValidationError

from bench_image.contract.parse import explain
from bench_image.contract.pod_io import MAX_RESULT_BYTES, RESULT_FILE
from bench_image.contract.result import RunResult
from bench_image.contract.spec import IDENTIFIER
from trainbench.core.natural_order import natural
from trainbench.pods.pod_log import LOG_FILE, MAX_LOG_BYTES
from trainbench.results import local_files
from trainbench.results.campaign import Campaign
from trainbench.results.campaign_file import PartTooLarge, campaign_json, parse_campaign
from trainbench.results.store_files import (
    LOCAL_PROTOCOLS,
    FileMissing,
    FileUnusable,
    StoreError,
    address,
    as_store_errors,
    opened,
    read_bounded,
    too_large,
)
from trainbench.results.store_layout import NOUNS, Shelf, Usage, foreign_files
from trainbench.results.stored_results import Progress, StoredResults, no_progress, rank_file, read_results
from trainbench.settings.environment import default_store, read_settings

if TYPE_CHECKING:
    from upath import UPath
    from upath.types import StatResultType

CAMPAIGN_FILE, PLAN_FILE, MARKS_FILE = "verdict.json", "plan.json", "node_marks.json"
LEVELS_FILE = "levels.toml"
MAX_CAMPAIGN_BYTES = 4_000_000_000  # 100,000 results on one GPU each make 1.3 GB
MAX_INDENTED_BYTES = MAX_RESULT_BYTES // 8  # larger results are for programs: indentation would add half
WRITERS = 16
Content = str | bytes | Iterable[bytes]  # the last: in pieces
SUMMARY_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}){0,3}")


def open_store(url: str | None = None) -> Store:
    """`url`, else the setting TRAINBENCH_STORE, else the default folder. Nothing is created yet."""
    from upath import UPath

    url = url or read_settings().store or str(default_store())
    if "://" not in url:
        try:
            return Store(UPath(Path(url).expanduser().absolute()))
        except (RuntimeError, ValueError) as error:  # ~nobody: no such user
            raise StoreError(
                f"store '{url:.200}' cannot be opened: {error}; allowed: a folder, s3://..., gs://..."
            ) from None
    if re.search(r"[@?]", url.partition("://")[2]):
        raise StoreError(
            f"the store's URL '{url.partition('://')[0]}://...' holds a user, a password or options: name bucket and "
            "folder only, and give credentials as the object store's own client reads them"
        )
    try:
        root = UPath(url)
        _ = root.fs
    except (ImportError, OSError, ValueError) as error:
        raise StoreError(f"store '{url}' cannot be opened: {error}; allowed: a folder, s3://..., gs://...") from None
    return Store(root)


@dataclass(frozen=True)
class Store:
    """Reads and writes below one root. A write replaces the file atomically: a reader sees the old or the new one."""

    root: UPath

    @property
    def is_local(self) -> bool:
        return self.root.protocol in LOCAL_PROTOCOLS

    def write_result(self, result: RunResult) -> str:
        """Returns the file's address."""
        path = self._run(result) / RESULT_FILE
        return self._write(path, _written(result))

    def write_rank_result(self, result: RunResult, rank: int) -> str:
        """Write the result of one pod of a gang; returns the file's address."""
        path = self._run(result) / rank_file(rank)
        return self._write(path, _written(result))

    def write_log(self, campaign_id: str, run_id: str, name: str, text: str) -> str:
        """Write the kept log of one pod; return the file's address. `name`: see `pod_log.log_file`."""
        folder = self._campaign(campaign_id) / "runs" / _identifier(run_id)
        return self._write(_named(folder, name), text.encode())

    def log_names(self, campaign_id: str, run_id: str) -> tuple[str, ...]:
        """Sorted file names of the kept logs of a run's pods. Raises StoreError."""
        folder = self._campaign(campaign_id) / "runs" / _identifier(run_id)
        with as_store_errors(folder, "read"):
            names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        return tuple(sorted((name for name in names if LOG_FILE.fullmatch(name)), key=natural))

    def read_log(self, campaign_id: str, run_id: str, name: str) -> bytes:
        """The kept log of one pod. Raises StoreError, also for another file than a log."""
        folder = self._campaign(campaign_id) / "runs" / _identifier(run_id)
        if not LOG_FILE.fullmatch(name):
            raise StoreError(f"{name!r:.120} is no log of a pod: pod.log, or rank-0.log and so on of a gang's pods")
        return self._read(folder / name, 2 * MAX_LOG_BYTES)

    def write_plan(self, campaign_id: str, text: str) -> str:
        """Write the campaign's plan; return the file's address."""
        return self._write(self.plan_path(campaign_id), text.encode())

    def plan_path(self, campaign_id: str) -> UPath:
        return self._campaign(campaign_id) / PLAN_FILE

    def read_plan(self, campaign_id: str) -> bytes | None:
        """The campaign's plan; None: it has none. Raises StoreError."""
        return self._read_if_there(self.plan_path(campaign_id))

    def read_node_marks(self, campaign_id: str) -> bytes | None:
        """The stored acts on nodes, see `cluster.mark_nodes`; None: there were none. Raises StoreError."""
        return self._read_if_there(self._summary_file(campaign_id, MARKS_FILE))

    def read_levels(self) -> str | None:
        """The fleet's own levels; None: it has none. Raises StoreError."""
        content = self._read_if_there(self.root / LEVELS_FILE)
        return None if content is None else content.decode(errors="replace")

    def write_levels(self, text: str) -> str:
        """Replace the fleet's own levels; return the file's address. Raises StoreError."""
        return self._write(self.root / LEVELS_FILE, text.encode())

    def write_results(self, results: Sequence[RunResult], *, replace: bool = True) -> None:
        """Write those results that are not stored as they are, WRITERS at a time. Without `replace` only those of which
        no file is there.
        """

        def write_share(first: int) -> None:
            for result in results[first::WRITERS]:
                if not (self._is_stored(result) if replace else self._has_result(result)):
                    self.write_result(result)

        with ThreadPoolExecutor(WRITERS) as writers:
            for _ in writers.map(write_share, range(WRITERS)):
                pass

    def read_result_file(self, campaign_id: str, run_id: str) -> bytes:
        """The stored text of a run's result. Raises StoreError."""
        return self.read_run_file(campaign_id, run_id, RESULT_FILE)

    def read_run_file(self, campaign_id: str, run_id: str, name: str) -> bytes:
        """A stored file of the run or of one of its ranks. Raises StoreError."""
        path = _named(self._campaign(campaign_id) / "runs" / _identifier(run_id), name)
        return self._read(path, MAX_RESULT_BYTES)

    def read_run_file_if_there(self, campaign_id: str, run_id: str, name: str) -> bytes | None:
        """A stored file of the run or of one of its ranks; None: there is none. Raises StoreError."""
        try:
            return self.read_run_file(campaign_id, run_id, name)
        except FileMissing:
            return None

    def run_file_address(self, campaign_id: str, run_id: str, name: str) -> str:
        return address(_named(self._campaign(campaign_id) / "runs" / _identifier(run_id), name))

    def read_results(self, campaign_id: str, progress: Progress = no_progress) -> StoredResults:
        return read_results(self._campaign(campaign_id) / "runs", progress, self.root)

    def write_campaign(self, campaign: Campaign) -> str:
        """Returns the file's address."""
        path = self._campaign(campaign.campaign_id) / "summary" / CAMPAIGN_FILE
        return self._write_pieces(path, campaign_json(campaign))

    def read_campaign(self, campaign_id: str, with_steps: bool = True) -> Campaign:
        """The campaign. Raises StoreError when it is missing or cannot be read."""
        return read_campaign(self._campaign(campaign_id) / "summary" / CAMPAIGN_FILE, self.root, with_steps)

    def write_summary(self, campaign_id: str, files: Mapping[str, Content]) -> dict[str, str]:
        """Write the files (relative name -> content) after checking all names; return relative name -> address."""
        paths = {name: self._summary_file(campaign_id, name) for name in files}
        return {name: self._write_pieces(paths[name], _pieces(content)) for name, content in files.items()}

    def write_cost_report(self, report_id: str, files: Mapping[str, str]) -> dict[str, str]:
        """Write a cost report's files (relative name -> content); return relative name -> address."""
        paths = {name: _named(self.root / Shelf.COST / _identifier(report_id), name) for name in files}
        return {name: self._write(paths[name], content.encode()) for name, content in files.items()}

    def read_summary_head(self, campaign_id: str, name: str, num_bytes: int) -> bytes:
        """The first bytes of one file of the summary. Raises StoreError."""
        path = self._summary_file(campaign_id, name)
        with as_store_errors(path, "read"), opened(path, self.root) as file:
            return file.read(num_bytes)

    def campaign_stamp(self, campaign_id: str) -> tuple[float, int]:
        """Time of the last change, and size in bytes, of the campaign's verdict. Raises StoreError."""
        path = self._summary_file(campaign_id, CAMPAIGN_FILE)
        with as_store_errors(path, "read"):
            status = path.stat()
        return status.st_mtime, status.st_size

    def has_verdict(self, campaign_id: str) -> bool:
        """Whether the campaign was published. Raises StoreError."""
        path = self._summary_file(campaign_id, CAMPAIGN_FILE)
        with as_store_errors(path, "read"):
            return bool(path.is_file())

    def summary_address(self, campaign_id: str, name: str) -> str:
        """The address of a file of the summary."""
        return address(self._summary_file(campaign_id, name))

    def campaign_ids(self) -> tuple[str, ...]:
        """Sorted ids of all campaigns with files."""
        return self.names(Shelf.CAMPAIGNS)

    def names(self, shelf: Shelf) -> tuple[str, ...]:
        """Sorted names of the shelf's folders."""
        folder = self.root / shelf
        with as_store_errors(folder, "read"):
            names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        return tuple(sorted(name for name in names if re.fullmatch(IDENTIFIER, name)))

    def usage(self, shelf: Shelf, name: str) -> Usage:
        """The usage of each folder, from file status only."""
        folder = self.root / shelf / _identifier(name)
        with as_store_errors(folder, "read"):
            files: Mapping[str, StatResultType]
            if self.is_local:
                files = local_files.sizes_and_times(Path(folder.path))
            else:
                files = {str(path.relative_to(folder)): path.stat() for path in folder.rglob("*") if path.is_file()}
        # Some object stores only have the creation time: objects are replaced, never changed.
        times = [file.st_mtime or getattr(file, "st_birthtime", 0) for file in files.values()]
        return Usage(
            shelf=shelf,
            name=name,
            num_files=len(files),
            num_bytes=sum(file.st_size for file in files.values()),
            changed_at=datetime.fromtimestamp(max(times), UTC) if times and all(times) else None,
            foreign=(name,) if self._is_link(folder) else tuple(sorted(foreign_files(shelf, files))),
        )

    def delete(self, shelf: Shelf, name: str) -> Usage:
        """Delete a folder with its files; return its usage. Raises StoreError if it holds files of other programs."""
        usage = self.usage(shelf, name)
        folder = self.root / shelf / _identifier(name)
        if usage.foreign:
            foreign = ", ".join(usage.foreign[:3])
            raise StoreError(f"{address(folder)} is not deleted: {foreign} is not of a {NOUNS[shelf]}; move it away")
        with as_store_errors(folder, "deleted"):
            if self.is_local:
                local_files.delete_tree(Path(folder.path), Path(self.root.path))
            else:
                folder.fs.rm(folder.path, recursive=True)
        return usage

    def probe(self) -> str:
        """Write a small object, read it back and delete it; returns the store's address. Raises StoreError."""
        path, content = self.root / f".probe-{secrets.token_hex(4)}", secrets.token_bytes(64)
        self._write(path, content)
        try:
            is_same = self._read(path, len(content)) == content
        finally:
            with as_store_errors(path, "deleted"):
                path.unlink()
        if not is_same:
            raise StoreError(f"{address(path)} was read with other content than was written: check the store")
        return address(self.root)

    def _read(self, path: UPath, max_bytes: int) -> bytes:
        return read_bounded(path, max_bytes, self.root)

    def _read_if_there(self, path: UPath) -> bytes | None:
        with as_store_errors(path, "read"):
            is_there = path.is_file()
        return self._read(path, MAX_CAMPAIGN_BYTES) if is_there else None

    def _is_link(self, folder: UPath) -> bool:
        return self.is_local and Path(folder.path).is_symlink()

    def _summary_file(self, campaign_id: str, name: str) -> UPath:
        return _named(self._campaign(campaign_id) / "summary", name)

    def _has_result(self, result: RunResult) -> bool:
        path = self._run(result) / RESULT_FILE
        with as_store_errors(path, "read"):
            return bool(path.is_file())

    def _is_stored(self, result: RunResult) -> bool:
        with suppress(FileMissing, FileUnusable):
            return self._read(self._run(result) / RESULT_FILE, MAX_RESULT_BYTES) == _written(result)
        return False

    def _run(self, result: RunResult) -> UPath:
        """The folder of the result's run."""
        identity = result.spec.identity
        return self._campaign(identity.campaign_id) / "runs" / _identifier(identity.run_id)

    def _campaign(self, campaign_id: str) -> UPath:
        return self.root / Shelf.CAMPAIGNS / _identifier(campaign_id)

    def _write(self, path: UPath, content: bytes) -> str:
        return self._write_pieces(path, (content,))

    def _write_pieces(self, path: UPath, pieces: Iterable[bytes]) -> str:
        with as_store_errors(path, "written"):
            if self.is_local:
                local_files.write_file(Path(path.path), pieces, Path(self.root.path))
            else:  # one put of a whole file: object stores show an object only when it is complete
                with NamedTemporaryFile() as file:
                    file.writelines(pieces)
                    file.flush()
                    path.fs.put_file(file.name, path.path)
        return address(path)


def read_campaign(path: UPath, root: UPath | None = None, with_steps: bool = True) -> Campaign:
    """The campaign of a file. `root`: of the store. `with_steps`: with the times of single steps. Raises StoreError
    when it is missing, too large or no campaign.
    """
    try:
        with as_store_errors(path, "read"), opened(path, root) as file:
            if file.seek(0, os.SEEK_END) > MAX_CAMPAIGN_BYTES:
                raise too_large(path, MAX_CAMPAIGN_BYTES)
            file.seek(0)
            return parse_campaign(file, with_steps)
    except ValidationError as error:
        raise StoreError(f"{address(path)} is not a campaign of this version: {explain(error)}") from None
    except PartTooLarge as error:
        raise StoreError(f"{address(path)} is not read: {error}; write it again with `trainbench report`") from None


def _written(result: RunResult) -> bytes:
    """The text of a result's file, which `read_result_file` takes at any size. Raises StoreError."""
    text = result.model_dump_json().encode()
    if len(text) > MAX_RESULT_BYTES:
        run = result.spec.identity.run_id
        raise StoreError(f"the result of run '{run}' has {len(text)} bytes: {MAX_RESULT_BYTES} can be read again")
    return result.model_dump_json(indent=1).encode() if len(text) < MAX_INDENTED_BYTES else text


def _pieces(content: Content) -> Iterable[bytes]:
    whole = content.encode() if isinstance(content, str) else content
    return (whole,) if isinstance(whole, bytes) else whole


def _named(folder: UPath, name: str) -> UPath:
    if not SUMMARY_NAME.fullmatch(name):
        raise StoreError(f"summary file {name!r}: only plain relative names such as 'plots/step_time.png'")
    return folder / name


def _identifier(name: str) -> str:
    if not re.fullmatch(IDENTIFIER, name):
        raise StoreError(f"id {name!r:.220} cannot name a folder: lower-case letters, digits, '.', '_' and '-' only")
    return name

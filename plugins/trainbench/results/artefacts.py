"""The files of a store: of each campaign its plan, results and summary; cost reports.

    {root}/campaigns/{campaign_id}/plan.json
    {root}/campaigns/{campaign_id}/runs/{run_id}/result.json and pod.log; rank-0.json, rank-0.log, ... of a gang's pods
    {root}/campaigns/{campaign_id}/summary/verdict.json, metrics.csv, BENCHMARK_REPORT.md, plots/*.png, ...
    {root}/cost/{report_id}/COST_REPORT.md, cost_report.html, costs.csv, costs.json
    {root}/levels.toml: the fleet's own known levels, see `trainbench.judging.levels`

The root is a local folder or an object store (`s3://`, `gs://`); both look the same through `UPath`.
"""

from __future__ import annotations

import re
import secrets
import stat
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

from pydantic import AwareDatetime, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from bench_image.contract.frozen import ContractError
from bench_image.contract.parse import explain, refuse_dense
from bench_image.contract.pod_io import MAX_RESULT_BYTES, RESULT_FILE
from bench_image.contract.result import RunResult
from bench_image.contract.spec import IDENTIFIER
from trainbench.core.natural_order import natural
from trainbench.pods.pod_log import LOG_FILE, MAX_LOG_BYTES
from trainbench.results.campaign import Campaign
from trainbench.results.store_files import (
    DRAFT,
    Progress,
    StoredResults,
    StoreError,
    address,
    as_store_errors,
    is_local,
    no_progress,
    opened,
    rank_file,
    read_bounded,
    read_results,
    refuse_links,
    write_file,
)
from trainbench.settings.environment import default_store, read_settings

if TYPE_CHECKING:
    from upath import UPath

CAMPAIGN_FILE, PLAN_FILE = "verdict.json", "plan.json"
LEVELS_FILE = "levels.toml"
# 1,000 nodes of 8 GPUs, each GPU measured by itself, make 110 MB; who reads it needs about six times its bytes.
MAX_CAMPAIGN_BYTES = 200_000_000
HEAD_BYTES = 65_536  # hold a campaign's names and times
MAX_INDENTED_BYTES = MAX_RESULT_BYTES // 8  # larger results are for programs: indentation would add half
WRITERS = 16
SUMMARY_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}){0,3}")


class Shelf(StrEnum):
    """A folder below the root whose subfolders are written and deleted as a whole."""

    CAMPAIGNS = "campaigns"
    COST = "cost"


NOUNS = {Shelf.CAMPAIGNS: "campaign", Shelf.COST: "cost report"}
# The files of each shelf, relative to their folder. Other files belong to others and are never deleted.
KNOWN_FILES = {
    Shelf.CAMPAIGNS: re.compile(
        r"plan\.json|runs/[^/]+/((result|rank-[0-9]{1,6})\.json|(pod|rank-[0-9]{1,6})\.log)"
        r"|summary/(verdict\.json|node_marks\.json|report\.json|report\.html|metrics\.csv|(BENCHMARK|COST)_REPORT\.md|plots/[a-z_]+\.png)"
    ),
    Shelf.COST: re.compile(r"COST_REPORT\.md|cost_report\.html|costs\.csv|costs\.json"),
}


@dataclass(frozen=True)
class Usage:
    """The files of a campaign or cost report in the store. `changed_at` None: the store does not have it. `foreign`:
    names of files from other programs, and of links.
    """

    shelf: Shelf
    name: str
    num_files: int
    num_bytes: int
    changed_at: datetime | None
    foreign: tuple[str, ...]


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
    """Reads and writes below one root. A write replaces the file atomically: a reader sees the old or the new one.
    Every method raises StoreError; those that write return the file's address.
    """

    root: UPath

    @property
    def is_local(self) -> bool:
        return is_local(self.root)

    def write_result(self, result: RunResult, rank: int | None = None) -> str:
        """`rank`: of one pod of a gang."""
        text = result.model_dump_json().encode()
        if len(text) > MAX_RESULT_BYTES:
            run = result.spec.identity.run_id
            raise StoreError(f"the result of run '{run}' has {len(text)} bytes: {MAX_RESULT_BYTES} can be read again")
        if len(text) < MAX_INDENTED_BYTES:
            text = result.model_dump_json(indent=1).encode()
        return self._write(self._run_of(result) / (RESULT_FILE if rank is None else rank_file(rank)), text)

    def write_results(self, results: Sequence[RunResult]) -> None:
        """Write the results of which no file is there, and those that are joined from the files of a gang's pods."""

        def write(result: RunResult) -> None:
            if result.spec.placement.nodes > 1 or not self._is_there(self._run_of(result) / RESULT_FILE):
                self.write_result(result)

        with ThreadPoolExecutor(WRITERS) as writers:
            list(writers.map(write, results))

    def read_result_file(self, campaign_id: str, run_id: str) -> bytes:
        return self.read_run_file(campaign_id, run_id, RESULT_FILE)

    def read_run_file(self, campaign_id: str, run_id: str, name: str) -> bytes:
        """A stored file of the run or of one of its ranks."""
        return read_bounded(self._run_file(campaign_id, run_id, name), MAX_RESULT_BYTES, self.root)

    def run_file_address(self, campaign_id: str, run_id: str, name: str) -> str:
        return address(self._run_file(campaign_id, run_id, name))

    def read_results(self, campaign_id: str, progress: Progress = no_progress) -> StoredResults:
        """As judged and with their cost, where the campaign was published; else as the pods printed them."""
        if self.has_verdict(campaign_id):
            return StoredResults(self.read_campaign(campaign_id).results, ())
        return read_results(self._campaign(campaign_id) / "runs", progress, self.root)

    def write_log(self, campaign_id: str, run_id: str, name: str, text: str) -> str:
        """The kept log of one pod. `name`: see `pod_log.log_file`."""
        return self._write(self._run_file(campaign_id, run_id, name), text.encode())

    def log_names(self, campaign_id: str, run_id: str) -> tuple[str, ...]:
        """Sorted file names of the kept logs of a run's pods."""
        names = filter(LOG_FILE.fullmatch, self._names(self._run(campaign_id, run_id)))
        return tuple(sorted(names, key=natural))

    def read_log(self, campaign_id: str, run_id: str, name: str) -> bytes:
        """The kept log of one pod, and no other file."""
        if not LOG_FILE.fullmatch(name):
            raise StoreError(f"{name!r:.120} is no log of a pod: pod.log, or rank-0.log and so on of a gang's pods")
        return read_bounded(self._run_file(campaign_id, run_id, name), 2 * MAX_LOG_BYTES, self.root)

    def plan_path(self, campaign_id: str) -> UPath:
        return self._campaign(campaign_id) / PLAN_FILE

    def write_plan(self, campaign_id: str, text: str) -> str:
        return self._write(self.plan_path(campaign_id), text.encode())

    def read_plan(self, campaign_id: str) -> bytes | None:
        """None: it has none."""
        return self._read_if_there(self.plan_path(campaign_id))

    def read_levels(self) -> str | None:
        """The fleet's own levels; None: it has none."""
        content = self._read_if_there(self.root / LEVELS_FILE)
        return None if content is None else content.decode(errors="replace")

    def write_levels(self, text: str) -> str:
        return self._write(self.root / LEVELS_FILE, text.encode())

    def write_campaign(self, campaign: Campaign) -> str:
        text = to_json(campaign, indent=1)
        if len(text) > MAX_CAMPAIGN_BYTES:
            raise StoreError(
                f"the verdict of campaign '{campaign.campaign_id}' has {len(text)} bytes: {MAX_CAMPAIGN_BYTES} can be "
                "read again; its results are stored: measure fewer nodes or works in one campaign"
            )
        return self._write(self._summary_file(campaign.campaign_id, CAMPAIGN_FILE), text)

    def read_campaign(self, campaign_id: str) -> Campaign:
        return read_campaign(self._summary_file(campaign_id, CAMPAIGN_FILE), self.root)

    def ended_at(self, campaign_id: str) -> datetime | None:
        """When the campaign ended, by the first bytes of its verdict: its times stand before its results. None: they do
        not say it.
        """
        path = self._summary_file(campaign_id, CAMPAIGN_FILE)
        with as_store_errors(path, "read"), opened(path, self.root) as file:
            head = file.read(HEAD_BYTES)
        try:
            return TypeAdapter(AwareDatetime).validate_python(from_json(head, allow_partial=True)["finished_at"])
        except (ValueError, LookupError, TypeError):
            return None

    def write_summary(self, campaign_id: str, files: Mapping[str, str | bytes]) -> dict[str, str]:
        """Write the files (relative name -> content) after checking all names; return relative name -> address."""
        return self._write_all({name: self._summary_file(campaign_id, name) for name in files}, files)

    def write_cost_report(self, report_id: str, files: Mapping[str, str | bytes]) -> dict[str, str]:
        """As `write_summary`, of a cost report."""
        folder = self.root / Shelf.COST / _identifier(report_id)
        return self._write_all({name: _named(folder, name) for name in files}, files)

    def campaign_stamp(self, campaign_id: str) -> tuple[float, int]:
        """Time of the last change, and size in bytes, of the campaign's verdict."""
        path = self._summary_file(campaign_id, CAMPAIGN_FILE)
        with as_store_errors(path, "read"):
            status = path.stat()
        return status.st_mtime, status.st_size

    def has_verdict(self, campaign_id: str) -> bool:
        """Whether the campaign was published."""
        return self._is_there(self._summary_file(campaign_id, CAMPAIGN_FILE))

    def summary_address(self, campaign_id: str, name: str) -> str:
        return address(self._summary_file(campaign_id, name))

    def campaign_ids(self) -> tuple[str, ...]:
        """Sorted ids of all campaigns with files."""
        return self.names(Shelf.CAMPAIGNS)

    def names(self, shelf: Shelf) -> tuple[str, ...]:
        """Sorted names of the shelf's folders."""
        return tuple(sorted(name for name in self._names(self.root / shelf) if re.fullmatch(IDENTIFIER, name)))

    def usage(self, shelf: Shelf, name: str) -> Usage:
        """The usage of a folder, from file status only, of a link its own."""
        folder = self.root / shelf / _identifier(name)
        with as_store_errors(folder, "read"):
            paths = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
            files = {str(path.relative_to(folder)): path.lstat() if self.is_local else path.stat() for path in paths}
        foreign = (
            each
            for each, file in files.items()
            if stat.S_ISLNK(file.st_mode) or not KNOWN_FILES[shelf].fullmatch(DRAFT.sub(r"\1\2", each))
        )
        # Some object stores only have the creation time: objects are replaced, never changed.
        times = [file.st_mtime or getattr(file, "st_birthtime", 0) for file in files.values()]
        return Usage(
            shelf=shelf,
            name=name,
            num_files=len(files),
            num_bytes=sum(file.st_size for file in files.values()),
            changed_at=datetime.fromtimestamp(max(times), UTC) if times and all(times) else None,
            foreign=(name,) if self.is_local and folder.is_symlink() else tuple(sorted(foreign)),
        )

    def delete(self, shelf: Shelf, name: str) -> Usage:
        """Delete a folder with its files; return its usage. Refused if it holds files of other programs."""
        usage = self.usage(shelf, name)
        folder = self.root / shelf / _identifier(name)
        if usage.foreign:
            foreign = ", ".join(usage.foreign[:3])
            raise StoreError(f"{address(folder)} is not deleted: {foreign} is not of a {NOUNS[shelf]}; move it away")
        with as_store_errors(folder, "deleted"):
            if self.is_local:
                refuse_links(folder, self.root)
                rmtree(folder.path)
            else:
                folder.fs.rm(folder.path, recursive=True)
        return usage

    def probe(self) -> str:
        """Write a small object, read it back and delete it; returns the store's address."""
        path, content = self.root / f".probe-{secrets.token_hex(4)}", secrets.token_bytes(64)
        self._write(path, content)
        try:
            is_same = read_bounded(path, len(content), self.root) == content
        finally:
            with as_store_errors(path, "deleted"):
                path.unlink()
        if not is_same:
            raise StoreError(f"{address(path)} was read with other content than was written: check the store")
        return address(self.root)

    def _campaign(self, campaign_id: str) -> UPath:
        return self.root / Shelf.CAMPAIGNS / _identifier(campaign_id)

    def _run(self, campaign_id: str, run_id: str) -> UPath:
        return self._campaign(campaign_id) / "runs" / _identifier(run_id)

    def _run_of(self, result: RunResult) -> UPath:
        return self._run(result.spec.identity.campaign_id, result.spec.identity.run_id)

    def _run_file(self, campaign_id: str, run_id: str, name: str) -> UPath:
        return _named(self._run(campaign_id, run_id), name)

    def _summary_file(self, campaign_id: str, name: str) -> UPath:
        return _named(self._campaign(campaign_id) / "summary", name)

    def _names(self, folder: UPath) -> list[str]:
        with as_store_errors(folder, "read"):
            return [entry.name for entry in folder.iterdir()] if folder.is_dir() else []

    def _is_there(self, path: UPath) -> bool:
        with as_store_errors(path, "read"):
            return bool(path.is_file())

    def _read_if_there(self, path: UPath) -> bytes | None:
        return read_bounded(path, MAX_CAMPAIGN_BYTES, self.root) if self._is_there(path) else None

    def _write(self, path: UPath, content: str | bytes) -> str:
        write_file(path, content.encode() if isinstance(content, str) else content, self.root)
        return address(path)

    def _write_all(self, paths: Mapping[str, UPath], files: Mapping[str, str | bytes]) -> dict[str, str]:
        """After the names of all of them were checked."""
        return {name: self._write(paths[name], content) for name, content in files.items()}


def read_campaign(path: UPath, root: UPath | None = None) -> Campaign:
    """The campaign of a file. `root`: of the store. Raises StoreError when it is missing, too large or no campaign."""
    try:
        text = read_bounded(path, MAX_CAMPAIGN_BYTES, root)
        refuse_dense(text)
        return Campaign.model_validate_json(text)
    except ContractError as error:
        raise StoreError(f"{address(path)} has {error}") from None
    except ValidationError as error:
        raise StoreError(f"{address(path)} is not a campaign of this version: {explain(error)}") from None


def _named(folder: UPath, name: str) -> UPath:
    if not SUMMARY_NAME.fullmatch(name):
        raise StoreError(f"summary file {name!r}: only plain relative names such as 'plots/step_time.png'")
    return folder / name


def _identifier(name: str) -> str:
    if not re.fullmatch(IDENTIFIER, name):
        raise StoreError(f"id {name!r:.220} cannot name a folder: lower-case letters, digits, '.', '_' and '-' only")
    return name

"""Reads all results below a folder of the store, and joins the rank files of unfinished gangs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench_image.contract.frozen import ContractError
from bench_image.contract.pod_io import MAX_RESULT_BYTES, RESULT_FILE
from bench_image.contract.result import RunResult
from trainbench.pods.gangs import combine_ranks
from trainbench.results.collect import collect, parse_payload
from trainbench.results.store_files import StoreError, address, as_store_errors, read_bounded

if TYPE_CHECKING:
    from upath import UPath

RANK_FILE = re.compile(r"rank-[0-9]{1,6}\.json")
Progress = Callable[[int, int], None]  # (files read, files in all)


def no_progress(_: int, __: int) -> None:
    pass


@dataclass(frozen=True)
class BrokenFile:
    """A stored result that cannot be read, with the reason. It is reported, and the others are read."""

    address: str
    reason: str


@dataclass(frozen=True)
class StoredResults:
    results: tuple[RunResult, ...]
    broken: tuple[BrokenFile, ...]

    def readable(self, source: str) -> tuple[RunResult, ...]:
        """The results. Raises StoreError where there are none. `source`: what was read, for the message."""
        if not self.results:
            reasons = "; ".join(f"{file.address}: {file.reason}" for file in self.broken[:3])
            raise StoreError(f"'{source}' holds no readable result.json{': ' if reasons else ''}{reasons}")
        return self.results


def read_results(folder: UPath, progress: Progress = no_progress, root: UPath | None = None) -> StoredResults:
    """All `result.json` files at any depth below `folder`, ordered by path, then one result for each gang of which only
    the ranks' files are there: a rank without a result makes its run a failed one. `progress` is called after each.
    `root`: of the store that `folder` belongs to; below it, or below `folder`, no link is followed.
    """
    broken: list[BrokenFile] = []

    def read(path: UPath) -> RunResult | None:
        try:
            return parse_payload(read_bounded(path, MAX_RESULT_BYTES, folder if root is None else root))
        except (ContractError, StoreError) as error:
            broken.append(BrokenFile(address(path), str(error)))
            return None

    with as_store_errors(folder, "read"):
        files = sorted(folder.rglob("*.json"), key=str) if folder.is_dir() else []
    results: list[RunResult] = []
    paths = [path for path in files if path.name == RESULT_FILE]
    for number, path in enumerate(paths, 1):
        if result := read(path):
            results.append(result)
        progress(number, len(paths))
    done = {str(path.parent) for path in paths}
    ranks: dict[str, dict[int, RunResult]] = {}
    for path in files:
        is_alone = RANK_FILE.fullmatch(path.name) and str(path.parent) not in done
        if is_alone and (result := read(path)):
            ranks.setdefault(str(path.parent), {})[int(path.stem.removeprefix("rank-"))] = result
    return StoredResults((*results, *(_joined(of_run) for _, of_run in sorted(ranks.items()))), tuple(broken))


def rank_file(rank: int) -> str:
    return f"rank-{rank}.json"


def latest_try(by_rank: Mapping[int, RunResult]) -> Mapping[int, RunResult]:
    """The ranks of the latest try: those that still ran when the last one began."""
    began = max(result.started_at for result in by_rank.values())
    return {rank: result for rank, result in by_rank.items() if result.finished_at >= began}


def _joined(by_rank: Mapping[int, RunResult]) -> RunResult:
    by_rank = latest_try(by_rank)
    results = tuple(by_rank.values())
    spec = results[0].spec
    payloads = [by_rank[rank].model_dump_json() if rank in by_rank else None for rank in range(spec.placement.nodes)]
    at = max(result.finished_at for result in results)
    return combine_ranks(spec, collect((spec,) * spec.placement.nodes, payloads, at))

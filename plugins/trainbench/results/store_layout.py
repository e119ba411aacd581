"""The two shelves of a store: the files of each, and the usage of a folder."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from trainbench.results.local_files import final_name

if TYPE_CHECKING:
    from upath.types import StatResultType


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
    names of files from other programs.
    """

    shelf: Shelf
    name: str
    num_files: int
    num_bytes: int
    changed_at: datetime | None
    foreign: tuple[str, ...]


def foreign_files(shelf: Shelf, files: Mapping[str, StatResultType]) -> Iterator[str]:
    """Names of `files` that another program wrote, and of links."""
    for name, file in files.items():
        is_known = KNOWN_FILES[shelf].fullmatch(final_name(name))
        if not is_known or stat.S_ISLNK(file.st_mode):
            yield name

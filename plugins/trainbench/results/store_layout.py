"""The two shelves of a store: which files belong on each, and what one folder of a shelf takes."""

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
    """A folder of the root. What stands on it is written and deleted whole."""

    CAMPAIGNS = "campaigns"
    COST = "cost"


NOUNS = {Shelf.CAMPAIGNS: "campaign", Shelf.COST: "cost report"}
# The files of each shelf, relative to their folder: anything else is somebody else's and is never deleted.
KNOWN_FILES = {
    Shelf.CAMPAIGNS: re.compile(
        r"plan\.json|runs/[^/]+/(result|rank-[0-9]{1,6})\.json"
        r"|summary/(verdict\.json|report\.json|report\.html|metrics\.csv|(BENCHMARK|COST)_REPORT\.md|plots/[a-z_]+\.png)"
    ),
    Shelf.COST: re.compile(r"COST_REPORT\.md|cost_report\.html|costs\.csv|costs\.json"),
}


@dataclass(frozen=True)
class Usage:
    """What a campaign or a cost report takes in the store. `changed_at` is None where the store does not tell;
    `foreign` names files that this program has not put there.
    """

    shelf: Shelf
    name: str
    num_files: int
    num_bytes: int
    changed_at: datetime | None
    foreign: tuple[str, ...]


def foreign_files(shelf: Shelf, files: Mapping[str, StatResultType]) -> Iterator[str]:
    """Names of the `files` of one folder that this program has not written, links included."""
    for name, file in files.items():
        is_known = KNOWN_FILES[shelf].fullmatch(final_name(name))
        if not is_known or stat.S_ISLNK(file.st_mode):
            yield name

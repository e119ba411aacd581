"""Names of weights and folders in one form: one name that is written in two ways must be one work."""

from __future__ import annotations

import posixpath
import re
from typing import NamedTuple

RANDOM = "random"  # weights drawn on the device: no hub, no checkpoint
BRANCHES = ("main", "master")
# "organisation/name@revision"; the hub's ids may lack the organisation
HUB_ID = re.compile(r"(?P<repository>[\w.-]+(/[\w.-]+)?)@(?P<revision>[\w./-]+)")


class HubId(NamedTuple):
    repository: str
    revision: str


def normal_folder(path: str) -> str:
    """ "/data//a/" -> "/data/a"."""
    normal = posixpath.normpath(path)
    return f"/{normal.lstrip('/')}" if path.startswith("/") else normal


def normal_weights(weights: str) -> str:
    """A path in one form, still beginning with / or .; a hub id as it is. ValueError: it has no revision."""
    if weights.startswith(("/", ".")):
        normal = normal_folder(weights)
        return normal if normal.startswith(("/", ".")) else f"./{normal}"
    if weights != RANDOM:
        hub_id(weights)
    return weights


def hub_id(weights: str) -> HubId:
    """Raises ValueError where the revision is absent or moves: runs of one name would not be of one work."""
    match = HUB_ID.fullmatch(weights)
    if match is None or match["revision"] in BRANCHES:
        name = match["repository"] if match else weights
        raise ValueError(
            f"weights '{weights}' from the hub need a revision that does not move: write {name}@ and the commit hash "
            "that the hub shows under 'Files and versions', or give the path of a folder, beginning with / or ."
        )
    return HubId(match["repository"], match["revision"])

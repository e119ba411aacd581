"""Judges which campaigns and cost reports are past their retention."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from bench_image.contract.frozen import Frozen
from trainbench.results.artefacts import NOUNS, Shelf, Usage


class Expiry(Frozen):
    """Whether a folder is expired, and why."""

    shelf: Shelf
    name: str
    num_files: int
    num_bytes: int
    age_days: float | None
    is_expired: bool
    reason: str


def expiries(usages: Iterable[Usage], retention_days: int, now: datetime) -> tuple[Expiry, ...]:
    """Folders, oldest first. `retention_days` 0 keeps all; undated folders and those with others' files stay."""
    judged = [_expiry(usage, retention_days, now) for usage in usages]
    return tuple(sorted(judged, key=lambda expiry: -(expiry.age_days or 0)))


def _expiry(usage: Usage, retention_days: int, now: datetime) -> Expiry:
    age = now - usage.changed_at if usage.changed_at else None
    is_old = retention_days > 0 and age is not None and age > timedelta(days=retention_days)
    if retention_days == 0:
        reason = "kept for ever"
    elif age is None:
        reason = "kept: it holds no file that can be dated"
    elif not is_old:
        reason = f"kept until {retention_days} days after its last change"
    elif usage.foreign:
        reason = f"kept: {', '.join(usage.foreign[:3])} in it is not of a {NOUNS[usage.shelf]}; move it away"
    else:
        reason = f"last changed more than {retention_days} days ago"
    return Expiry(
        shelf=usage.shelf,
        name=usage.name,
        num_files=usage.num_files,
        num_bytes=usage.num_bytes,
        age_days=None if age is None else age.total_seconds() / 86_400,
        is_expired=is_old and not usage.foreign,
        reason=reason,
    )

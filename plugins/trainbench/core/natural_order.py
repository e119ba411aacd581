"""Natural order of names: node-2 before node-10."""

from __future__ import annotations

import re


def natural(name: str) -> tuple[tuple[str, int], ...]:
    """Sort key that puts node-2 before node-10."""
    return tuple((text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", name))

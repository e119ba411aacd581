"""Fingerprints: runs are comparable when the fingerprints of their parts are equal.

A setting that is None is left to the program, and is not hashed: a setting that is added later with the default None
leaves the fingerprints of all results without it as they are.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Any

from bench_image.contract.frozen import Frozen


class Part(Frozen):
    """A part of a spec that enters fingerprints. Each of its fields does unless it is None, a new one too."""

    def canonical(self) -> dict[str, Any]:
        """The fields that are not None, as JSON values, in one form for equal settings."""
        return self.model_dump(mode="json", exclude_none=True)


def fingerprint(*parts: Part) -> str:
    """12 hex digits of the parts' fields. Parts are of different types, whose fields have different names."""
    return _digest(parts)


@lru_cache(maxsize=1000)
def _digest(parts: tuple[Part, ...]) -> str:
    """Cached: reports read the fingerprints of thousands of equal runs."""
    fields: dict[str, Any] = {}
    for part in parts:
        fields |= part.canonical()
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:12]

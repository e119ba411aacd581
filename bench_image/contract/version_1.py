"""Specs and results of schema version 1, read as version 2: what was not measured then is null and says so."""

from __future__ import annotations

from typing import Any

NOT_MEASURED = "not measured by schema version 1"
ONE_PACE = "the ranks work together and have one pace"
ADDED = {
    "startup": ("choose_s", "profile_s"),
    "performance": ("loader_wait_pct", "input_mb_per_s"),
    "communication": ("total_pct", "exposed_pct", "profiled_steps"),
}


# Version 1 bounded its windows by steps alone: an hour is more than any of them took.
UNBOUNDED = {"max_window_s": 3600.0}


def spec_from_version_1(document: Any) -> Any:
    """Version 2 only added fields, which are given what version 1 did; what is not of version 1 stays as it is."""
    is_old = isinstance(document, dict) and document.get("schema_version") == 1
    return {**UNBOUNDED, **document, "schema_version": 2} if is_old else document


def from_version_1(data: dict[str, Any]) -> dict[str, Any]:
    """The same result as a document of version 2; not yet validated, and what is malformed stays malformed."""
    upgraded = {**data, "schema_version": 2, "chosen": None}
    if "spec" in data:
        upgraded["spec"] = spec_from_version_1(data["spec"])
    for section, names in ADDED.items():
        known = data.get(section, {})
        if isinstance(known, dict):
            upgraded[section] = {**known, **dict.fromkeys(names)}
    if isinstance(data.get("ranks"), list):
        upgraded["ranks"] = [
            {**rank, "performance": None, "probes": None} if isinstance(rank, dict) else rank for rank in data["ranks"]
        ]
    if isinstance(data.get("missing"), dict):
        reasons = {f"{section}.{name}": NOT_MEASURED for section, names in ADDED.items() for name in names}
        upgraded["missing"] = {
            "chosen": NOT_MEASURED,
            "ranks.*.performance": ONE_PACE,
            "ranks.*.probes": ONE_PACE,
            **reasons,
            **data["missing"],
        }
    return upgraded

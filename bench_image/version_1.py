"""Results of schema version 1, read as version 2: what was not measured then is null and says so."""

from __future__ import annotations

from typing import Any

NOT_MEASURED = "not measured by schema version 1"
ADDED = {
    "startup": ("choose_s", "profile_s"),
    "performance": ("loader_wait_pct", "input_mb_per_s"),
    "communication": ("total_pct", "exposed_pct", "profiled_steps"),
}


def from_version_1(data: dict[str, Any]) -> dict[str, Any]:
    """The same result as a document of version 2; not yet validated, and what is malformed stays malformed."""
    upgraded = {**data, "schema_version": 2, "chosen": None}
    if isinstance(data.get("spec"), dict) and data["spec"].get("schema_version") == 1:
        upgraded["spec"] = {**data["spec"], "schema_version": 2}
    for section, names in ADDED.items():
        known = data.get(section, {})
        if isinstance(known, dict):
            upgraded[section] = {**known, **dict.fromkeys(names)}
    if isinstance(data.get("missing"), dict):
        reasons = {f"{section}.{name}": NOT_MEASURED for section, names in ADDED.items() for name in names}
        upgraded["missing"] = {"chosen": NOT_MEASURED, **reasons, **data["missing"]}
    return upgraded

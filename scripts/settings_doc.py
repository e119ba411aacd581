"""Writes docs/settings.md from the fields of `trainbench.settings.environment.Settings`.

PYTHONPATH=.:plugins python scripts/settings_doc.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from trainbench.settings.environment import PREFIX, Settings

PAGE = Path(__file__).resolve().parents[1] / "docs" / "settings.md"
HEAD = """\
# Settings

Environment variables of an installation. Set the same ones for Airflow's scheduler, triggerer, DAG processor, workers
and API server. `trainbench` on the command line reads them too. An empty variable counts as one that is not set. A
value that is not allowed is refused with a sentence that names the variable, the value and what is allowed.

"""


def page() -> str:
    rows = [f"| {_variable(name)} | {_default(field)} | {field.description} |" for name, field in _fields()]
    return HEAD + "\n".join(["| variable | default | what it sets |", "|---|---|---|", *rows]) + "\n"


def _fields() -> list[tuple[str, FieldInfo]]:
    """The launcher first, then the rest by name."""
    return sorted(Settings.model_fields.items(), key=lambda item: (item[0] != "launcher", item[0]))


def _variable(name: str) -> str:
    return f"`{PREFIX}{name.upper()}{'_<DAG ID>' if name == 'schedule' else ''}`"


def _default(field: FieldInfo) -> str:
    value: Any = field.default
    if value in (None, (), {}, "") or ("/" in str(value) and Path(str(value)).is_absolute()):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{','.join(map(str, value)) if isinstance(value, tuple) else value}`"


if __name__ == "__main__":
    PAGE.write_text(page())

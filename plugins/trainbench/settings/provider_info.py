"""What Airflow is told of this package as a provider: its name, and the options of the section `[trainbench]`.

Every process of Airflow calls it, so it reads a file that `scripts/reference_docs.py` makes from the settings, and
imports none of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_suffix(".json")


def get_provider_info() -> dict[str, Any]:
    """Of the entry point `apache_airflow_provider`."""
    info: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return info

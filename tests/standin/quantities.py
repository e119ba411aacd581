"""Kubernetes quantities: `500m`, `8Gi`, `1e3`."""

from __future__ import annotations

import re

_QUANTITY = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|(m|u|n|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei))?$")
_POWERS = {letter: power for power, letter in enumerate("kMGTPE", 1)}


def quantity(value: str | int | float) -> float:
    """Raises ValueError."""
    match = _QUANTITY.match(str(value))
    if not match:
        raise ValueError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    number, exponent, suffix = match.groups()
    if exponent:
        return float(number + exponent)
    if suffix in ("m", "u", "n"):
        return float(number) / {"m": 1e3, "u": 1e6, "n": 1e9}[suffix]
    if suffix and suffix.endswith("i"):
        return float(number) * 1024.0 ** _POWERS[suffix[0].replace("K", "k")]
    return float(number) * (1000.0 ** _POWERS[suffix] if suffix else 1)

"""NVML: its initialisation, and queries whose failure is one exception."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from bench_image.contract.frozen import Frozen, Slotted
from bench_image.contract.parse import implausible_reason

Reading = Callable[[Any, Any], Any]  # of NVML and the handle of a GPU


class NvmlError(RuntimeError):
    """NVML or one of its queries failed; the message has the cause."""


def connect(nvml: Any = None) -> Any:
    """Initialises and returns the NVML module: `nvml`, or else `pynvml`. Raises NvmlError."""
    try:
        nvml = nvml or importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception as error:  # no module, no library, no driver
        raise NvmlError(f"NVML is not available: {error}") from None
    return nvml


def query(call: Callable[[], Any]) -> Any:
    """The result of one NVML query. Raises NvmlError for every failure: old driver, no permission, not supported."""
    try:
        return call()
    except Exception as error:  # NVMLError, a function this pynvml lacks, text that is not UTF-8
        raise NvmlError(f"NVML: {error}") from None


def read_each(
    readings: Mapping[str, Reading], nvml: Any, gpu: Callable[[], Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The values of the readings that succeed, and why the others do not. `gpu`: its handle."""
    values, reasons = {}, {}
    for name, reading in readings.items():
        try:
            values[name] = query(lambda: reading(nvml, gpu()))  # noqa: B023 - it is called at once
        except NvmlError as error:
            reasons[name] = str(error)
    return values, reasons


def drop_impossible(
    section: type[Frozen] | type[Slotted], fields: dict[str, Any], reasons: dict[str, str], source: str = "driver"
) -> None:
    """Makes a value null, with a reason, that the section does not take: it would spoil the whole result."""
    for name, value in fields.items():
        if value is not None and (reason := implausible_reason(section, name, value)):
            fields[name] = None
            reasons[name] = f"the {source} returned an impossible value: {reason}"

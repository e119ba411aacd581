"""NVML: its initialisation, and queries whose failure is one exception."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


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

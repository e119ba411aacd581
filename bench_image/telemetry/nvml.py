"""NVML, opened once and read so that each failing query costs only itself."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


class NvmlError(RuntimeError):
    """NVML, or one of its queries, does not answer here; the message says why."""


def connect(nvml: Any = None) -> Any:
    """The initialised NVML module: `nvml`, or the real `pynvml`. Raises NvmlError."""
    try:
        nvml = nvml or importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception as error:  # no module, no library, no driver: all mean that there is no NVML
        raise NvmlError(f"NVML is not available: {error}") from None
    return nvml


def query(call: Callable[[], Any]) -> Any:
    """The answer of one NVML query. Raises NvmlError, whatever the cause: old driver, no permission, not supported."""
    try:
        return call()
    except Exception as error:  # NVMLError, a function this pynvml lacks, text that is not UTF-8
        raise NvmlError(f"NVML: {error}") from None

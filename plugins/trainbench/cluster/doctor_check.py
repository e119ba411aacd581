"""The outcome of one check of `doctor`: its state, one sentence, and the remedy."""

from __future__ import annotations

from enum import StrEnum

from bench_image.contract.frozen import Frozen


class CheckState(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Check(Frozen):
    """One check of `doctor`. `resolution` is empty where there is nothing to do."""

    name: str
    state: CheckState
    summary: str
    resolution: str = ""


def ok(name: str, summary: str) -> Check:
    return Check(name=name, state=CheckState.OK, summary=summary)


def warn(name: str, summary: str, resolution: str) -> Check:
    return Check(name=name, state=CheckState.WARN, summary=summary, resolution=resolution)


def fail(name: str, summary: str, resolution: str) -> Check:
    return Check(name=name, state=CheckState.FAIL, summary=summary, resolution=resolution)


def unknown(name: str, summary: str, resolution: str = "") -> Check:
    return Check(name=name, state=CheckState.UNKNOWN, summary=summary, resolution=resolution)

"""Holds equal parts of many results once in memory.

A parsed result takes 20 kB, most of which repeats from run to run: its work, libraries, reasons, and of each section
the set of fields that pydantic keeps.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeVar

from pydantic import BaseModel

from bench_image.contract.frozen import Slotted, fields_of
from bench_image.contract.result import RankSummary, RunResult
from bench_image.contract.result_sections import (
    Context,
    Cost,
    GpuTelemetry,
    HostTelemetry,
    Performance,
    StepTime,
    Telemetry,
    Window,
)
from bench_image.contract.spec import Identity, RunSpec
from trainbench.prices.run_cost import RunCost

Model = TypeVar("Model", bound=BaseModel)
Part = TypeVar("Part", bound=BaseModel | Slotted)
OWN = (
    RunResult, RunCost, Cost, RunSpec, Identity, Context, RankSummary, Performance, StepTime, Window, Telemetry,
    GpuTelemetry, HostTelemetry,
)  # fmt: skip  # never equal, so not worth a lookup


class SharedParts:
    """The parts of one campaign's results. Sharing them is safe because results are frozen."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}

    def share(self, part: Part) -> Part:
        """An equal part made of shared parts."""
        same: Part = self._part(part)
        return same

    def _model(self, model: Model) -> Model:
        fields = model.__dict__
        for name, value in fields.items():
            fields[name] = self._part(value)
        names = frozenset(model.__pydantic_fields_set__)
        object.__setattr__(model, "__pydantic_fields_set__", self._known.setdefault(names, set(names)))
        if isinstance(model, OWN):
            return model
        same: Model = self._known.setdefault((type(model), *map(_key, fields.values())), model)
        return same

    def _slotted(self, section: Slotted) -> Slotted:
        values = {name: self._part(getattr(section, name)) for name in fields_of(type(section))}
        for name, value in values.items():
            object.__setattr__(section, name, value)
        if isinstance(section, OWN):
            return section
        same: Slotted = self._known.setdefault((type(section), *map(_key, values.values())), section)
        return same

    def _part(self, value: Any) -> Any:
        if isinstance(value, BaseModel):
            return self._model(value)
        if isinstance(value, Slotted):
            return self._slotted(value)
        if isinstance(value, str) and type(value) is str:
            return self._known.setdefault(value, value)
        if isinstance(value, tuple) and value and isinstance(value[0], float):
            return tuple(self._known.setdefault(figure, figure) for figure in value)  # step times, whole microseconds
        if isinstance(value, tuple) and value:
            parts = tuple(map(self._part, value))
            if isinstance(value[0], OWN):
                return parts
            return self._known.setdefault(("tuple", *map(_key, parts)), parts)
        if isinstance(value, dict):
            items = {self._part(key): self._part(each) for key, each in value.items()}
            return self._known.setdefault(("dict", *items, *map(_key, items.values())), items)
        return value


def without_steps(result: RunResult) -> RunResult:
    """The result without the times of its single steps, which only files hold."""
    return result.model_copy(update={"performance": result.performance.model_copy(update={"step_times_s": ()})})


def _key(part: Any) -> Hashable:
    """A key for equality that distinguishes 1, 1.0 and True. Parts are kept, so an address identifies one."""
    return (type(part), part) if isinstance(part, int | float) else id(part)

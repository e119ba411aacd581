"""The base classes of the contract's models, their settings, and their error.

A setting is a field that the trigger form, the command line and the reports show, declared once.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, Self, TypeVar, dataclass_transform

from pydantic import BaseModel, ConfigDict, Field
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

Section = TypeVar("Section", bound="Slotted")


class ContractError(ValueError):
    """A spec or a result from outside breaks the contract; the message names the field and what is allowed."""


# NaN and infinity are refused: json.dumps would write them as NaN and Infinity, which are not JSON.
STRICT = ConfigDict(extra="forbid", allow_inf_nan=False, json_schema_serialization_defaults_required=True)


class Frozen(BaseModel):
    model_config = STRICT | ConfigDict(frozen=True)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy as pydantic does, but share the set of field names, which takes more memory than the fields."""
        copied = super().model_copy(update=update, deep=deep)
        if copied.model_fields_set == self.model_fields_set:
            object.__setattr__(copied, "__pydantic_fields_set__", self.model_fields_set)
        return copied


class Slotted:
    """Base of the parts that a result has many of, one per window or GPU: a quarter of a model's memory."""

    __slots__ = ()

    def model_copy(self, *, update: Mapping[str, Any]) -> Self:
        """A copy with other values, which are not validated."""
        copied = copy(self)
        for name, value in update.items():
            object.__setattr__(copied, name, value)
        return copied


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(Field,))
def slotted(section: type[Section]) -> type[Section]:
    """Make the class a frozen pydantic dataclass with slots, checked like a `Frozen` model.

    Its fields are described by `Annotated`: those with `= Field(...)` would come first in JSON.
    """
    made: Any = dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)(section)
    return made  # type: ignore[no-any-return]


def fields_of(section: type[Frozen] | type[Slotted]) -> dict[str, FieldInfo]:
    """Name -> pydantic's description of each field."""
    fields: dict[str, FieldInfo] = vars(section)["__pydantic_fields__"]
    return fields


def setting(
    default: Any, section: str, title: str, text: str, *, form_name: str | None = None, **constraints: Any
) -> Any:
    """A field with its default, the form's section, title and help text, and its bounds as pydantic names them.

    `form_name`: its name in the form; by default the name of its part, such as `lora`, and its own.
    """
    extra: Any = {"section": section} | ({"form_name": form_name} if form_name else {})
    return Field(default, title=title, description=text, json_schema_extra=extra, **constraints)

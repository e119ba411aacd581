"""The fields of the trigger form. The form lays side by side the fields that the parameters hold in parts."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from functools import cache, reduce
from operator import getitem
from typing import Any, NamedTuple

from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer, model_validator
from pydantic.fields import FieldInfo

from bench_image.contract.frozen import Frozen
from trainbench.core.close_matches import did_you_mean

TEXT_OR_NUMBER = ["string", "integer"]
SWITCH = {True: "on", False: "off"}
# For pydantic and for us, not for Airflow's form.
LEFT_OUT = ("$ref", "anyOf", "default", "items", "form_name")


class FormField(NamedTuple):
    """A field of the form. `path`: place of its value in the parameters; `model`: the class that declares it."""

    path: tuple[str, ...]
    model: type[BaseModel]

    @property
    def info(self) -> FieldInfo:
        return self.model.model_fields[self.path[-1]]


@cache
def form_fields(model: type[BaseModel], path: tuple[str, ...] = ()) -> dict[str, FormField]:
    """Name in the form -> field, for each field with a title. Names of a part's fields begin with the part's, as in
    `lora_rank`, except those of the top parts.
    """
    fields: dict[str, FormField] = {}
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            fields |= form_fields(info.annotation, (*path, name))
        elif info.title:
            extra: Any = info.json_schema_extra
            fields[extra.get("form_name") or "_".join((*path[1:], name))] = FormField((*path, name), model)
    return fields


def nested(values: Mapping[str, Any], fields: Mapping[str, FormField]) -> dict[str, Any]:
    """The form's values, nested in their parts. An empty text becomes None where None is the default."""
    parts: dict[str, Any] = {}
    for name, value in values.items():
        *above, last = fields[name].path
        part = reduce(lambda inner, key: inner.setdefault(key, {}), above, parts)
        part[last] = None if value == "" and fields[name].info.default is None else value
    return parts


def flat(parts: Mapping[str, Any], fields: Mapping[str, FormField]) -> dict[str, Any]:
    return {name: reduce(getitem, field.path, parts) for name, field in fields.items()}


class FormParams(Frozen):
    """Parameters in parts that are read and written side by side, as in the form."""

    @model_validator(mode="before")
    @classmethod
    def _in_parts(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        fields = form_fields(cls)
        if unknown := [name for name in values if name not in fields]:
            close = did_you_mean(unknown[0], fields)
            raise ValueError(f"{unknown[0]} is not a parameter{close}: choose from {', '.join(fields)}")
        return nested(values, fields)

    @model_serializer(mode="wrap")
    def _side_by_side(self, in_parts: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return flat(in_parts(self), form_fields(type(self)))


def json_object(value: object) -> object:
    """The value as an object: the command line and Airflow's API may pass text, and the form's editor passes `{}` for
    none.
    """
    if not isinstance(value, str):
        return value or None
    try:
        return (json.loads(value) or None) if value.strip() else None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a JSON object ({error})") from None


def airflow_schema(field: FormField) -> dict[str, Any]:
    """Keyword arguments of Airflow's `Param`, except the default: a JSON Schema with section, title and help."""
    schema = _json_schema(field.model)
    shown = _in_place(schema["properties"][field.path[-1]], schema.get("$defs", {}))
    help_text = shown.pop("description")
    return {**shown, "title": field.info.title, "description_md": help_text}


def shown_fields(fields: Mapping[str, Mapping[str, Any]], in_view: Collection[str]) -> dict[str, dict[str, Any]]:
    """The fields as Airflow's form shows them best: those `in_view` first, in the section that it opens, the others
    folded under their titles.
    """
    first = {name: fields[name] for name in in_view if name in fields}
    shown = {name: dict(field) for name, field in (first | dict(fields)).items()}
    for name, field in shown.items():
        if name in first:
            del field["section"]  # Airflow opens the section of fields without one
        # Code is drawn over the lines above and below it.
        field["description_md"] = re.sub("`([^`]+)`", r"**\1**", field["description_md"])
        if None in field.get("enum", ()):
            field["values_display"] = {"null": "automatic"}
    return shown


def in_form(value: Any, schema: Mapping[str, Any]) -> Any:
    """A default in the type of the form's text fields and dropdowns."""
    if isinstance(value, list):
        return [in_form(each, schema["items"]) for each in value]
    if isinstance(value, bool) and "enum" in schema:
        return SWITCH[value]
    return str(value) if schema["type"] == TEXT_OR_NUMBER else value


@cache
def _json_schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def _in_place(prop: Mapping[str, Any], defs: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with `type` and `enum` in place, since Airflow's form reads neither references nor `anyOf`."""
    own = {key: value for key, value in prop.items() if key not in LEFT_OUT}
    if "$ref" in prop:
        target = defs[prop["$ref"].rsplit("/", 1)[-1]]
        own = {"type": target["type"], "enum": target["enum"]} | own
    if choices := [option for option in prop.get("anyOf", ()) if option.get("type") != "null"]:
        own |= _one_of(choices, defs)
        if len(choices) < len(prop["anyOf"]):
            own["type"] = [own["type"], "null"]
            if "enum" in own:
                own["enum"] = [*own["enum"], None]
    if "items" in prop:
        own["items"] = _in_place(prop["items"], defs)
        if "enum" in own["items"]:
            own["examples"] = own["items"]["enum"]  # Airflow draws a multi-select from `examples`
    return own


def _one_of(choices: list[dict[str, Any]], defs: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a union: number or word is a text field, a switch with further choices a dropdown, several shapes a
    JSON object. Text fields accept numbers too, because Airflow's API sends them.
    """
    first, *others = choices
    if "oneOf" in first:
        return {"type": "object"}
    words = [choice["const"] for choice in others if "const" in choice]
    if first.get("type") == "boolean":
        return {"type": "string", "enum": [*SWITCH.values(), *words]}
    if words:
        digits = f"[1-9][0-9]{{0,{len(str(first['maximum'])) - 1}}}"
        # Airflow draws a line of text where there are examples, and a box of many lines where there are none.
        return {**first, "type": TEXT_OR_NUMBER, "pattern": f"^({'|'.join(words)}|{digits})$", "examples": words}
    return _in_place(first, defs)

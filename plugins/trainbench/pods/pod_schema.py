"""Strict check of a Pod as users write it: unknown fields, wrong types and quantities, each with its path.

The schema is the Kubernetes client's models. The API server ignores a field that it does not know unless it is asked to
be strict: a misspelt toleration would be a pod that waits for ever.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

QUANTITY_MAPS = ("limits", "requests")  # resource -> quantity
QUANTITIES = ("sizeLimit", "divisor")
PRIMITIVES = {"str": (str, "a text, in quotes"), "bool": (bool, "true or false"), "datetime": (str, "a time")}
PARTS = re.compile(r"^(list|dict)\[(?:str, )?(.+)\]$")


def schema_faults(value: Any, type_name: str = "V1Pod", path: str = "") -> Iterator[str]:
    """One sentence for each fault: "spec.tolerations[0].efect: unknown field, did you mean effect?"."""
    if value is None:
        yield f"{path or 'the template'}: is empty, leave the field out"
    elif parts := PARTS.match(type_name):
        yield from _items(value, parts[1], parts[2], path)
    elif type_name.startswith(("V1", "CoreV1")):
        yield from _fields(value, type_name, path)
    elif type_name == "int":
        if not isinstance(value, int) or isinstance(value, bool):
            yield f"{path}: {value!r} is not a whole number"
    elif type_name in PRIMITIVES:
        yield from _primitive(value, type_name, path)


def _items(value: Any, container: str, inner: str, path: str) -> Iterator[str]:
    if container == "list" and isinstance(value, list):
        for index, item in enumerate(value):
            yield from schema_faults(item, inner, f"{path}[{index}]")
    elif container == "dict" and isinstance(value, dict):
        yield from _entries(value, inner, path)
    else:
        yield f"{path}: {value!r} is not a {'list' if container == 'list' else 'mapping'}"


def _entries(value: Mapping[Any, Any], inner: str, path: str) -> Iterator[str]:
    are_quantities = path.rpartition(".")[2] in QUANTITY_MAPS
    for key, item in value.items():
        if not isinstance(key, str):
            yield f"{path}: the key {key!r} is not a text: put it in quotes"
        elif are_quantities:
            yield from _quantity(item, f"{path}.{key}")
        else:
            yield from schema_faults(item, inner, f"{path}.{key}")


def _fields(value: Any, type_name: str, path: str) -> Iterator[str]:
    from kubernetes.client import models  # type: ignore[import-untyped]  # takes half a second to import

    if not isinstance(value, Mapping):
        yield f"{path or 'the template'}: {value!r} is not a mapping of fields"
        return
    model = getattr(models, type_name)
    attributes = {written: attribute for attribute, written in model.attribute_map.items()}
    faults = []
    for field, item in value.items():
        at = f"{path}.{field}".lstrip(".")
        if field not in attributes:
            close = difflib.get_close_matches(str(field), attributes, n=1)
            faults.append(f"{at}: unknown field" + (f", did you mean {close[0]}?" if close else ""))
        else:
            faults += schema_faults(item, model.openapi_types[attributes[field]], at)
    yield from faults
    if not faults and (missing := _missing(model, {attributes[field]: item for field, item in value.items()})):
        yield f"{path}: {missing} is missing".lstrip(": ")


def _missing(model: Any, values: Mapping[str, Any]) -> str | None:
    """The required field that is not there: the model refuses to be made without it."""
    try:
        model(**values)
    except ValueError as error:
        name = re.search(r"`(\w+)`", str(error))
        return str(model.attribute_map[name[1]]) if name else str(error)
    return None


def _primitive(value: Any, type_name: str, path: str) -> Iterator[str]:
    if path.rpartition(".")[2] in QUANTITIES:
        yield from _quantity(value, path)
        return
    kind, described = PRIMITIVES[type_name]
    if not isinstance(value, kind):
        yield f"{path}: {value!r} is not {described}"


def _quantity(value: Any, path: str) -> Iterator[str]:
    from kubernetes.utils.quantity import parse_quantity  # type: ignore[import-untyped]

    try:
        parse_quantity(value if isinstance(value, str | int) and not isinstance(value, bool) else f"{value}")
    except ValueError:
        yield f"{path}: {value!r} is not a quantity such as 4, 500m or 8Gi"

"""Strict check of a Pod as users write it: unknown fields, wrong types and quantities, each with its path.

The schema is the Kubernetes client's models. The API server ignores a field that it does not know unless it is asked to
be strict: a misspelt toleration would be a pod that waits for ever.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Any

OF_QUANTITY = re.compile(r"\.(limits|requests)\.[^\[\]]+$|\.(sizeLimit|divisor)$")  # paths of resources and sizes
# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")
PRIMITIVES: dict[str, tuple[type, str]] = {
    "str": (str, "a text, in quotes"),
    "bool": (bool, "true or false"),
    "datetime": (str, "a time"),
    "int": (int, "a whole number"),
}
PARTS = re.compile(r"^(list|dict)\[(?:str, )?(.+)\]$")


def schema_faults(value: Any, type_name: str = "V1Pod", path: str = "") -> Iterator[str]:
    """One sentence for each fault: "spec.tolerations[0].efect: unknown field, did you mean effect?"."""
    if value is None:
        yield f"{path or 'the template'}: is empty, leave the field out"
    elif OF_QUANTITY.search(path):
        if not QUANTITY.fullmatch(str(value)):
            yield f"{path}: {value!r} is not a quantity such as 4, 500m or 8Gi"
    elif type_name in PRIMITIVES:
        wanted, described = PRIMITIVES[type_name]
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            yield f"{path}: {value!r} is not {described}"
    elif parts := PARTS.match(type_name):
        yield from _items(value, parts[1] == "list", parts[2], path)
    elif type_name != "object":
        yield from _fields(value, type_name, path)


def _items(value: Any, is_list: bool, inner: str, path: str) -> Iterator[str]:
    if not isinstance(value, list if is_list else dict):
        yield f"{path}: {value!r} is not a {'list' if is_list else 'mapping'}"
        return
    items: Iterable[tuple[Any, Any]] = enumerate(value) if isinstance(value, list) else value.items()
    for key, item in items:
        if is_list or isinstance(key, str):
            yield from schema_faults(item, inner, f"{path}[{key}]" if is_list else f"{path}.{key}")
        else:
            yield f"{path}: the key {key!r} is not a text: put it in quotes"


def _fields(value: Any, type_name: str, path: str) -> Iterator[str]:
    from kubernetes.client import models  # type: ignore[import-untyped]  # takes half a second to import

    if not isinstance(value, dict):
        yield f"{path or 'the template'}: {value!r} is not a mapping of fields"
        return
    model = getattr(models, type_name)
    attributes = {written: attribute for attribute, written in model.attribute_map.items()}
    faults: list[str] = []
    for field, item in value.items():
        at = f"{path}.{field}".lstrip(".")
        if field in attributes:
            faults += schema_faults(item, model.openapi_types[attributes[field]], at)
        else:
            close = difflib.get_close_matches(str(field), attributes, n=1)
            faults.append(f"{at}: unknown field" + (f", did you mean {close[0]}?" if close else ""))
    yield from faults
    if faults:
        return
    try:
        model(**{attributes[field]: item for field, item in value.items()})
    except ValueError as error:  # the model refuses to be made without a required field
        name = re.search(r"`(\w+)`", str(error))
        yield f"{path}: {model.attribute_map[name[1]] if name else error} is missing".lstrip(": ")

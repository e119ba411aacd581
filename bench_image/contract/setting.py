"""A setting: a field that the trigger form, the command line and the reports show, declared once."""

from __future__ import annotations

from typing import Any

from pydantic import Field


def setting(
    default: Any, section: str, title: str, text: str, *, form_name: str | None = None, **constraints: Any
) -> Any:
    """A field with its default, the form's section, title and help text, and its bounds as pydantic names them.

    `form_name`: its name in the form; by default the name of its part, such as `lora`, and its own.
    """
    extra: Any = {"section": section} | ({"form_name": form_name} if form_name else {})
    return Field(default, title=title, description=text, json_schema_extra=extra, **constraints)

"""The command `params`: what a suite can be told, with defaults and bounds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainbench.cli import base
from trainbench.params.campaign_kind import SUITES, Suite

if TYPE_CHECKING:
    from trainbench.core.tables import Table

app = base.App("Check and compare")
MANY = 1_000_000_000  # a bound that nobody reaches is not shown


@app.command()
def params(
    suite: Annotated[
        Suite,
        typer.Argument(help="The kind of campaign, named after its DAG."),
    ] = Suite.NODE_CONSISTENCY,
    cpu: Annotated[bool, typer.Option("--cpu", help="The smaller defaults of a trial with --device cpu.")] = False,
) -> None:
    """List the parameters of a suite, for --set NAME=VALUE: default, what is allowed, and meaning."""
    from trainbench.params.campaign_params import applies_to, form
    from trainbench.planning.planners import PLANNERS

    kind = SUITES[suite]
    fields = {
        name: field for name, field in form(PLANNERS[kind].starts_with(locally=cpu)).items() if applies_to(name, kind)
    }
    sections = dict.fromkeys(field["section"] for field in fields.values())
    base.answer({"suite": suite, "parameters": fields}, *(_table(section, fields) for section in sections))


def _table(section: str, fields: Mapping[str, Mapping[str, Any]]) -> Table:
    from trainbench.core.tables import make_table, text

    return make_table(
        [(name, field) for name, field in fields.items() if field["section"] == section],
        (
            text("parameter", lambda row: row[0]),
            text("default", lambda row: value_text(row[1]["default"]).replace("`", "")),
            text("allowed", lambda row: allowed(row[1])),
            text("meaning", lambda row: row[1]["description_md"].replace("`", "").replace("**", "")),
        ),
        title=section,
    )


def value_text(value: Any) -> str:
    """A default as `--set` takes it; long lists as "all"."""
    if value in (None, "", [], {}):
        return ""
    if isinstance(value, list):
        return "all" if len(value) > 5 else f"`{','.join(value_text(each).strip('`') for each in value)}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{json.dumps(value)}`".replace('"', "")


def allowed(field: Mapping[str, Any]) -> str:
    """The choices or the bounds of a field of the form; empty where only its meaning tells them."""
    choices = [
        str(choice) for choice in field.get("enum") or field.get("items", {}).get("enum", ()) if choice is not None
    ]
    if choices:
        return ", ".join(choices)
    least = f"{field['minimum']:,}" if "minimum" in field else "above 0" if "exclusiveMinimum" in field else None
    most = field.get("maximum", MANY)
    return f"{least} to {most:,.10g}" if least and most < MANY else ""

"""Renders a page with templates that escape every value, and headers that block foreign scripts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment
from markupsafe import Markup, escape

from trainbench.core import formats
from trainbench.core.states import word
from trainbench.pages.render import heat_cells, listings, strategies
from trainbench.pages.render.links import links
from trainbench.reporting.document import environment

HERE = Path(__file__).parent
_COMMAND = re.compile(r"`([^`]+)`")
STATIC = HERE / "static"
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "connect-src": "'self'",
    "frame-ancestors": "'self'",
    "base-uri": "'none'",
    "form-action": "'self'",
}
HEADERS = {"Cache-Control": "no-store", "Referrer-Policy": "same-origin", "X-Content-Type-Options": "nosniff"}


def respond(
    request: Request, template: str, query: Mapping[str, str] | None = None, status: int = 200, **values: Any
) -> HTMLResponse:
    """The page as a response. `query`: the filters, for links."""
    shown = {"links": links(request.scope, query), "now": datetime.now(UTC), "needs_login": False, **values}
    text = _environment().get_template(template).render(shown)
    return HTMLResponse(text, status, headers={**HEADERS, "Content-Security-Policy": policy_text(POLICY)})


def policy_text(policy: Mapping[str, str]) -> str:
    return "; ".join(f"{name} {value}" for name, value in policy.items())


def ago(at: datetime, now: datetime) -> str:
    """ "just now", "12 min ago", "6 h ago", "3 d ago"."""
    minutes = int((now - at).total_seconds() // 60)
    if minutes < 1:
        return "just now"
    if minutes < 60:
        return f"{minutes} min ago"
    return f"{minutes // 60} h ago" if minutes < 48 * 60 else f"{minutes // 1440} d ago"


def advice(text: str) -> Markup:
    """A next step as a sentence, its commands as code."""
    return Markup(_COMMAND.sub(r"<code>\1</code>", str(escape(formats.sentence(text)))))  # noqa: S704 - escaped


@cache
def _environment() -> Environment:
    made = environment(HERE / "templates", ends_with_newline=False)
    named = (
        *(heat_cells.rows_of, heat_cells.is_narrow, heat_cells.day_label, listings.likely_cause, listings.next_step),
        *(strategies.choices_table, strategies.strategies_table),
    )
    made.globals |= {each.__name__: each for each in named}
    made.filters |= {
        "advice": advice,
        "ago": ago,
        "count": formats.count,
        "day": formats.day,
        "figure": formats.figure,
        "percent": formats.percent,
        "sentence": formats.sentence,
        "share": formats.share,
        "tone": listings.tone_of,
        "usd": formats.usd,
        "word": word,
    }
    return made

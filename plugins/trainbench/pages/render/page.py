"""Renders a page with templates that escape every value, and headers that block foreign scripts."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment
from markupsafe import Markup

from trainbench.core import formats
from trainbench.core.states import word
from trainbench.pages.render import heat_cells, listings
from trainbench.pages.render.links import links
from trainbench.reporting.html import environment

HERE = Path(__file__).parent
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
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


@dataclass(frozen=True)
class Asset:
    """A file that browsers may cache, because its name changes with its content."""

    path: Path
    media_type: str


@cache
def assets() -> Mapping[str, Asset]:
    """Name in the address -> file; no other file is served."""
    return {_stamped(path): Asset(path, TYPES[path.suffix]) for path in sorted((HERE / "static").iterdir())}


def asset_name(file: str) -> str:
    """The name of an asset in addresses."""
    return _stamped(HERE / "static" / file)


def respond(
    request: Request,
    template: str,
    query: Mapping[str, str] | None = None,
    status: int = 200,
    *,
    needs_login: bool = False,
    **values: Any,
) -> HTMLResponse:
    """The page as a response. `query`: the filters, for links; `needs_login`: the page has its style inline,
    because assets need a login.
    """
    to = links(request.scope, query)
    page = _environment().get_template(template)
    nonce = secrets.token_urlsafe(16) if needs_login else None
    text = page.render(
        links=to,
        css=to.static(asset_name("pages.css")),
        script=to.static(asset_name("pages.js")),
        now=datetime.now(UTC),
        nonce=nonce,
        style=_style() if nonce else None,
        **values,
    )
    policy = {**POLICY, "style-src": f"'nonce-{nonce}'"} if nonce else POLICY
    return HTMLResponse(text, status, headers={**HEADERS, "Content-Security-Policy": policy_text(policy)})


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


@cache
def _style() -> Markup:
    return Markup((HERE / "static" / "pages.css").read_text())  # noqa: S704 - a file of ours


@cache
def _environment() -> Environment:
    made = environment(HERE / "templates", ends_with_newline=False)
    named = (heat_cells.rows_of, heat_cells.is_narrow, heat_cells.day_label, listings.next_step)
    made.globals |= {each.__name__: each for each in named}
    made.filters |= {
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


@cache
def _stamped(path: Path) -> str:
    if path.suffix == ".svg":
        return path.name  # the plugin names it
    stamp = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    return f"{path.stem}-{stamp}{path.suffix}"

"""Tables and text as GitHub-flavoured Markdown. `escape` makes text from outside safe."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping

from trainbench.core.formats import one_line
from trainbench.core.tables import Row, Table, shortened

# & first: the entities that follow must stay whole.
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
# An underscore between letters marks nothing; a dash or a number marks a list only where the text begins.
_SPECIAL = re.compile(r"[\\`*\[\]|~#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[-+](?=\s)")
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s)")
# A renderer turns a bare address into a link; without the colon's neighbours it is only text.
_AUTOLINK = re.compile(r"(?i)\b(https?|ftp|mailto|www)([:.])")


def escape(text: str) -> str:
    """`text` as one line of inline Markdown that shows exactly these characters: no markup, HTML or link."""
    flat = one_line(text, most=1000)
    entities = re.sub(r"[&<>]", lambda match: _ENTITIES[match[0]], flat)
    marked = _NUMBERED.sub(r"\1\\\2", _SPECIAL.sub(r"\\\g<0>", entities))
    return _AUTOLINK.sub(r"\1&#8203;\2", marked)


def table(content: Table, links: Mapping[str, str] | None = None) -> str:
    """The table as Markdown, long ones cut. `links`: run id -> address of its result, for the first cell."""
    content = shortened(content)
    head = "| " + " | ".join(map(escape, content.names)) + " |"
    rule = "|" + "|".join("---:" if column.is_number else "---" for column in content.columns) + "|"
    body = [_row(row, links or {}) for row in content.rows]
    notes = [f"\n{escape(note)}" for note in content.notes]
    return "\n".join([head, rule, *body, *notes]) + "\n"


def section(content: Table, links: Mapping[str, str] | None = None, level: int = 2) -> str:
    """The table under its title as a heading."""
    return f"{'#' * level} {escape(content.title)}\n\n{table(content, links)}"


def folded(content: Table, links: Mapping[str, str] | None = None) -> str:
    """The table closed under its title, which a click opens; where HTML is not shown, open."""
    title = html.escape(one_line(content.title))  # Markdown's own escapes have no effect inside HTML
    return f"<details><summary>{title}</summary>\n\n{table(content, links)}\n</details>\n"


def bullets(lines: Iterable[str]) -> str:
    """Each line escaped, as a list."""
    return "".join(f"- {escape(line)}\n" for line in lines)


def _row(row: Row, links: Mapping[str, str]) -> str:
    cells = [f"[{escape(cell.text)}]({cell.href})" if cell.href else escape(cell.text) for cell in row.cells]
    address = links.get(row.run_id or "")
    if address:
        cells[0] = f"[{cells[0]}]({address})"
    return "| " + " | ".join(cells) + " |"

"""An HTML page of ours, parsed: its outline, links, tags and what it would load."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser

VOID = {"meta", "img", "br", "link", "hr"}
HEADINGS = {"h1": "#", "h2": "##", "h3": "###"}
COUNTED = {"p", "li", "dt", "figcaption"}
Attributes = list[tuple[str, str | None]]


class Page(HTMLParser):
    """Raises AssertionError where tags do not close in order or an attribute would run a script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.tags: set[str] = set()
        self._lines: list[str] = []
        self._open: list[str] = []
        self._counted: Counter[str] = Counter()  # paragraphs and chart rows since the last line
        self._text = self._columns = ""
        self._tones: Counter[str] = Counter()
        self.feed(text)
        assert self._open == []
        self._end_count()

    @property
    def outline(self) -> str:
        """A line for each heading, table (columns, rows by tone), chart, and group of paragraphs or chart rows."""
        return "\n".join(self._lines) + "\n"

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        if tag not in VOID:
            self._open.append(tag)
        self.handle_startendtag(tag, attrs)
        values = dict(attrs)
        kind = values.get("class") or ""
        if tag not in ("br", "a", "span", "strong"):
            self._text = ""
        if tag == "table":
            self._columns, self._tones = "", Counter()
        elif tag == "tr" and self._columns:
            self._tones[kind] += 1
        elif tag in ("header", "article"):
            self._line(f"{tag}: {kind}")
        elif tag == "figure":
            self._line(f"chart: {values.get('aria-label') or 'picture'}")

    def handle_startendtag(self, tag: str, attrs: Attributes) -> None:
        self.tags.add(tag)
        values = dict(attrs)
        assert not any(name.startswith("on") for name in values)
        self.links += [values["href"] or ""] if "href" in values else []
        self.loads += [values["src"] or ""] if "src" in values else []
        kind = (values.get("class") or "").split(" ")[0]
        if tag in ("div", "rect", "circle", "path", "line") and kind not in ("", "scroll", "stroke", "hatch", "grid"):
            self._counted[kind] += 1

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        text = self._text.strip()
        if tag in HEADINGS:
            self._line(f"{HEADINGS[tag]} {text}")
        elif tag == "th" and "thead" in self._open:
            self._columns += f" | {text}" if self._columns else text
        elif tag == "table":
            tones = ", ".join(f"{number} {tone}" for tone, number in self._tones.items())
            self._line(f"table: {self._columns} ({tones})")
        elif tag == "summary":
            self._line(f"details: {text}")
        elif tag in COUNTED:
            self._counted[tag] += 1

    def _line(self, line: str) -> None:
        self._end_count()
        self._lines.append(line)

    def _end_count(self) -> None:
        if self._counted:
            self._lines.append(", ".join(f"{number} {kind}" for kind, number in self._counted.items()))
            self._counted.clear()

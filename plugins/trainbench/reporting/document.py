"""A document: sections of tables, lists, pictures and cards; as Markdown, and as one HTML file without the network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from trainbench.core.formats import visible
from trainbench.core.markdown import bullets, escape, folded, section, table
from trainbench.core.tables import Table, shortened


class Text(NamedTuple):
    text: str


class Lines(NamedTuple):
    items: Sequence[str]


class Closed(NamedTuple):
    """A table that a click on its title opens."""

    table: Table


class Picture(NamedTuple):
    """`label`: what those who cannot see it are told."""

    name: str
    label: str


class Card(NamedTuple):
    """`facts`: name and sentence."""

    level: str
    title: str
    facts: Sequence[tuple[str, str]]


Part = Table | Text | Lines | Closed | Picture | Card


@dataclass(frozen=True, slots=True)
class Section:
    """A section. Other pages link to its `anchor`. A table stands under its own title where that is another one.
    `name`: in the page's navigation, where it is not the title.
    """

    title: str
    parts: Sequence[Part]
    anchor: str = ""
    name: str = ""

    @property
    def tables(self) -> tuple[Table, ...]:
        return tuple(part for part in self.parts if isinstance(part, Table))


def markdown(sections: Iterable[Section], links: Mapping[str, str]) -> Iterator[str]:
    """The document in pieces, to be separated by empty lines. `links`: run id -> address of its result."""
    for each in sections:
        yield f"## {escape(each.title)}"
        for part in each.parts:
            match part:
                case Table(title=title):
                    written = table(part, links) if title == each.title else section(part, links, 3)
                case Text(text):
                    written = escape(text)
                case Lines(items):
                    written = bullets(items)
                case Closed(closed):
                    written = folded(closed, links)
                case Picture(name):
                    written = f"![{name}](plots/{name}.png)"
                case Card(level, title, facts):
                    told = "".join(f"- **{name}:** {escape(text)}\n" for name, text in facts)
                    written = f"### {escape(f'{level}: {title}')}\n\n{told}"
            if written := written.rstrip("\n"):
                yield written


def document_html(title: str, headline: str, sections: Sequence[Section], *, word: str, **more: Any) -> str:
    """A document as HTML. `word` stands above the headline. Of `more`, each of which may be left out: `tone` and
    `drill`, a sentence, of a report; `more`, sentences below the headline; `about` and `facts`, small; `pictures`: name
    -> SVG; `links`: run id -> address of its result; `script`: address of the pages' script, for a page in Airflow.
    """
    empty: dict[str, Any] = dict.fromkeys(("tone", "drill", "about", "script")) | dict.fromkeys(("more", "facts"), ())
    known = {"title": title, "headline": headline, "sections": sections, "word": word, "pictures": {}, "links": {}}
    return environment().get_template("document.html.j2").render(empty | known | more)


def environment(*folders: Path, ends_with_newline: bool = True) -> Environment:
    """The environment of our templates and those of more folders, which escapes every value. `ends_with_newline`: what
    they render.
    """
    made = Environment(
        loader=FileSystemLoader([*folders, Path(__file__).parent / "templates"]),
        autoescape=True,
        finalize=shown_value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=ends_with_newline,
    )
    made.filters |= {"shortened": shortened, "kind": lambda part: type(part).__name__}
    return made


def shown_value(value: object) -> object:
    """The text of a template's value, before it is escaped."""
    return visible(value) if type(value) is str else value  # not Markup, which a macro of ours has made

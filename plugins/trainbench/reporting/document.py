"""A document: sections of tables, lists, pictures and cards. Written as Markdown here, as HTML by `parts.html.j2`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trainbench.core.markdown import bullets, escape, folded, section, table
from trainbench.core.tables import Table


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
            if written := _written(part, each, links).rstrip("\n"):
                yield written


def _written(part: Part, within: Section, links: Mapping[str, str]) -> str:
    match part:
        case Table(title=title):
            return table(part, links) if title == within.title else section(part, links, 3)
        case Text(text):
            return escape(text)
        case Lines(items):
            return bullets(items)
        case Closed(closed):
            return folded(closed, links)
        case Picture(name):
            return f"![{name}](plots/{name}.png)"
        case Card(level, title, facts):
            told = "".join(f"- **{name}:** {escape(text)}\n" for name, text in facts)
            return f"### {escape(f'{level}: {title}')}\n\n{told}"

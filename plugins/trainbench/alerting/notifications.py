"""What is said of a breach or a warning when it opens and when it is over: pure, the same words on every channel.

Texts come from results and may be anything. They are escaped for each channel, and no template is made of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from pydantic import AwareDatetime

from bench_image.contract.frozen import Frozen
from trainbench.alerting.links import absolute, benchmarks_page, breach_page, prefix_of, report_tab
from trainbench.core.formats import listing, one_line, sentence
from trainbench.core.verdicts import Level
from trainbench.reporting.html import environment

MAX_TOLD = 20  # in one message; of the others only how many they are


class Kind(StrEnum):
    BREACH = "breach"
    WARNING = "warning"


class Event(StrEnum):
    OPENED = "opened"
    CLOSED = "closed"


class Notice(Frozen):
    """What one channel is to be told of one node: a breach or a warning."""

    kind: Kind
    about_id: int
    event: Event
    node: str
    what: str  # that the node's name stands before
    reason: str | None
    cause: str | None
    resolution: str | None
    work: str | None
    is_drill: bool
    opened_at: AwareDatetime
    closed_at: AwareDatetime | None
    dag_id: str
    dag_run_id: str | None  # that opened it
    ended: str | None  # how, in words; None while it is open
    subject: str | None = None  # of a warning that is about several nodes: all of them, as far as they are named
    also: tuple[Notice, ...] = ()  # what else began or ended for this node: said with it, not beside it

    @property
    def all(self) -> tuple[Notice, ...]:
        return (self, *self.also)

    @property
    def level(self) -> Level:
        return Level.ERROR if self.kind is Kind.BREACH else Level.WARNING

    @property
    def id(self) -> str:
        """The same for the same notice, whenever it is sent."""
        return f"{self.kind}-{self.about_id}-{self.event}"


class Message(Frozen):
    """`payload`: the JSON of a webhook; `message_id`: mail programs show a second one with the same id once."""

    subject: str
    text: str
    slack: str
    html: str
    payload: dict[str, Any]
    message_id: str


def message(notices: Sequence[Notice], base_url: str | None) -> Message:
    """`notices`: at least one, all of one DAG and one event. `base_url`: Airflow's own address, else there are no
    links.
    """
    entries = _entries(notices)
    told, left_off = entries[:MAX_TOLD], max(0, len(entries) - MAX_TOLD)
    subject = _subject(notices, entries)
    links = [_links(same[0], base_url) for same in told]
    more = f"and {left_off} more: see the Benchmarks page" if left_off else None
    lines = [_lines(same) for same in told]
    page = absolute(base_url, benchmarks_page(prefix_of(base_url)))
    return Message(
        subject=subject,
        text=_text(subject, lines, links, more),
        slack=_slack(subject, lines, links, more),
        html=environment()
        .get_template("notice.html.j2")
        .render(subject=subject, told=list(zip(lines, links, strict=True)), more=more, page=page),
        payload={
            "source": "trainbench",
            "event": notices[0].event.value,
            "dag_id": notices[0].dag_id,
            "subject": subject,
            "page": page,
            "notices": [
                {**_payload(same[0]), "nodes": [notice.node for notice in same], "links": dict(link)}
                for same, link in zip(told, links, strict=True)
            ],
            "left_off": left_off,
        },
        message_id=f"<{notices[0].id}-{notices[0].opened_at:%Y%m%d%H%M%S}-{len(notices)}@trainbench>",
    )


def _entries(notices: Sequence[Notice]) -> list[Sequence[Notice]]:
    """What one finding says of several nodes is one entry."""
    together: dict[tuple[object, ...], list[Notice]] = {}
    for place, notice in enumerate(notices):
        key = (notice.subject, notice.what, notice.ended, notice.opened_at) if notice.subject else (place,)
        together.setdefault(key, []).append(notice)
    return list(together.values())


def _payload(notice: Notice) -> dict[str, Any]:
    """Of many nodes that share it, and of what else is said of the node, the ids are kept in the history."""
    also = [{"id": other.id, "level": other.level.value, "what": other.what} for other in notice.also]
    own = notice.model_dump(mode="json", exclude={"also"})
    return {**own, "id": notice.id, "level": notice.level.value, "also": also}


def _names(same: Sequence[Notice]) -> str:
    return listing([notice.node for notice in same], most=5)


def _what(same: Sequence[Notice]) -> str:
    """Goes on from the names; where others are not to be told of any more, the sentence names them all."""
    first = same[0]
    return f"{first.subject} {first.what}" if first.subject and len(same) == 1 else first.what


def _subject(notices: Sequence[Notice], entries: Sequence[Sequence[Notice]]) -> str:
    drill = "DRILL: " if all(notice.is_drill for notice in notices) else ""
    first = notices[0]
    if first.event is Event.CLOSED:
        nodes: dict[str | None, dict[str, None]] = {}
        for notice in notices:
            nodes.setdefault(notice.ended, {})[notice.node] = None
        what = "; ".join(f"{listing(of_end, most=3)}: {ended}" for ended, of_end in nodes.items())
    elif len(entries) == 1:
        what = f"{_names(entries[0])}: {_what(entries[0])}"
    else:
        what = f"{len(notices)} to look at: {listing((f'{_names(s)} ({_what(s)})' for s in entries), most=3)}"
    return one_line(f"[trainbench] {drill}{what} ({first.dag_id})", most=180)


def _lines(same: Sequence[Notice]) -> tuple[str, ...]:
    """The first names the node; the others explain."""
    notice = same[0]
    drill = "DRILL: " if notice.is_drill else ""
    if notice.event is Event.CLOSED:
        ended = f"{notice.closed_at:%d %b %Y %H:%M} UTC" if notice.closed_at else "now"
        return (f"{drill}{_names(same)}: {notice.ended} since {ended}", *(_was(each) for each in notice.all))
    lines = [
        f"{drill}{_names(same)}: {_what(same)}",
        f"Since {notice.opened_at:%d %b %Y %H:%M} UTC" + (f", {notice.work}." if notice.work else "."),
        sentence(notice.reason) if notice.reason else "",
        f"Likely cause: {sentence(notice.cause)}" if notice.cause else "",
        f"Next: {sentence(notice.resolution)}" if notice.resolution else "",
        *(f"Also: {sentence(f'{each.node} {_what((other,))}')}" for each in same for other in each.also),
    ]
    return tuple(one_line(line, most=500) for line in lines if line)


def _was(notice: Notice) -> str:
    subject = f"{notice.subject} " if notice.subject else ""
    told = sentence(f"{subject}{notice.what}")
    return one_line(f"It was: {told} Open since {notice.opened_at:%d %b %Y %H:%M} UTC.", most=500)


def _links(notice: Notice, base_url: str | None) -> tuple[tuple[str, str], ...]:
    of_breach = breach_page(notice.about_id, prefix_of(base_url)) if notice.kind is Kind.BREACH else None
    found = [
        ("report", absolute(base_url, report_tab(notice.dag_id, notice.dag_run_id)) if notice.dag_run_id else None),
        ("breach", absolute(base_url, of_breach) if of_breach else None),
    ]
    return tuple((name, address) for name, address in found if address)


def _text(subject: str, told: Sequence[Sequence[str]], links: Sequence[Sequence[tuple[str, str]]], more: Any) -> str:
    parts = [
        "\n".join([*lines, *(f"{name}: {address}" for name, address in link)])
        for lines, link in zip(told, links, strict=True)
    ]
    return "\n\n".join([subject, *parts, *([more] if more else [])]) + "\n"


def _slack(subject: str, told: Sequence[Sequence[str]], links: Sequence[Sequence[tuple[str, str]]], more: Any) -> str:
    """Slack's own markup: only these three characters must be escaped, and no mention can be made without them."""

    def safe(text: str) -> str:
        return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

    parts = [
        "\n".join([*map(safe, lines), *(f"<{address}|{name}>" for name, address in link)])
        for lines, link in zip(told, links, strict=True)
    ]
    return "\n\n".join([safe(subject), *parts, *([safe(more)] if more else [])])

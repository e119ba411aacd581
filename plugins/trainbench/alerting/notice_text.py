"""The message about breaches and warnings that opened or ended, the same text on every channel.

Texts come from results and are not trusted: they are escaped for each channel and never used as templates.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import StrEnum
from typing import Any

from bench_image.contract.frozen import Frozen
from trainbench.alerting.breach_text import breach_phrase
from trainbench.alerting.links import absolute_url, benchmarks_page, breach_page, prefix_of, report_tab
from trainbench.core.formats import listing, one_line, sentence
from trainbench.history.breach import Breach, BreachKind
from trainbench.reporting.html import environment

MAX_NAMED = 20  # entries in one message; the others are only counted


class Event(StrEnum):
    OPENED = "opened"
    CLOSED = "closed"


Notice = tuple[Breach, ...]  # of one node and event, the worst first


def event_of(breach: Breach) -> Event:
    """The event of a breach: opened or ended. A drill ends with its run, so only its detection is sent."""
    return Event.OPENED if breach.closed_at is None or breach.is_drill else Event.CLOSED


class Message(Frozen):
    """`payload`: the JSON of a webhook; `message_id`: mail programs show a second one with the same id once."""

    subject: str
    text: str
    slack: str
    html: str
    payload: dict[str, Any]
    message_id: str


def message(notices: Sequence[Notice], base_url: str | None) -> Message:
    """The message of `notices`: at least one, all of one DAG and one event. `base_url`: Airflow's own address; None:
    the message has no links.
    """
    first = notices[0][0]
    entries = _entries(notices)
    named, left_off = entries[:MAX_NAMED], max(0, len(entries) - MAX_NAMED)
    subject = _subject(notices, entries)
    links = [_links(same[0][0], base_url) for same in named]
    more = f"and {left_off} more: see the Benchmarks page" if left_off else None
    lines = [_lines(same) for same in named]
    page = absolute_url(base_url, benchmarks_page(prefix_of(base_url)))
    return Message(
        subject=subject,
        text=_text(subject, lines, links, more),
        slack=_slack(subject, lines, links, more),
        html=environment()
        .get_template("notice.html.j2")
        .render(subject=subject, entries=list(zip(lines, links, strict=True)), more=more, page=page),
        payload={
            "source": "trainbench",
            "event": event_of(first).value,
            "dag_id": first.dag_id,
            "subject": subject,
            "page": page,
            "notices": [{**_payload(same), "links": dict(link)} for same, link in zip(named, links, strict=True)],
            "left_off": left_off,
        },
        message_id=f"<{_id(first)}-{first.opened_at:%Y%m%d%H%M%S}-{len(notices)}@trainbench>",
    )


def _id(breach: Breach) -> str:
    """An id that depends on the event alone, so that a repeated message has the same one."""
    return f"{breach.kind}-{breach.id}-{event_of(breach)}"


def _entries(notices: Sequence[Notice]) -> list[Sequence[Notice]]:
    """Notices grouped into entries: those of one finding on several nodes are one entry."""
    together: dict[Hashable, list[Notice]] = {}
    for place, notice in enumerate(notices):
        first = notice[0]
        is_shared = len(first.finding.nodes) > 1
        key = (first.finding.nodes, first.finding.summary, first.ended, first.opened_at) if is_shared else place
        together.setdefault(key, []).append(notice)
    return list(together.values())


def _payload(same: Sequence[Notice]) -> dict[str, Any]:
    """The JSON of one entry: its first breach, the names of all nodes, and the node's other open breaches by id."""
    first, *others = same[0]
    also = [{"id": _id(other), "level": other.level.value, "what": breach_phrase(other)} for other in others]
    own = first.model_dump(mode="json", exclude={"acknowledgement", "closed_by_campaign_id"})
    event = {"id": _id(first), "event": event_of(first).value, "level": first.level.value, "what": breach_phrase(first)}
    return {**own, **event, "nodes": [notice[0].node for notice in same], "also": also}


def _names(same: Sequence[Notice]) -> str:
    return listing([notice[0].name for notice in same], most=5)


def _what(breach: Breach, num_named: int = 1) -> str:
    """The phrase after the node's name. It names all nodes of the finding where only one of them precedes it."""
    is_shared = num_named == 1 and len(breach.finding.nodes) > 1
    return f"{breach.finding.subject} {breach_phrase(breach)}" if is_shared else breach_phrase(breach)


def _subject(notices: Sequence[Notice], entries: Sequence[Sequence[Notice]]) -> str:
    drills = [entry for entry in entries if entry[0][0].is_drill]
    others = [entry for entry in entries if entry not in drills]
    parts = (f"DRILL: {_what_of(drills)}" if drills else "", _what_of(others) if others else "")
    first = notices[0][0]
    return one_line(f"[trainbench] {'; besides, '.join(filter(None, parts))} ({first.dag_id})", most=180)


def _what_of(entries: Sequence[Sequence[Notice]]) -> str:
    """ "node-3: samples/s -9.7 % against its peers", "3 to look at: ...", "node-3: well again"."""
    firsts = [notice[0] for entry in entries for notice in entry]
    if event_of(firsts[0]) is Event.CLOSED:
        nodes: dict[str | None, dict[str, None]] = {}
        for breach in firsts:
            nodes.setdefault(breach.ended, {})[breach.name] = None
        return "; ".join(f"{listing(of_end, most=3)}: {ended}" for ended, of_end in nodes.items())
    if len(entries) == 1:
        return f"{_names(entries[0])}: {_what(entries[0][0][0], len(entries[0]))}"
    each = (f"{_names(same)} ({_what(same[0][0], len(same))})" for same in entries)
    return f"{len(firsts)} to look at: {listing(each, most=3)}"


def _lines(same: Sequence[Notice]) -> tuple[str, ...]:
    """Lines of one entry: the first names the node, the others explain."""
    breach, *_ = same[0]
    drill = "DRILL: " if breach.is_drill else ""
    if event_of(breach) is Event.CLOSED:
        ended = f"{breach.closed_at:%d %b %Y %H:%M} UTC" if breach.closed_at else "now"
        return (f"{drill}{_names(same)}: {breach.ended} since {ended}", *map(_before, same[0]))
    work = ", ".join(filter(None, (breach.model, breach.recipe, breach.strategy, breach.gpu_name)))
    since = f"Since {breach.opened_at:%d %b %Y %H:%M} UTC"
    others = [(notice[0].name, other) for notice in same for other in notice[1:]]
    lines = [
        f"{drill}{_names(same)}: {_what(breach, len(same))}",
        f"{since}, {work}." if work else f"{since}.",
        sentence(breach.reason) if breach.reason else "",
        f"Likely cause: {sentence(breach.finding.cause)}" if breach.finding.cause else "",
        f"Next: {sentence(breach.finding.resolution)}",
        *(f"Also: {sentence(f'{node} {_what(other)}')}" for node, other in others),
    ]
    return tuple(one_line(line, most=500) for line in lines if line)


def _before(breach: Breach) -> str:
    opened = f"Open since {breach.opened_at:%d %b %Y %H:%M} UTC."
    return one_line(f"It was: {sentence(_what(breach))} {opened}", most=500)


def _links(breach: Breach, base_url: str | None) -> tuple[tuple[str, str], ...]:
    page = breach_page(breach.id, prefix_of(base_url)) if breach.kind is BreachKind.BREACH else None
    report = report_tab(breach.dag_id, breach.dag_run_id) if breach.dag_run_id else None
    links = [
        ("report", absolute_url(base_url, report) if report else None),
        ("breach", absolute_url(base_url, page) if page else None),
    ]
    return tuple((name, address) for name, address in links if address)


def _text(subject: str, entries: Sequence[Sequence[str]], links: Sequence[Sequence[tuple[str, str]]], more: Any) -> str:
    parts = [
        "\n".join([*lines, *(f"{name}: {address}" for name, address in link)])
        for lines, link in zip(entries, links, strict=True)
    ]
    return "\n\n".join([subject, *parts, *([more] if more else [])]) + "\n"


def _slack(
    subject: str, entries: Sequence[Sequence[str]], links: Sequence[Sequence[tuple[str, str]]], more: Any
) -> str:
    """Text escaped for Slack: its markup, mentions included, needs one of these three characters."""

    def safe(text: str) -> str:
        return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

    parts = [
        "\n".join([*map(safe, lines), *(f"<{address}|{name}>" for name, address in link)])
        for lines, link in zip(entries, links, strict=True)
    ]
    return "\n\n".join([safe(subject), *parts, *([safe(more)] if more else [])])

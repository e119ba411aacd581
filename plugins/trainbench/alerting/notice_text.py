"""The message about notices that opened, turned red or ended, the same text on every channel.

Texts come from results and are not trusted: they are escaped for each channel and never used as templates.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from bench_image.contract.frozen import Frozen
from trainbench.alerting.links import absolute_url, benchmarks_page, notice_page, prefix_of, report_tab
from trainbench.core.formats import listing, one_line, sentence
from trainbench.core.grouping import grouped
from trainbench.core.verdicts import Why
from trainbench.history.notices import Notice
from trainbench.reporting.document import environment

MAX_NAMED = 20  # entries in one message; the others are only counted


class Event(StrEnum):
    OPENED = "opened"
    WORSENED = "worsened"  # a look that turned red
    CLOSED = "closed"


Entry = list[Notice]  # notices of one finding, on one or several nodes
Links = dict[str, str]  # name -> address


class Message(Frozen):
    """`payload`: the JSON of a webhook; `message_id`: mail programs show a second one with the same id once."""

    subject: str
    text: str
    slack: str
    html: str
    payload: dict[str, Any]
    message_id: str


def message(notices: Sequence[Notice], event: Event, base_url: str | None) -> Message:
    """The message of `notices`: at least one, all of one DAG and one event. `base_url`: Airflow's own address; None:
    the message has no links.
    """
    first, told_of = notices[0], entries(notices)
    left_off = max(0, len(told_of) - MAX_NAMED)
    subject = one_line(f"[trainbench] {_subject(told_of, event)} ({first.dag_id})", most=180)
    named = [(_lines(entry, event), _links(entry[0], base_url)) for entry in told_of[:MAX_NAMED]]
    more = f"and {left_off} more: see the Benchmarks page" if left_off else None
    page = absolute_url(base_url, benchmarks_page(prefix_of(base_url)))
    told = [_payload(entry, event) | {"links": links} for entry, (_, links) in zip(told_of, named, strict=False)]
    html = environment().get_template("notice.html.j2")
    return Message(
        subject=subject,
        text=_plain(subject, named, more, link="{name}: {address}") + "\n",
        slack=_plain(subject, named, more, link="<{address}|{name}>", safe=_safe_in_slack),
        html=html.render(
            subject=subject, entries=[(lines, links.items()) for lines, links in named], more=more, page=page
        ),
        payload={
            "source": "trainbench",
            "event": event.value,
            "dag_id": first.dag_id,
            "subject": subject,
            "page": page,
            "notices": told,
            "left_off": left_off,
        },
        message_id=f"<notice-{first.id}-{event}-{first.opened_at:%Y%m%d%H%M%S}-{len(notices)}@trainbench>",
    )


def _plain(
    subject: str,
    named: Sequence[tuple[Sequence[str], Links]],
    more: str | None,
    link: str,
    safe: Callable[[str], str] = str,
) -> str:
    blocks = [safe(subject)]
    for lines, links in named:
        shown = (link.format(name=name, address=address) for name, address in links.items())
        blocks.append("\n".join([*map(safe, lines), *shown]))
    return "\n\n".join([*blocks, safe(more)] if more else blocks)


def _safe_in_slack(text: str) -> str:
    """Slack's markup, mentions included, needs one of these three characters."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def entries(notices: Sequence[Notice]) -> list[Entry]:
    """Notices of one finding on several nodes are one entry, and so is a change of the fleet."""

    def key(place: int, notice: Notice) -> Hashable:
        if notice.why is Why.CHANGED:
            return notice.why, notice.campaign_id, notice.ended
        shared = notice.finding.nodes, notice.finding.summary, notice.ended, notice.opened_at
        return shared if len(notice.finding.nodes) > 1 else place

    return list(grouped((key(place, notice), notice) for place, notice in enumerate(notices)).values())


def _payload(entry: Entry, event: Event) -> dict[str, Any]:
    """The JSON of one entry: its first notice and the names of all nodes. The id is the same in a repeated message."""
    first = entry[0]
    own = first.model_dump(mode="json", exclude={"acknowledgement", "closed_by_campaign_id"})
    said = {"event": event.value, "level": first.level.value, "word": first.word, "what": what(first)}
    return {**own, **said, "id": f"notice-{first.id}-{event}", "nodes": [notice.node for notice in entry]}


def what(notice: Notice) -> str:
    """ "node-3 is slow: samples/s -9.7 % against its peers". A finding on several nodes names them all."""
    drill = "DRILL: " if notice.is_drill else ""
    if notice.finding.item or len(notice.finding.nodes) > 1 or notice.why is None:
        return drill + notice.finding.headline.removeprefix("DRILL: ")
    return f"{drill}{notice.node} {notice.phrase}"


def _what(entry: Entry) -> str:
    """As `what`, of the nodes of a message: those that share the finding."""
    return what(entry[0]) if len(entry) == 1 else f"{_names(entry)} {entry[0].finding.summary}"


def _names(entry: Entry) -> str:
    return listing([notice.name for notice in entry], most=5)


def _subject(told_of: Sequence[Entry], event: Event) -> str:
    """ "node-3 is slow: samples/s -9.7 % ...", "3 to look at: ...", "node-3: well again"."""
    notices = [notice for entry in told_of for notice in entry]
    if event is Event.CLOSED:
        ends = grouped((notice.ended, notice.name) for notice in notices)
        return "; ".join(f"{listing(names, most=3)}: {ended}" for ended, names in ends.items())
    turned = "now red: " if event is Event.WORSENED else ""
    if len(told_of) == 1:
        return turned + _what(told_of[0])
    return f"{turned}{len(notices)} to look at: {listing(map(_what, told_of), most=3)}"


def _lines(entry: Entry, event: Event) -> tuple[str, ...]:
    """Lines of one entry: the first names the node, the others explain."""
    first, finding, head = entry[0], entry[0].finding, _what(entry)
    if event is Event.CLOSED:
        ended = _time(first.closed_at) if first.closed_at else "now"
        was = f"It was: {sentence(head)} Open since {_time(first.opened_at)}."
        return f"{_names(entry)}: {first.ended} ({ended})", one_line(was, most=500)
    work = filter(None, (first.model, first.recipe, first.strategy, first.gpu_name))
    since = f"Since {', '.join([_time(first.opened_at), *work])}."
    if event is Event.WORSENED and first.worsened_at:
        since += f" Red since {_time(first.worsened_at)}."
    lines = [
        head,
        since,
        sentence(first.reason) if first.reason and first.reason not in head else "",
        f"Likely cause: {sentence(finding.cause)}" if finding.cause else "",
        f"Next: {sentence(finding.resolution)}",
    ]
    return tuple(one_line(line, most=500) for line in lines if line)


def _time(at: datetime) -> str:
    return f"{at:%d %b %Y %H:%M} UTC"


def _links(notice: Notice, base_url: str | None) -> Links:
    links = {
        "report": absolute_url(base_url, report_tab(notice.dag_id, notice.dag_run_id)) if notice.dag_run_id else None,
        "notice": absolute_url(base_url, notice_page(notice.id, prefix_of(base_url))),
    }
    return {name: address for name, address in links.items() if address}

"""A document as one HTML file, without scripts and without requests to the network; and the report as such a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from trainbench.core.formats import visible
from trainbench.core.tables import LOG_LINK, RESULT_LINK, Tone, shortened
from trainbench.reporting import verdict_text
from trainbench.reporting.document import Section
from trainbench.reporting.pictures import svg
from trainbench.reporting.report import facts_of, report_sections
from trainbench.results.campaign import Campaign

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORDS = {Tone.GOOD: "All well", Tone.WARN: "Look closer", Tone.BAD: "Action needed"}


class InAirflow(NamedTuple):
    """The report as a page inside Airflow: the address of the pages' script, of a run's result by `{run_id}`, and of
    its kept log by `{run_id}` and `{name}`.
    """

    script: str
    result_link: str
    log_link: str


def report_html(
    campaign: Campaign,
    pictures: Mapping[str, Figure],
    compared: Sequence[Section] | None = None,
    page: InAirflow | None = None,
) -> str:
    """The report as HTML. `pictures`: those of `plots.draw`. `compared`: the result of `comparison_sections` where the
    caller has it. `page`: None for the file in the store.
    """
    badge = verdict_text.drill_badge(campaign)
    tone = Tone.PLAIN if badge else verdict_text.tone(campaign)  # a detected drill is no alarm
    word = badge or WORDS[tone]
    result_link = page.result_link if page else RESULT_LINK
    run_ids = [result.spec.identity.run_id for result in campaign.results]
    return document_html(
        f"{word}: {campaign.title}",
        verdict_text.verdict(campaign, is_brief=True),
        tuple(report_sections(campaign, pictures, compared, page.log_link if page else LOG_LINK)),
        word=word,
        tone=tone,
        drill=verdict_text.drill_sentence(campaign),
        more=verdict_text.next_lines(campaign),
        about=campaign.title,
        facts=facts_of(campaign),
        pictures={name: svg(figure) for name, figure in pictures.items()},
        links={run_id: result_link.format(run_id=run_id) for run_id in run_ids},
        script=page.script if page else None,
    )


def document_html(title: str, headline: str, sections: Sequence[Section], *, word: str, **more: Any) -> str:
    """A document as HTML. `word` stands above the headline. Of `more`, each of which may be left out: `tone` and
    `drill`, a sentence, of a report; `more`, sentences below the headline; `about` and `facts`, small; `pictures`: name
    -> SVG; `links`: run id -> address of its result; `script`: address of the pages' script, for a page in Airflow.
    """
    empty = dict.fromkeys(("tone", "drill", "about", "script")) | dict.fromkeys(
        ("more", "facts", "pictures", "links"), ()
    )
    template = environment().get_template("document.html.j2")
    return template.render(empty | {"title": title, "headline": headline, "sections": sections, "word": word} | more)


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

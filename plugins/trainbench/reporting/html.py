"""report.html: the whole report as one file without scripts and without requests to the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from trainbench.core.formats import count, duration, moment, sentence, visible
from trainbench.core.tables import LOG_LINK, RESULT_LINK, Tone, shortened
from trainbench.core.verdicts import GroupVerdict
from trainbench.reporting import cost_report, glossary, plots, run_tables, verdict_text
from trainbench.reporting.comparison_sections import Section, comparison_sections
from trainbench.reporting.pictures import svg
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
    sections: Sequence[Section] | None = None,
    page: InAirflow | None = None,
) -> str:
    """The report as HTML. `pictures`: those of `plots.draw`. `sections`: the result of `comparison_sections` where the
    caller has it. `page`: None for the file in the store.
    """
    template = environment().get_template("report.html.j2")
    tone = verdict_text.tone(campaign)
    return template.render(
        campaign=campaign,
        tone=tone,
        word=verdict_text.drill_badge(campaign) or WORDS[tone],
        verdict=verdict_text.verdict(campaign),
        more=verdict_text.recommended(campaign),
        drill=verdict_text.drill_sentence(campaign),
        facts=_facts(campaign),
        groups=[_group(campaign, group) for group in verdict_text.shown_groups(campaign)],
        lone=verdict_text.lone_line(campaign),
        accepted=verdict_text.accepted_baselines(campaign),
        kinds=verdict_text.finding_kinds(campaign.findings),
        sentence=sentence,
        pictures={name: svg(figure) for name, figure in pictures.items()},
        curves=[name for name in plots.NAMES[1:] if name in pictures],
        not_drawn=plots.reasons_not_drawn(campaign, plots.NAMES[1:]),
        cost_lines=(cost_report.summary(campaign), *cost_report.sample_prices(campaign)),
        cost_gaps=cost_report.missing_prices(campaign),
        comparison_sections=comparison_sections(campaign) if sections is None else sections,
        sections=_sections(campaign, page.log_link if page else LOG_LINK),
        glossary=glossary,
        page=page,
        result_link=page.result_link if page else RESULT_LINK,
    )


def environment(
    templates: Path = Path(__file__).parent / "templates", *, ends_with_newline: bool = True
) -> Environment:
    """The environment of a folder of templates, which escapes every value. `ends_with_newline`: what they render."""
    made = Environment(
        loader=FileSystemLoader(templates),
        autoescape=True,
        finalize=shown_value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=ends_with_newline,
    )
    made.filters["shortened"] = shortened
    return made


def shown_value(value: object) -> object:
    """The text of a template's value, before it is escaped."""
    return visible(value) if type(value) is str else value  # not Markup, which a macro of ours has made


def _group(campaign: Campaign, group: GroupVerdict) -> dict[str, object]:
    return {
        "table": verdict_text.verdict_table(campaign, group),
        "lines": (
            *verdict_text.reason_sentences(group),
            *verdict_text.fleet_lines(group),
            verdict_text.limits_line(group),
        ),
    }


def _facts(campaign: Campaign) -> tuple[str, ...]:
    took = duration((campaign.finished_at - campaign.started_at).total_seconds())
    runs = count(len(campaign.results), "run")
    return campaign.suite, f"campaign {campaign.campaign_id}", runs, moment(campaign.started_at), f"took {took}"


def _sections(campaign: Campaign, log_link: str) -> dict[str, object]:
    return {
        "beyond": (run_tables.failures(campaign, log_link), run_tables.skipped(campaign)),
        "runs": tuple(
            make(campaign)
            for make in (run_tables.performance, run_tables.scaling, run_tables.probes, run_tables.telemetry)
        ),
        "startup": run_tables.startup(campaign),
        "prices": cost_report.prices_table(campaign),
        "costs": (cost_report.example_table(campaign), cost_report.nodes_table(campaign)),
        "setup": (run_tables.software(campaign), run_tables.chosen(campaign)),
        "settings": (*run_tables.work(campaign), run_tables.parameters(campaign)),
    }

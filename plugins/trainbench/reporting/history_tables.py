"""Each node against its own history: verdicts and accepted baselines."""

from __future__ import annotations

from trainbench.core.formats import NA, one_line, sentence, share
from trainbench.core.tables import Row, Table, Tone, make_table, text, text_row
from trainbench.core.verdicts import State
from trainbench.figure_catalogue.run_figures import SAMPLES_PER_SECOND
from trainbench.figure_catalogue.table_figures import DEVIATION, LIMIT, OWN_MEDIAN, PAST_RUNS
from trainbench.reporting import verdict_text, work_names
from trainbench.results.campaign import Campaign

MAX_WAITING = 10


def history_table(campaign: Campaign) -> Table:
    """One row for each node and group; where many have no baseline yet, one row counts them."""
    waiting = [verdict for verdict in campaign.history if verdict.state is State.NO_BASELINE]
    is_long = len(waiting) > MAX_WAITING
    shown = [verdict for verdict in campaign.history if not (is_long and verdict.state is State.NO_BASELINE)]
    names = {
        group_id: work_names.group_name(campaign, group_id) for group_id in {verdict.group_id for verdict in shown}
    }
    has_groups = len(names) > 1
    runs = verdict_text.runs_of_groups(campaign) if shown else {}
    more: tuple[Row, ...] = ()
    if is_long:
        cells = (
            f"{len(waiting)} more",
            *[NA] * 5,
            verdict_text.plain_state(State.NO_BASELINE),
            "too few past runs of the same work",
        )
        more = (text_row(*(("",) if has_groups else ()), *cells),)
    return make_table(
        shown,
        (
            *((text("work", lambda h: names[h.group_id]),) if has_groups else ()),
            text("node", lambda h: h.node),
            SAMPLES_PER_SECOND.column(lambda h: h.samples_per_second),
            OWN_MEDIAN.column(lambda h: h.baseline_median),
            DEVIATION.column(lambda h: h.deviation_pct),
            LIMIT.column(lambda h: NA if h.limit_pct is None else f"±{share(h.limit_pct)}"),
            PAST_RUNS.column(lambda h: str(h.num_points)),
            text("state", lambda h: verdict_text.plain_state(h.state)),
            text("reason", lambda h: h.reason),
        ),
        tone=lambda h: verdict_text.STATE_TONES.get(h.state, Tone.PLAIN),
        run_id=lambda h: runs.get(h.group_id, {}).get(h.node),
        more=more,
        title="Against its own history",
    )


def accepted_baselines(campaign: Campaign) -> tuple[str, ...]:
    """A sentence for each accepted baseline: measurements before it do not count."""
    return tuple(sentence(one_line(baseline.description)) for baseline in campaign.baselines)

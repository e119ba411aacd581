"""The effect of each node condition on each surface, as data; a test checks every surface against it.

docs/conditions.md is made from it.
"""

from __future__ import annotations

from typing import NamedTuple

from trainbench.core.markdown import escape
from trainbench.core.tables import Tone
from trainbench.core.verdicts import Level
from trainbench.judging.node_condition import TRAITS, Condition


class Surfaces(NamedTuple):
    """The surfaces where one node of four is in this condition and the others are well. `in_run`: its name in the run's
    headline, table, note and asset event; None: nothing ran. A level None: the surface shows nothing.
    """

    condition: Condition
    in_run: Condition | None
    word: str | None  # in the report's table
    exit_code: int | None  # of `trainbench run` and `check`; 1: the DAG run is red
    alert: Level | None  # of the run: in the asset event, and as a next step in the note
    banner: Level | None  # on Airflow's home page
    notice: Level | None  # by mail, Slack or webhook
    fleet: Tone  # of the Fleet page's headline


_RED = Level.ERROR, Level.ERROR, Level.ERROR, Tone.BAD
_WARNING = Level.WARNING, Level.WARNING, Level.WARNING, Tone.WARN
TABLE: tuple[Surfaces, ...] = (
    Surfaces(Condition.FAILED, Condition.FAILED, "failed", 1, *_RED),
    Surfaces(Condition.MISSING, Condition.MISSING, "missing", 1, *_RED),
    Surfaces(Condition.BREACH, Condition.BREACH, "breach", 1, *_RED),
    Surfaces(Condition.ACKNOWLEDGED, Condition.BREACH, "breach", 1, Level.ERROR, None, None, Tone.WARN),
    Surfaces(Condition.STALE, None, None, None, None, None, None, Tone.WARN),
    Surfaces(Condition.DRILL, Condition.DRILL, "drill", 1, Level.ERROR, None, Level.ERROR, Tone.WARN),
    Surfaces(Condition.BEHIND, Condition.BEHIND, "behind its own past", 0, *_WARNING),
    Surfaces(Condition.UNSTEADY, Condition.UNSTEADY, "unsteady", 0, *_WARNING),
    Surfaces(Condition.WATCHED, Condition.WATCHED, "watched", 0, *_WARNING),
    Surfaces(Condition.UNDECIDED, Condition.UNDECIDED, "insufficient", 0, Level.WARNING, None, None, Tone.WARN),
    Surfaces(Condition.BUSY, Condition.BUSY, "busy", 0, None, None, None, Tone.WARN),
    Surfaces(Condition.WELL, Condition.WELL, "ok", 0, None, None, None, Tone.GOOD),
)
HEADLINES = {Condition.DRILL: "Drill detected"}  # where a report does not count the nodes first
_HEAD = """# The condition of a node
Every node has one condition, and every surface shows it: headline and tables of the reports, exit code, note on the DAG
run, asset event, alerts, banners, notices, Fleet page. Where several hold, the node has the first of this table. The
table is made from the data that a test compares with every surface (`reporting/condition_effects.py`).

| condition | when | report says | word in its table | exit code | DAG run | alert | banner | notice | Fleet headline |
|---|---|---|---|---|---|---|---|---|---|
"""
_NOTES = """
- **Well** are only nodes whose latest verdict is ok and fresh: not older than `TRAINBENCH_FRESH_H` (36 hours, a
  nightly check left out once). With a weekly schedule set it to 180.
- **Alert**: an entry in the asset event, and a next step in the run's note. **Notice**: by mail, Slack or webhook;
  warnings go to channels with `"at_least": "warning"`.
- **A run without a single figure is red**, with exit code 1, alert and a sentence in the headline, whatever the reason:
  nothing was checked, even if all nodes were merely busy. One node with a figure while the rest were busy is green.
- **Exit codes of whole fleets**: 3 where no node could be judged; 4 where more than half of the nodes fell
  behind their own past and none is red. The DAG run stays green, because no re-run has confirmed it, and headline,
  alert, banner and notice say so.
- **Red stays red**: no silence, noise or age hides an open breach. It ends when the node is well, or was taken out of
  the cluster. An acknowledged breach sends no further messages; a run that confirms it again is red again.
- **Drill**: its run is red, with alert, note and one notice marked DRILL, which tests the whole chain. The headline
  first says whether the drill was detected, then how the other nodes are. When the run is over the drill leaves no
  message open. A drill that is not detected is an alarm: red, with the reason, and a banner until the next run.
- **Undecided** for three nights, or busy for three days, is a warning of its own, with banner and notice; the Fleet
  page says when the node was last judged.
- **Stale** follows from time and not from a run: only the Fleet page shows it.
- **Watched** is also a node that was outside its limits once and not in the re-run.
"""


def document() -> str:
    """docs/conditions.md."""
    return _HEAD + "".join(map(_row, TABLE)) + _NOTES


def _row(row: Surfaces) -> str:
    says = f'"{HEADLINES.get(row.in_run, f"1 of 4 nodes {TRAITS[row.in_run].one}")}"' if row.in_run else "-"
    run = {None: "-", 0: "green", 1: "red"}[row.exit_code]
    cells = (
        f"**{row.condition}**",
        escape(TRAITS[row.condition].meaning),
        says,
        row.word or "-",
        "-" if row.exit_code is None else str(row.exit_code),
        run,
        *(level.value if level else "-" for level in (row.alert, row.banner, row.notice)),
        f'{row.fleet.value}: "{TRAITS[row.condition].one}"',
    )
    return f"| {' | '.join(cells)} |\n"

"""Findings folded by kind: of many of one level and category the first is shown, the others are a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trainbench.core.grouping import grouped
from trainbench.core.tables import Table, only
from trainbench.core.verdicts import Finding
from trainbench.reporting.verdict_text import findings_table

MAX_ALIKE = 3  # of one kind are all shown


@dataclass(frozen=True, kw_only=True, slots=True)
class FindingKind:
    """Findings of one level and category. `more`: a table of those that are not shown, or None."""

    name: str
    shown: Sequence[Finding]
    more: Table | None = None


def finding_kinds(findings: Sequence[Finding]) -> Iterator[FindingKind]:
    """The kinds, in the order of each kind's first finding."""
    kinds = grouped(((finding.level, finding.category), finding) for finding in findings)
    for (level, category), alike in kinds.items():
        name = f"{level} ({category})"
        if len(alike) <= MAX_ALIKE:
            yield FindingKind(name=name, shown=alike)
            continue
        others = only(findings_table(alike[1:]), ("subject", "what", "measured", "expected"))
        more = replace(others, title=f"{len(alike) - 1} more like this one")
        yield FindingKind(name=name, shown=alike[:1], more=more)

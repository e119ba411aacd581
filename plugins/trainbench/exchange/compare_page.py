"""The comparison as one HTML page, for phone, print and dark mode, without scripts or requests to the network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from trainbench.exchange.compare import MAX_JOBS, Job, summary, tables_of_jobs
from trainbench.exchange.result_files import Gathered
from trainbench.reporting.html import environment

MAX_BROKEN = 50


def comparison_html(jobs: Sequence[Job], gathered: Gathered, folder: Path) -> str:
    """The page. `folder`: the page's folder, from which rows link to their raw files."""
    rows = [row for job in jobs for row in job.rows]
    template = environment().get_template("compare.html.j2")
    return template.render(
        title=f"{len(rows)} results compared" if len(rows) != 1 else "1 result",
        summary=summary(jobs),
        jobs=[{"speed": speed, "cost": cost} for speed, cost in tables_of_jobs(jobs)],
        num_left_out=max(0, len(jobs) - MAX_JOBS),
        # Row number -> its raw file; of several runs the first.
        links={str(row.number): _link(row.measured.addresses[0], folder) for row in rows},
        notes=gathered.notes,
        broken=gathered.broken[:MAX_BROKEN],
        num_broken=len(gathered.broken),
    )


def _link(address: str, folder: Path) -> str:
    """Link a file that is not on this machine by its URL."""
    return address if "://" in address else quote(os.path.relpath(address, folder))

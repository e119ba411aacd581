"""Commands about accepted baselines: `baseline accept`, `baseline list`, `baseline revoke`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from trainbench.cli import base
from trainbench.cli.base import StoreUrl, Who
from trainbench.core.baselines import Baseline
from trainbench.core.user_error import EntryError

app = base.App(base.NORMAL, help="After an intended change, compare a node with its present level instead of its past.")


@app.command()
def accept(
    why: Annotated[str, typer.Option(help="The intended change, in one sentence; kept for ever.")],
    node: Annotated[str | None, typer.Option(help="The node whose level is accepted.", metavar="NODE")] = None,
    all_nodes: Annotated[bool, typer.Option("--all", help="All nodes.")] = False,
    since: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"],
            metavar="TIME",
            help="First moment of the new level, as 2026-11-20 or 2026-11-20T02:00 (UTC). Default: the first campaign "
            "with a warning, else the last one.",
        ),
    ] = None,
    work: Annotated[
        str | None,
        typer.Option(help="Fingerprint of the only work to accept. Default: every work.", metavar="FINGERPRINT"),
    ] = None,
    who: Who = None,
    store_url: StoreUrl = None,
) -> None:
    """Accept the present level: earlier measurements no longer count as the past.

    A node accepted by name may also be slower than its peers, as long as it stays as it is.
    """
    if all_nodes == (node is not None):
        raise EntryError("whose level is accepted? Give either --node NODE or --all")
    moment = since if since is None or since.tzinfo else since.replace(tzinfo=UTC)
    by, at = who or base.user_name(), datetime.now(UTC)
    _show(base.open_history(store_url).accept_baseline(node, by, why, at, moment, work))


@app.command("list")
def list_(store_url: StoreUrl = None) -> None:
    """List all accepted baselines, revoked ones too."""
    known = base.open_history(store_url).baselines()
    base.answer({"baselines": known}, *(list(map(_line, known)) or ["no baseline was ever accepted"]))


@app.command()
def revoke(
    baseline_id: Annotated[int, typer.Argument(help="Its number in `baseline list`.", metavar="ID")],
    who: Who = None,
    store_url: StoreUrl = None,
) -> None:
    """Revoke an accepted baseline: the past before it counts again."""
    history = base.open_history(store_url)
    _show(history.revoke_baseline(baseline_id, who or base.user_name(), datetime.now(UTC)))


def _line(baseline: Baseline) -> str:
    end = f"; revoked by {baseline.revoked_by} on {baseline.revoked_at:%d %b %Y}" if baseline.revoked_at else ""
    return f"{baseline.id}  {baseline.description}{end}"


def _show(baseline: Baseline) -> None:
    base.answer(baseline, _line(baseline))

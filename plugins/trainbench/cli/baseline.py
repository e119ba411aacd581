"""Commands about accepted baselines: `baseline accept`, `baseline list`, `baseline revoke`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from trainbench.cli.base import AsJson, ExitCode, StoreUrl, Who, console, print_json, user_errors, user_name
from trainbench.core.baselines import Baseline, BaselineError

if TYPE_CHECKING:
    from trainbench.history.history import History

app = typer.Typer(help="After an intended change, compare a node with its present level instead of its past.")


@app.command()
def accept(
    why: Annotated[str, typer.Option(help="The intended change, in one sentence; kept for ever.")],
    node: Annotated[str | None, typer.Option(help="The node whose level is accepted.", metavar="NODE")] = None,
    all_nodes: Annotated[bool, typer.Option("--all", help="All nodes.")] = False,
    since: Annotated[
        str | None,
        typer.Option(
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
    as_json: AsJson = False,
) -> None:
    """Accept the present level: earlier measurements no longer count as the past. A node accepted by name may also be
    slower than its peers, as long as it stays as it is.
    """
    with user_errors():
        if all_nodes == (node is not None):
            raise BaselineError("whose level is accepted? Give either --node NODE or --all")
        at = datetime.now(UTC)
        accepted = _history(store_url).accept_baseline(node, who or user_name(), why, at, _moment(since), work)
    _show(accepted, as_json)


@app.command("list")
def list_(store_url: StoreUrl = None, as_json: AsJson = False) -> None:
    """List all accepted baselines, revoked ones too."""
    with user_errors():
        known = _history(store_url).baselines()
    if as_json:
        print_json({"baselines": known})
    else:
        for each in known or ():
            _print(each)
        if not known:
            typer.echo("no baseline was ever accepted")
    raise typer.Exit(ExitCode.OK)


@app.command()
def revoke(
    baseline_id: Annotated[int, typer.Argument(help="Its number in `baseline list`.", metavar="ID")],
    who: Who = None,
    store_url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Revoke an accepted baseline: the past before it counts again."""
    with user_errors():
        revoked = _history(store_url).revoke_baseline(baseline_id, who or user_name(), datetime.now(UTC))
    _show(revoked, as_json)


def _history(store_url: str | None) -> History:
    from trainbench.history.history import open_history
    from trainbench.results.artefacts import open_store
    from trainbench.settings.environment import read_settings

    return open_history(read_settings().history_url, open_store(store_url))


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BaselineError(f"--since '{text}' is no time: write 2026-11-20 or 2026-11-20T02:00") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _line(baseline: Baseline) -> str:
    end = f"; revoked by {baseline.revoked_by} on {baseline.revoked_at:%d %b %Y}" if baseline.revoked_at else ""
    return f"{baseline.id}  {baseline.description}{end}"


def _show(baseline: Baseline, as_json: bool) -> None:
    if as_json:
        print_json(baseline)
    else:
        _print(baseline)
    raise typer.Exit(ExitCode.OK)


def _print(baseline: Baseline) -> None:
    from trainbench.reporting.terminal import plain

    console().print(plain(_line(baseline)), soft_wrap=True)

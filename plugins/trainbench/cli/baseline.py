"""The commands about accepted baselines: `baseline accept`, `baseline list`, `baseline revoke`."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from trainbench.cli.base import AsJson, ExitCode, StoreUrl, console, errors_told, print_json
from trainbench.core.baselines import Baseline, BaselineError

if TYPE_CHECKING:
    from trainbench.history.history import History

app = typer.Typer(help="Make the present level of a node the one that it is compared with, after an intended change.")

Who = Annotated[str | None, typer.Option(help="Who says so. Default: the user of this machine.", metavar="NAME")]


@app.command()
def accept(
    why: Annotated[str, typer.Option(help="The intended change, in one sentence; kept for ever.")],
    node: Annotated[str | None, typer.Option(help="The node whose level is accepted.", metavar="NODE")] = None,
    all_nodes: Annotated[bool, typer.Option("--all", help="All nodes.")] = False,
    since: Annotated[
        str | None,
        typer.Option(
            help="First moment of the new level, as 2026-11-20 or 2026-11-20T02:00 (UTC). Default: the first campaign "
            "that is warned of, else the last one.",
        ),
    ] = None,
    work: Annotated[
        str | None, typer.Option(help="Fingerprint of the only work that it is about.", metavar="FINGERPRINT")
    ] = None,
    who: Who = None,
    store_url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Accept the present level: what was measured before is no past any more. Breaches against peers stay."""
    with errors_told():
        if all_nodes == (node is not None):
            raise BaselineError("say whose level is accepted: either --node NODE or --all")
        at = datetime.now(UTC)
        accepted = _history(store_url).accept_baseline(node, who or _user(), why, at, _moment(since), work)
    _show(accepted, as_json)


@app.command("list")
def list_(store_url: StoreUrl = None, as_json: AsJson = False) -> None:
    """Show every baseline that was accepted, also those that were taken back."""
    with errors_told():
        known = _history(store_url).baselines()
    if as_json:
        print_json({"baselines": [each.model_dump(mode="json") for each in known]})
    else:
        for each in known or ():
            console().print(_line(each), markup=False, highlight=False, soft_wrap=True)
        if not known:
            typer.echo("no baseline was ever accepted")
    raise typer.Exit(ExitCode.OK)


@app.command()
def revoke(
    baseline_id: Annotated[int, typer.Argument(help="Its number, as `baseline list` shows it.", metavar="ID")],
    who: Who = None,
    store_url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Take an accepted baseline back: the past before it counts again."""
    with errors_told():
        revoked = _history(store_url).revoke_baseline(baseline_id, who or _user(), datetime.now(UTC))
    _show(revoked, as_json)


def _history(store_url: str | None) -> History:
    from trainbench.history.history import open_history
    from trainbench.results.artefacts import open_store
    from trainbench.settings.environment import read_settings

    return open_history(read_settings().history_url, open_store(store_url))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise BaselineError("this machine does not know who you are: give --who NAME") from None


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BaselineError(f"--since '{text}' is no time: write 2026-11-20 or 2026-11-20T02:00") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _line(baseline: Baseline) -> str:
    end = f"; taken back by {baseline.revoked_by} on {baseline.revoked_at:%d %b %Y}" if baseline.revoked_at else ""
    return f"{baseline.id}  {baseline.words}{end}"


def _show(baseline: Baseline, as_json: bool) -> None:
    if as_json:
        print_json(baseline.model_dump(mode="json"))
    else:
        console().print(_line(baseline), markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(ExitCode.OK)

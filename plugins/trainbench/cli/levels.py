"""Commands about known levels: `levels list`, `make`, `accept`, `export`, `import`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainbench import __version__
from trainbench.cli.base import (
    App,
    AsJson,
    ExitCode,
    StoreUrl,
    Who,
    console,
    print_broken,
    print_json,
    progress,
    user_errors,
    user_name,
)

if TYPE_CHECKING:
    from bench_image.contract.result import RunResult
    from trainbench.judging.levels import KnownLevel
    from trainbench.results.artefacts import Store

MAX_LEVELS_BYTES = 4_000_000

app = App(
    help="What a GPU of one kind makes of one work. A fleet's own levels are in its store, and judge where the "
    "parameter `levels` is `own`.",
    no_args_is_help=False,
    invoke_without_command=True,
)
Campaigns = Annotated[
    list[str] | None,
    typer.Option("--campaign", help="A campaign to take results from; may be repeated. Default: all.", metavar="ID"),
]
Gpu = Annotated[str | None, typer.Option(help="Only this kind of GPU, as results name it.", metavar="NAME")]
Work = Annotated[str | None, typer.Option(help="Only this work: the first figure of `levels list`.", metavar="WORK")]
LevelsFile = Annotated[Path, typer.Argument(help="A TOML file with one [[level]] table for each.", metavar="FILE")]


@app.callback()
def levels(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        list_()


@app.command("list")
def list_(store_url: StoreUrl = None, as_json: AsJson = False) -> None:
    """List all known levels: the fleet's own, then those of this release."""
    from trainbench.core.verdicts import LevelSource
    from trainbench.judging.levels import LevelsError, load_levels

    with user_errors():
        levels = load_levels(LevelSource.OWN, _store(store_url).read_levels())
        if levels.fault:
            raise LevelsError(levels.fault)
    _show(levels.known, as_json)


@app.command()
def make(
    campaigns: Campaigns = None,
    gpu: Gpu = None,
    work: Work = None,
    store_url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Compute levels from the fleet's own results and show them; `levels accept` stores them. Of each kind of GPU and
    work: the median over the GPUs, and how much they differ. Failed, shared and drilled runs do not count.
    """
    with user_errors():
        made = _made(_store(store_url), campaigns, gpu, work)
    _show(made, as_json)


@app.command()
def accept(
    campaigns: Campaigns = None,
    gpu: Gpu = None,
    work: Work = None,
    who: Who = None,
    store_url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Store what `levels make` shows: it replaces the fleet's own levels of the same GPU and work."""
    with user_errors():
        store = _store(store_url)
        by = who or user_name()
        made = tuple(each.model_copy(update={"accepted_by": by}) for each in _made(store, campaigns, gpu, work))
        _merge(store, made)
    _show(made, as_json)


@app.command()
def export(file: LevelsFile, store_url: StoreUrl = None) -> None:
    """Write the fleet's own levels to a file, for another installation."""
    from trainbench.core.user_error import UserError

    with user_errors():
        text = _store(store_url).read_levels()
        if not text:
            raise UserError("this store has no levels of its own: make them with `trainbench levels accept`")
        try:
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UserError(f"{file} cannot be written: {error.strerror}: give another file") from None
    typer.echo(f"written: {file}")
    raise typer.Exit(ExitCode.OK)


@app.command("import")
def import_(file: LevelsFile, store_url: StoreUrl = None, as_json: AsJson = False) -> None:
    """Take levels from a file: they replace the fleet's own of the same GPU and work. A wrong value is refused."""
    from upath import UPath

    from trainbench.judging.levels import parse_levels
    from trainbench.results.store_files import read_bounded

    with user_errors():
        text = read_bounded(UPath(file.absolute()), MAX_LEVELS_BYTES).decode(errors="replace")
        new = parse_levels(text, str(file))
        _merge(_store(store_url), new)
    _show(new, as_json)


def _store(store_url: str | None) -> Store:
    from trainbench.results.artefacts import open_store

    return open_store(store_url)


def _made(store: Store, campaigns: Sequence[str] | None, gpu: str | None, work: str | None) -> tuple[KnownLevel, ...]:
    from trainbench.core.user_error import UserError
    from trainbench.judging.levels import made_levels

    ids = campaigns or store.campaign_ids()
    results: list[RunResult] = []
    with progress("Reading results") as advance:
        for number, campaign_id in enumerate(ids, start=1):
            stored = store.read_results(campaign_id)
            print_broken(stored.broken)
            results += stored.results
            advance(number, len(ids))
    made = made_levels(results, __version__, datetime.now(UTC).date(), files=sorted(ids))
    chosen = tuple(each for each in made if gpu in (None, each.gpu_name) and work in (None, each.work))
    if not chosen:
        known = "; ".join(f"{each.gpu_name} at work {each.work}" for each in made)
        raise UserError(
            f"no level of {gpu or 'any GPU'} at {work or 'any work'}: "
            + (f"the results are of {known}" if known else "no run on a GPU is stored: run a check first")
        )
    return chosen


def _merge(store: Store, new: Sequence[KnownLevel]) -> None:
    from trainbench.judging.levels import levels_toml, merged, parse_levels

    text = store.read_levels()
    own = parse_levels(text, "levels.toml of the store") if text else ()
    store.write_levels(levels_toml(merged(own, new)))


def _show(known: Sequence[KnownLevel], as_json: bool) -> None:
    from trainbench.reporting.terminal import plain

    if as_json:
        print_json({"levels": known})
    else:
        for each in known:
            line = f"{each.work}  {each.origin}  {each.description}, {each.num_runs} runs on {each.num_gpus} GPUs, "
            console().print(plain(f"{line}{each.as_of:%d %b %Y}"), soft_wrap=True)
    raise typer.Exit(ExitCode.OK)

"""Commands about known levels: `levels list`, `make`, `accept`, `export`, `import`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainbench import __version__
from trainbench.cli import base
from trainbench.cli.base import StoreUrl, Who
from trainbench.core.formats import count
from trainbench.core.user_error import UserError

if TYPE_CHECKING:
    from bench_image.contract.result import RunResult
    from trainbench.judging.levels import KnownLevel
    from trainbench.results.artefacts import Store

MAX_LEVELS_BYTES = 4_000_000

app = base.App(
    base.NORMAL,
    help="What a GPU of one kind makes of one work. A fleet's own levels are in its store, and judge where the "
    "parameter `levels` is `own`.",
    cls=base.OnceGroup,
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
    if not context.invoked_subcommand:
        list_()


@app.command("list")
def list_(store_url: StoreUrl = None) -> None:
    """List all known levels: the fleet's own, then those of this release."""
    from trainbench.core.verdicts import LevelSource
    from trainbench.judging.levels import LevelsError, load_levels

    known = load_levels(LevelSource.OWN, base.open_store(store_url).read_levels())
    if known.fault:
        raise LevelsError(known.fault)
    _show(known.known)


@app.command()
def make(campaigns: Campaigns = None, gpu: Gpu = None, work: Work = None, store_url: StoreUrl = None) -> None:
    """Compute levels from the fleet's own results and show them; `levels accept` stores them.

    Of each kind of GPU and work: the median over the GPUs, and how much they differ. Failed, shared and drilled runs
    do not count.
    """
    _show(_made(base.open_store(store_url), campaigns, gpu, work))


@app.command()
def accept(
    campaigns: Campaigns = None, gpu: Gpu = None, work: Work = None, who: Who = None, store_url: StoreUrl = None
) -> None:
    """Store what `levels make` shows: it replaces the fleet's own levels of the same GPU and work."""
    store, by = base.open_store(store_url), who or base.user_name()
    made = [each.model_copy(update={"accepted_by": by}) for each in _made(store, campaigns, gpu, work)]
    _merge(store, made)


@app.command()
def export(file: LevelsFile, store_url: StoreUrl = None) -> None:
    """Write the fleet's own levels to a file, for another installation."""
    text = base.open_store(store_url).read_levels()
    if not text:
        raise UserError("this store has no levels of its own: make them with `trainbench levels accept`")
    base.write_file(file, text)
    base.answer({"file": str(file.absolute())}, f"written: {file}")


@app.command("import")
def import_(file: LevelsFile, store_url: StoreUrl = None) -> None:
    """Take levels from a file: they replace the fleet's own of the same GPU and work. A wrong value is refused."""
    from trainbench.judging.levels import parse_levels

    text = base.read_file(file, MAX_LEVELS_BYTES).decode(errors="replace")
    _merge(base.open_store(store_url), parse_levels(text, str(file)))


def _made(store: Store, campaigns: Sequence[str] | None, gpu: str | None, work: str | None) -> Sequence[KnownLevel]:
    from trainbench.judging.levels import made_levels
    from trainbench.results.campaign import IMPORTED

    ids = campaigns or [name for name in store.campaign_ids() if not name.startswith(IMPORTED)]
    results: list[RunResult] = []
    with base.progress("Reading results") as advance:
        for number, campaign_id in enumerate(ids, start=1):
            stored = store.read_results(campaign_id)
            base.print_broken(stored.broken)
            results += stored.results
            advance(number, len(ids))
    made = made_levels(results, __version__, datetime.now(UTC).date(), files=sorted(ids))
    if chosen := [each for each in made if gpu in (None, each.gpu_name) and work in (None, each.work)]:
        return chosen
    known = "; ".join(f"{each.gpu_name} at work {each.work}" for each in made)
    there = f"the results are of {known}" if known else "no run on a GPU is stored: run a check first"
    raise UserError(f"no level of {gpu or 'any GPU'} at {work or 'any work'}: {there}")


def _merge(store: Store, new: Sequence[KnownLevel]) -> None:
    from trainbench.judging.levels import levels_toml, merged, parse_levels

    text = store.read_levels()
    own = parse_levels(text, "levels.toml of the store") if text else ()
    store.write_levels(levels_toml(merged(own, new)))
    _show(new)


def _show(known: Sequence[KnownLevel]) -> None:
    def line(each: KnownLevel) -> str:
        of = f"{count(each.num_runs, 'run')} on {count(each.num_gpus, 'GPU')}, {each.as_of:%d %b %Y}"
        return f"{each.work}  {each.origin}  {each.description}, {of}"

    base.answer({"levels": known}, *map(line, known))

"""Commands about prices, costs and tables: `prices`, `prices import`, `estimate`, `cost`, `gpus`, `table`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from bench_image.contract.options import Strategy
from trainbench.cli.base import (
    AsJson,
    ExitCode,
    StoreUrl,
    console,
    named_values,
    print_broken,
    print_error,
    print_json,
    user_errors,
)
from trainbench.core.formats import count, listing

if TYPE_CHECKING:
    pass
    from trainbench.cost.job_estimates import Estimate
    from trainbench.exchange.result_files import ComparisonRow


app = typer.Typer()
Gpu = Annotated[str | None, typer.Argument(help="A GPU's name, such as A10 or 'A100 80GB'. Default: all known GPUs.")]


@app.command()
def gpus(gpu: Gpu = None, as_json: AsJson = False) -> None:
    """Show memory, bandwidth, power and peaks of GPUs, and which models fit them by which recipe."""
    from trainbench.core.tables import Table
    from trainbench.cost import gpu_fit
    from trainbench.reporting.terminal import plain, titled

    with user_errors():
        known = gpu_fit.known_gpu(gpu) if gpu else None
    tables: tuple[Table, ...] = (gpu_fit.facts_table(), gpu_fit.fits_table())
    if known:
        tables = (gpu_fit.facts_table([known]), gpu_fit.jobs_table(known))
    sentence = gpu_fit.sentence(known) if known else None
    if as_json:
        rows = [
            [dict(zip(made.names, (cell.value for cell in row.cells), strict=True)) for row in made.rows]
            for made in tables
        ]
        print_json({"gpus": rows[0], "fits": rows[1], "sentence": sentence})
    else:
        shown = console()
        for made in tables:
            shown.print(titled(made))
        if sentence:
            shown.print(plain(sentence))
    raise typer.Exit(ExitCode.OK)


class Content(StrEnum):
    RUNS = "runs"
    MONTHS = "months"
    NODES = "nodes"


What = Annotated[
    Content,
    typer.Argument(help="runs: figures of each run; months: cost by month and DAG; nodes: recorded runs by node."),
]
Names = Annotated[
    list[str] | None,
    typer.Argument(help="Ids of campaigns (runs) or names of nodes. Default: all.", metavar="[NAME]..."),
]
Output = Annotated[
    Path | None, typer.Option(help="File that ends in .csv or .parquet. Default: CSV on standard output.")
]


@app.command()
def table(
    what: What, names: Names = None, output: Output = None, store_url: StoreUrl = None, as_json: AsJson = False
) -> None:
    """Write runs, months or node histories as one table: the DataFrames of `trainbench.frames`."""
    from trainbench import frames
    from trainbench.core.user_error import UserError

    with user_errors():
        if what is Content.MONTHS and names:
            raise UserError("months are not chosen by name: leave the names out")
        if what is Content.MONTHS:
            frame = frames.months(store=store_url)
        else:
            frame = (frames.runs if what is Content.RUNS else frames.node_history)(*(names or ()), store=store_url)
        if output:
            frames.write(frame, output)
    if as_json:
        rows = {"file": str(output.absolute()) if output else None, "rows": None if output else frames.records(frame)}
        print_json({"num_rows": len(frame), "columns": list(frame.columns)} | rows)
    elif output:
        typer.echo(str(output.absolute()))
    else:
        typer.echo(frames.csv_text(frame), nl=False)
    raise typer.Exit(ExitCode.OK)


Set = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="NAME=VALUE", help="A parameter of the DAG's form; may be repeated."),
]


@app.command()
def cost(
    month: Annotated[str | None, typer.Option(help="Month, as 2026-11, in UTC. Default: this month.")] = None,
    set_: Set = None,
    all_: Annotated[bool, typer.Option("--all", help="Show every table of the report.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Also write the report's files into the store.")] = False,
    store_url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show the cost of benchmarking, of the measured work over time, and at other prices."""
    from trainbench.cost.monthly_report import publish, report_on
    from trainbench.history.history import open_history
    from trainbench.params.cost_params import parse_spend_params
    from trainbench.results.artefacts import open_store
    from trainbench.settings.environment import read_settings

    with user_errors():
        changes = named_values(set_, example="usd_per_kwh=0.2")
        params = parse_spend_params(changes | ({"month": month} if month else {}))
        settings, now = read_settings(), datetime.now(UTC)
        store = open_store(store_url or settings.store)
        history = open_history(settings.history_url, store)
        report = report_on(params, history, f"by-hand-{params.month or f'{now:%Y-%m}'}", now)
        files = publish(report, store) if write else {}
    if as_json:
        print_json({**dict(report), "files": files})
        raise typer.Exit(ExitCode.OK)

    # Print the answer, then a table that fits a screen, or all tables.
    from trainbench.cost.monthly_report import screen_table, spend_tables
    from trainbench.reporting.terminal import plain, titled

    shown = console()
    shown.print(*map(plain, report.summary), sep="\n")
    every = spend_tables(report)
    first = screen_table(report)
    for content in every if all_ else (first,) if first.rows else ():
        shown.print(titled(content))
    if every and not all_:
        shown.print(plain(f"--all shows {count(len(every), 'table')}: {listing((t.title for t in every), most=9)}."))
    for address in files.values():
        typer.echo(address)


prices_app = typer.Typer(invoke_without_command=True)
app.add_typer(prices_app, name="prices")


@prices_app.callback()
def prices(
    context: typer.Context,
    gpu: Annotated[
        str | None, typer.Option(help="Only GPUs with these words in their name: A100, 'A100 80GB'.")
    ] = None,
    provider: Annotated[str | None, typer.Option(help="Only providers whose name contains this.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the price table: yours (TRAINBENCH_PRICES) first, then the built-in one. `import` reads a catalogue."""
    if context.invoked_subcommand:
        return
    from trainbench.cost.job_estimates import price_row, prices_table
    from trainbench.prices.price_tables import load_prices, name_parts
    from trainbench.reporting.terminal import titled
    from trainbench.settings.environment import read_settings

    with user_errors():
        shown_prices = [
            price
            for price in load_prices(read_settings().prices)
            if name_parts(gpu or "") <= name_parts(price.gpu) and (provider or "").lower() in price.provider.lower()
        ]
    today = _today()
    if as_json:
        print_json({"currency": "USD", "prices": [price_row(price, today) for price in shown_prices]})
    else:
        console().print(titled(prices_table(shown_prices, today)))
    if not shown_prices:
        print_error("no price fits: add your own table by TRAINBENCH_PRICES")
    raise typer.Exit(ExitCode.OK if shown_prices else ExitCode.USAGE)


@prices_app.command("import")
def import_(
    file: Annotated[
        Path, typer.Argument(help="A catalogue: skypilot-catalog's vms.csv, gpuhunt's CSV or JSON, or our own columns.")
    ],
    provider: Annotated[str | None, typer.Option(help="The provider, where the rows do not name one.")] = None,
    as_of: Annotated[
        str | None, typer.Option(help="The day of these prices, where the rows do not give it.", metavar="DATE")
    ] = None,
    source: Annotated[str | None, typer.Option(help="Source of the file: address and version.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The table to write. Default: standard output.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Convert a public price catalogue into a table for TRAINBENCH_PRICES. Counts the rows that it leaves out."""
    from trainbench.prices.price_import import as_toml, import_prices

    with user_errors():
        imported = import_prices(file, provider, _day(as_of), source)
        if output and imported.prices:
            _write_new(output, as_toml(imported.prices))
    if as_json:
        print_json(imported)
    elif not output and imported.prices:
        typer.echo(as_toml(imported.prices), nl=False)
    # Print on standard error: standard output may be the table itself.
    from trainbench.cost.job_estimates import skipped_table
    from trainbench.prices.price_import import import_summary
    from trainbench.reporting.terminal import plain, rich_table

    shown = console(stderr=True)
    if imported.skipped:
        shown.print(rich_table(skipped_table(imported)))
    shown.print(plain(f"{import_summary(imported)}."))
    raise typer.Exit(ExitCode.OK if imported.prices else ExitCode.USAGE)


Samples = Annotated[int, typer.Option(min=1, help="Samples in one epoch.")]
Sources = Annotated[
    list[str] | None,
    typer.Argument(
        help="Measured results: files, folders, or ids of campaigns. Default: none, an estimate by formula."
    ),
]
Epochs = Annotated[float, typer.Option(help="Number of epochs.")]
ModelName = Annotated[str | None, typer.Option(help="Model of the job, where no results are given.")]
RecipeName = Annotated[str | None, typer.Option(help="Recipe of the job: full, lora or qlora.")]
StrategyName = Annotated[
    Strategy | None, typer.Option(help="Strategy of the job. Default: single, or ddp on several GPUs.")
]
JobParameters = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="NAME=VALUE", help="Any other parameter of the job; may be repeated."),
]
NumGpus = Annotated[
    int | None, typer.Option(min=1, max=65_536, help="Number of GPUs in all. Default: as measured, else 1.")
]
GpuName = Annotated[
    str | None,
    typer.Option(
        help="NVML name of the GPU, such as 'H100 80GB HBM3'. Default: as measured, else the smallest that fits."
    ),
]
SamplesPerSecond = Annotated[float | None, typer.Option(help="Known samples/s of all GPUs together.")]
Mfu = Annotated[float | None, typer.Option(help="Expected MFU, for a rate by formula.", metavar="%")]
Efficiency = Annotated[
    float | None,
    typer.Option(help="Expected scaling efficiency, as a share, on a number of GPUs that was not measured."),
]
PriceKind = Annotated[str, typer.Option(help="on-demand, spot, owned, or your own price in USD per GPU-hour.")]
PriceTerms = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="NAME=VALUE",
        help="Spot: per_day (interruptions of one instance), checkpoint_every_minutes, restart_minutes, "
        "wait_minutes (for a new instance; the other instances are billed meanwhile). "
        "Owned: purchase_usd (without it the card's list price), life_years, utilisation, residual_share, "
        "opex_usd_per_gpu_hour. May be repeated.",
    ),
]


@app.command()
def estimate(
    samples: Samples,
    sources: Sources = None,
    epochs: Epochs = 1.0,
    model: ModelName = None,
    recipe: RecipeName = None,
    strategy: StrategyName = None,
    set_: JobParameters = None,
    gpus: NumGpus = None,
    gpu: GpuName = None,
    samples_per_s: SamplesPerSecond = None,
    mfu: Mfu = None,
    efficiency: Efficiency = None,
    price: PriceKind = "on-demand",
    with_: PriceTerms = None,
    store_url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Estimate time and cost of a training job, at every price that fits its GPU."""
    from trainbench.cost.job_estimates import EstimateRequest, by_formula, of_measured, pricing_of
    from trainbench.prices.price_tables import load_prices
    from trainbench.settings.environment import read_settings

    with user_errors():
        request = EstimateRequest(
            num_samples=samples,
            epochs=epochs,
            num_gpus=gpus,
            gpu=gpu,
            changes=named_values(set_) | ({"model": model} if model else {}) | ({"recipe": recipe} if recipe else {}),
            strategy=strategy,
            samples_per_s=samples_per_s,
            mfu_pct=mfu,
            efficiency=efficiency,
        )
        pricing, table = pricing_of(price, named_values(with_, "--with")), load_prices(read_settings().prices)
        if sources:
            _conclude(of_measured(request, _measured_rows(sources, store_url), table, pricing, _today()), as_json)
        _conclude((by_formula(request, table, pricing, _today()),), as_json)


def _conclude(estimates: Sequence[Estimate], as_json: bool) -> NoReturn:
    """Print the estimates, say on standard error what they lack, and exit."""
    if as_json:
        print_json({"currency": "USD", "estimates": estimates})
    else:
        _print_estimates(estimates)
    missing = dict.fromkeys(line for one in estimates for line in one.missing)
    for line in missing:
        print_error(line)
    raise typer.Exit(ExitCode.USAGE if missing else ExitCode.OK)


def _print_estimates(estimates: Sequence[Estimate]) -> None:
    from trainbench.cost.job_estimates import estimate_table, headline
    from trainbench.reporting.terminal import plain, rich_table

    shown = console()
    for one in estimates:
        table = estimate_table(one)
        shown.print(plain(table.title, style="bold"))
        if table.rows:
            shown.print(rich_table(table))
        lines = [*table.notes, *([one.memory.sentence] if one.memory else []), *one.assumptions, headline(one)]
        shown.print(*map(plain, lines), sep="\n")


def _measured_rows(sources: Sequence[str], store_url: str | None) -> Sequence[ComparisonRow]:
    from trainbench.cost.job_estimates import EstimateError
    from trainbench.exchange.result_files import find_result_files, read_result_files
    from trainbench.results.artefacts import open_store

    gathered = read_result_files(find_result_files(sources, open_store(store_url)))
    print_broken(gathered.broken)
    if not gathered.rows:
        raise EstimateError("no file holds a measured run: give other results, or the job and a rate")
    return gathered.rows


def _write_new(path: Path, text: str) -> None:
    """Write a new file; never replace an existing table, which may hold rows written by hand."""
    from trainbench.prices.price_tables import PriceError

    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise PriceError(f"{path} exists already: choose another name, TRAINBENCH_PRICES takes several") from None
    except OSError as error:
        raise PriceError(f"{path} cannot be written: {error.strerror or error}") from None


def _day(text: str | None) -> date | None:
    from trainbench.prices.price_tables import PriceError

    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise PriceError(f"--as-of is {text!r}: write the day as 2026-11-21") from None


def _today() -> date:
    return datetime.now(UTC).date()

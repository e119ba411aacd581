"""Commands about prices, costs and tables: `prices`, `prices import`, `estimate`, `cost`, `gpus`, `table`."""

from __future__ import annotations

from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bench_image.contract.options import Strategy
from trainbench.cli import base, completions
from trainbench.cli.base import ExitCode, StoreUrl
from trainbench.core.formats import count, listing
from trainbench.core.user_error import UserError

PANEL = "Tables, prices and costs"
app = base.App(PANEL)


@app.command()
def gpus(
    gpu: Annotated[
        str | None,
        typer.Argument(
            help="A GPU's name, such as A10 or 'A100 80GB'. Default: all known GPUs.", autocompletion=completions.gpus
        ),
    ] = None,
) -> None:
    """Show memory, bandwidth, power and peaks of GPUs, and which models fit them by which recipe."""
    from bench_image.contract.gpu_specs import GPU_SPECS
    from trainbench.cost import gpu_fit

    tables = (gpu_fit.facts_table(), gpu_fit.fits_table())
    if gpu:
        known = gpu_fit.known_gpu(gpu)
        if choice := gpu_fit.reading(gpu, known):
            base.show(f"{choice} The facts are those of: {GPU_SPECS[known].source}.", stderr=True)
        tables = (gpu_fit.facts_table([known]), gpu_fit.jobs_table(known))
    facts, fits = (
        [dict(zip(made.names, (cell.value for cell in row.cells), strict=True)) for row in made.rows] for made in tables
    )
    base.answer({"gpus": facts, "fits": fits}, *tables)


class Content(StrEnum):
    RUNS = "runs"
    MONTHS = "months"
    NODES = "nodes"


@app.command()
def table(
    what: Annotated[
        Content,
        typer.Argument(help="runs: figures of each run; months: cost by month and DAG; nodes: recorded runs by node."),
    ],
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Ids of campaigns (runs) or names of nodes. Default: all.", metavar="NAME"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="File that ends in .csv or .parquet. Default: CSV on standard output.")
    ] = None,
    store_url: StoreUrl = None,
) -> None:
    """Write runs, months or node histories as one table: the DataFrames of `trainbench.frames`."""
    from trainbench import frames

    if what is Content.MONTHS and names:
        raise UserError("months are not chosen by name: leave the names out")
    if what is Content.MONTHS:
        frame = frames.months(store=store_url)
    else:
        frame = (frames.runs if what is Content.RUNS else frames.node_history)(*(names or ()), store=store_url)
    file = str(output.absolute()) if output else None
    if output:
        frames.write(frame, output)
    about = {"num_rows": len(frame), "columns": list(frame.columns), "file": file}
    if not base.print_json(about | {"rows": None if output else frames.records(frame)}):
        typer.echo(file or frames.csv_text(frame), nl=output is not None)


@app.command()
def cost(
    month: Annotated[str | None, typer.Option(help="Month, as 2026-11, in UTC. Default: this month.")] = None,
    set_: Annotated[list[str] | None, base.set_option("A parameter of the DAG's form")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Show every table of the report.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Also write the report's files into the store.")] = False,
    store_url: StoreUrl = None,
) -> None:
    """Show the cost of benchmarking, of the measured work over time, and at other prices."""
    from trainbench.cost.monthly_report import publish, report_on, spend_tables
    from trainbench.params.cost_params import parse_spend_params

    params = parse_spend_params(
        base.named_values(set_, example="usd_per_kwh=0.2") | ({"month": month} if month else {})
    )
    now = datetime.now(UTC)
    report_id = f"by-hand-{params.month or f'{now:%Y-%m}'}"
    report = report_on(params, base.open_history(store_url), report_id, now)
    files = publish(report, base.open_store(store_url)) if write else {}
    tables = spend_tables(report)
    titles = f"--all shows {count(len(tables), 'table')}: {listing((table.title for table in tables), most=9)}."
    more = tables if all_ else [titles] if tables else []
    base.answer({**dict(report), "files": files}, *report.summary, *more, *files.values())


prices_app = base.App(PANEL, cls=base.OnceGroup, invoke_without_command=True)
app.add_typer(prices_app, name="prices", rich_help_panel=PANEL)


@prices_app.callback()
def prices(
    context: typer.Context,
    gpu: Annotated[
        str | None,
        typer.Option(
            help="Only GPUs with these words in their name: A100, 'A100 80GB'.", autocompletion=completions.gpus
        ),
    ] = None,
    provider: Annotated[str | None, typer.Option(help="Only providers whose name contains this.")] = None,
) -> ExitCode | None:
    """Show the price table: yours (TRAINBENCH_PRICES) first, then the built-in one. `import` reads a catalogue."""
    if context.invoked_subcommand:
        return None
    from bench_image.contract.gpu_specs import name_parts
    from trainbench.cost.job_estimates import prices_table
    from trainbench.prices.price_tables import load_prices

    chosen = [
        price
        for price in load_prices(base.read_settings().prices)
        if name_parts(gpu or "") <= name_parts(price.gpu) and (provider or "").lower() in price.provider.lower()
    ]
    base.answer({"prices": chosen}, prices_table(chosen, _today()))
    if not chosen:
        base.print_error("no price fits: add your own table by TRAINBENCH_PRICES")
    return ExitCode.OK if chosen else ExitCode.USAGE


@prices_app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A catalogue: skypilot-catalog's vms.csv, or a CSV file of gpuhunt.")],
    provider: Annotated[str, typer.Option(help="The provider.")],
    as_of: Annotated[
        datetime, typer.Option(formats=["%Y-%m-%d"], help="The day of these prices, as 2026-11-20.", metavar="DATE")
    ],
    source: Annotated[str, typer.Option(help="Source of the file: address and version.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The table to write. Default: standard output.")
    ] = None,
) -> ExitCode:
    """Convert a public price catalogue into a table for TRAINBENCH_PRICES. Counts the rows that it leaves out."""
    from trainbench.cost.job_estimates import skipped_table
    from trainbench.prices.price_import import as_toml, import_prices, import_summary

    imported = import_prices(file, provider, as_of.date(), source)
    text = as_toml(imported.prices)
    if output and text:
        if output.exists():  # it may hold rows written by hand
            raise UserError(f"{output} exists already: choose another name, TRAINBENCH_PRICES takes several")
        base.write_file(output, text)
    if not base.print_json(imported) and not output:
        typer.echo(text, nl=False)
    # On standard error: standard output may be the table itself.
    if imported.skipped:
        base.show(skipped_table(imported), stderr=True)
    base.show(f"{import_summary(imported)}.", stderr=True)
    return ExitCode.OK if imported.prices else ExitCode.USAGE


@app.command()
def estimate(
    samples: Annotated[int, typer.Option(min=1, help="Samples in one epoch.")],
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            help="Measured results: files, folders, or ids of campaigns. Default: none, an estimate by formula.",
            autocompletion=completions.campaigns,
        ),
    ] = None,
    epochs: Annotated[float, typer.Option(help="Number of epochs.")] = 1.0,
    model: Annotated[
        str | None,
        typer.Option(help="Model of the job, where no results are given.", autocompletion=completions.models),
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Recipe of the job: full, lora or qlora.")] = None,
    strategy: Annotated[
        Strategy | None, typer.Option(help="Strategy of the job. Default: single, or ddp on several GPUs.")
    ] = None,
    set_: Annotated[list[str] | None, base.set_option("Any other parameter of the job")] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, max=65_536, help="Number of GPUs in all. Default: as measured, else 1.")
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            help="The GPU, such as H200 or 'A100 80GB'. Default: as measured, else the smallest that fits.",
            autocompletion=completions.gpus,
        ),
    ] = None,
    samples_per_s: Annotated[float | None, typer.Option(help="Known samples/s of all GPUs together.")] = None,
    mfu: Annotated[float | None, typer.Option(help="Expected MFU, for a rate by formula.", metavar="%")] = None,
    price: Annotated[
        str,
        typer.Option(
            help="all, on-demand, spot, reserved, day, week, month, owned, or your own price in USD per GPU-hour. "
            "all: every kind of the price table, and owned where its details are given."
        ),
    ] = "all",
    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="NAME=VALUE",
            help="Spot: per_day (interruptions of one instance), checkpoint_every_minutes, restart_minutes. "
            "Owned: purchase_usd (without it the card's list price), life_years, utilisation, residual_share, "
            "opex_usd_per_gpu_hour. May be repeated.",
        ),
    ] = None,
    store_url: StoreUrl = None,
) -> ExitCode:
    """Estimate time and cost of a training job, at every price that fits its GPU."""
    from trainbench.core.number_checks import QuantityError
    from trainbench.cost.gpu_fit import meant_gpu, reading
    from trainbench.cost.job_estimates import (
        EstimateRequest,
        by_formula,
        estimate_table,
        headline,
        of_measured,
        pricing_of,
    )
    from trainbench.exchange.result_files import find_result_files, read_result_files
    from trainbench.prices.price_tables import exact_prices, load_prices

    prices = load_prices(base.read_settings().prices)
    if gpu and not sources:
        try:
            meant = meant_gpu(gpu)
        except QuantityError:
            if not exact_prices(gpu, prices):  # a price of one's own may name a GPU that nothing else is known of
                raise
        else:
            base.show(*filter(None, [reading(gpu, meant)]), stderr=True)
            gpu = meant
    given = {"model": model, "recipe": recipe}
    request = EstimateRequest(
        num_samples=samples,
        epochs=epochs,
        num_gpus=gpus,
        gpu=gpu,
        changes=base.named_values(set_) | {name: value for name, value in given.items() if value},
        strategy=strategy,
        samples_per_s=samples_per_s,
        mfu_pct=mfu,
    )
    market = (prices, pricing_of(price, base.named_values(with_, "--with")), _today())
    if sources:
        gathered = read_result_files(find_result_files(sources, base.open_store(store_url)))
        base.print_broken(gathered.broken)
        if not gathered.rows:
            raise UserError("no file holds a measured run: give other results, or the job and a rate")
        estimates = of_measured(request, gathered.rows, *market)
    else:
        estimates = (by_formula(request, *market),)
    table, lines = estimate_table(estimates), list[str]()
    for one in estimates:
        memory = [one.memory.sentence] if one.memory else []
        lines += [*([f"{one.job}:"] if len(estimates) > 1 else []), *memory, *one.assumptions, headline(one)]
    base.answer({"currency": "USD", "estimates": estimates}, table, *lines)
    missing = dict.fromkeys(line for one in estimates for line in one.missing)
    for line in missing:
        base.print_error(line)
    return ExitCode.USAGE if missing else ExitCode.OK


def _today() -> date:
    return datetime.now(UTC).date()

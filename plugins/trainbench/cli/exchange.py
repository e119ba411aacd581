"""Commands that compare, publish, import and re-index results: `compare`, `export`, `import`, `reindex`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainbench.cli import base, completions
from trainbench.cli.base import ExitCode, StoreUrl
from trainbench.core.user_error import UserError

if TYPE_CHECKING:
    from trainbench.results.campaign import Campaign

app = base.App("Results")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return not Path(text).exists()


@app.command()
def compare(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Result files, folders of them, bench_*.json files, or ids of campaigns.",
            autocompletion=completions.campaigns,
        ),
    ],
    cost: Annotated[
        list[float] | None,
        typer.Option(
            help="Price per GPU-hour of each row, in order: --cost 3.00 5.50. Default: the price table.", metavar="USD"
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Also write the comparison as an HTML page.", metavar="FILE")
    ] = None,
    store_url: StoreUrl = None,
) -> ExitCode:
    """Compare results of different machines on equal work: speed, memory and cost."""
    from trainbench.exchange import compare as comparing
    from trainbench.exchange.result_files import find_result_files, read_result_files
    from trainbench.prices.price_tables import load_prices

    # Behind the first price others may stand, as the encoder-decoder's own tool takes them: --cost 3.00 5.50 8.00
    prices = [source for source in sources if cost and _is_number(source)]
    named = [source for source in sources if source not in prices]
    files = find_result_files(named, base.open_store(store_url))
    with base.progress("files read") as on_progress:
        gathered = read_result_files(files, on_progress)
    costs = [*(cost or ()), *map(float, prices)]
    jobs = comparing.compare(gathered.rows, load_prices(base.read_settings().prices), costs)
    if html:
        base.write_file(html, comparing.comparison_html(jobs, gathered, html.absolute().parent))
    base.print_broken(gathered.broken)
    if not base.print_json(comparing.document(jobs, gathered.notes, gathered.broken)):
        tables = (table for section in comparing.sections(jobs) for table in section.tables)
        page = [str(html.absolute())] if html else []
        base.show(*tables, *gathered.notes, *comparing.summary(jobs), *page)
    if not gathered.rows:
        base.print_error("no file holds a measured run")
    if gathered.broken:
        return ExitCode.RED
    return ExitCode.OK if gathered.rows else ExitCode.NOT_JUDGED


@app.command()
def export(
    source: Annotated[
        str,
        typer.Argument(
            help="A result.json file, a folder with results, or a campaign's id.",
            autocompletion=completions.campaigns,
        ),
    ],
    run_id: Annotated[str | None, typer.Option("--run", help="The run to export, where there are several.")] = None,
    output: Annotated[Path, typer.Option(help="Folder to write to.", metavar="FOLDER")] = Path(),
    with_names: Annotated[
        bool, typer.Option("--with-names", help="Keep the names of nodes, pods, hosts and GPUs.")
    ] = False,
    store_url: StoreUrl = None,
) -> None:
    """Write one result for publication, without the names of its owner."""
    from trainbench.exchange.export import choose_result, export_file

    result = choose_result(source, run_id, base.open_store(store_url))
    name, text = export_file(result, with_names=with_names)
    base.write_file(output / name, text)
    path = str((output / name).absolute())
    base.answer({"run_id": result.spec.identity.run_id, "file": path}, path)


@app.command("import")
def import_(
    files: Annotated[list[Path], typer.Argument(help="Files that `trainbench export` wrote.")],
    store_url: StoreUrl = None,
) -> ExitCode:
    """Import published results into the store, each as a campaign of its own, for `compare`, `report` and the pages."""
    from bench_image.contract.frozen import ContractError
    from trainbench.exchange.export import imported_result
    from trainbench.exchange.reindex import imported_campaign
    from trainbench.exchange.result_files import MAX_FILE_BYTES
    from trainbench.history.database import HistoryError
    from trainbench.results.store_files import BrokenFile

    taken: dict[str, str] = {}
    campaigns: list[Campaign] = []
    broken: list[BrokenFile] = []
    store = base.open_store(store_url)
    for path in files:
        try:
            result = imported_result(base.read_file(path, MAX_FILE_BYTES))
        except (ContractError, UserError) as error:
            broken.append(BrokenFile(str(path), str(error)))
        else:
            campaigns.append(imported_campaign([result]))  # refuses wrong settings before anything is stored
            store.write_result(result)
            taken[str(path)] = result.spec.identity.campaign_id
    try:
        if campaigns:
            history = base.open_history(store_url)
            for campaign in campaigns:
                history.record(campaign)
    except HistoryError as error:
        base.print_error(f"{error}; the results are stored, and `trainbench reindex` brings them onto the pages")
    base.print_broken(broken)
    base.answer({"campaigns": taken, "left_out": broken}, *taken.values())
    return ExitCode.RED if broken else ExitCode.OK


@app.command()
def reindex(store_url: StoreUrl = None) -> ExitCode:
    """Build the history again from the artefacts of the store. Deletes nothing; Airflow may keep running."""
    from trainbench.core.formats import count
    from trainbench.exchange.reindex import reindex as rebuild

    store, history = base.open_store(store_url), base.open_history(store_url)
    with base.progress("campaigns") as on_progress:
        report = rebuild(store, history, on_progress)
    base.print_broken(report.broken)
    skipped = {"unpublished": report.unpublished, "imported": report.imported, "left_out": report.broken}
    words = {"unpublished": "without a verdict", "imported": "imported", "left_out": "unreadable"}
    rest = "".join(f", {len(names)} {words[kind]}" for kind, names in skipped.items() if names)
    recorded = f"{count(len(report.recorded), 'campaign')} recorded{rest}"
    base.answer({"recorded": report.recorded, **skipped}, recorded)
    if report.unpublished:
        first = report.unpublished[0]
        base.print_error(
            f"without a verdict no page shows a campaign: `trainbench report {first}` writes it; then reindex"
        )
    return ExitCode.RED if report.broken else ExitCode.OK

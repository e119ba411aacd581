"""The command `gpus`: facts of the known GPUs, and what fits them."""

from __future__ import annotations

from typing import Annotated

import typer

from trainbench.cli.base import AsJson, ExitCode, console, print_json, user_errors

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

"""Shared by all commands: exit codes, options, the console, errors of the user."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainbench.cli.json_output import CURRENT
from trainbench.core.formats import one_line
from trainbench.core.user_error import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from trainbench.results.stored_results import BrokenFile


class ExitCode(IntEnum):
    """The exit codes that scripts may rely on; `trainbench --help` prints them."""

    OK = 0
    RED = 1
    USAGE = 2
    NOT_JUDGED = 3
    CHANGED = 4


MAX_MESSAGE = 20_000  # characters
LONG = 20  # files or campaigns: fewer are read before anybody looks
PIPED_WIDTH = 120  # columns where standard output is no terminal

STORE_HELP = "Folder or URL. Default: TRAINBENCH_STORE, else a folder of this installation (docs/settings.md)."
StoreUrl = Annotated[str | None, typer.Option("--store", help=STORE_HELP)]
Who = Annotated[str | None, typer.Option(help="Your name. Default: the user of this machine.", metavar="NAME")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]


def console(stderr: bool = False) -> Console:
    from rich.console import Console

    shown = Console(stderr=stderr)
    return shown if shown.is_terminal else Console(stderr=stderr, width=PIPED_WIDTH)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on standard error, on a terminal and for long work only. Call the value with (done, total)."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    shown = console(stderr=True)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal) as bar:
        task = bar.add_task(what, total=None, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=total >= LONG)


def user_name() -> str:
    """Raises UserError where the machine does not know it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise UserError("your user name is not known here: give --who NAME") from None


def named_values(items: Sequence[str] | None, option: str = "--set", example: str | None = None) -> dict[str, str]:
    """Name -> value of an option that is given as NAME=VALUE, several times. Raises ParamsError."""
    from trainbench.params.refusals import ParamsError

    values = {}
    for item in items or ():
        name, equals, value = item.partition("=")
        if not equals:
            such = f", for example {option} {example}" if example else ""
            raise ParamsError(f"{option} {item!r} has no '=': write {option} NAME=VALUE{such}")
        if name.strip() in values:
            raise ParamsError(f"{option} gives {name.strip()!r:.100} twice: give it once")
        values[name.strip()] = value.strip()
    return values


def print_json(document: Any) -> None:
    """Put out the command's document, the field `data` of what `--json` prints; the last one counts."""
    output = CURRENT.get()
    assert output is not None, "the commands run in JsonContractGroup, which opens it where --json is given"
    output.data = document


def print_error(text: str) -> None:
    """Print one line on standard error without control characters; `--json` has it as a message."""
    line = one_line(text, most=MAX_MESSAGE).encode(errors="replace").decode()
    if output := CURRENT.get():
        output.messages.append(line)
    typer.echo(f"trainbench: {line}", err=True)


def print_broken(broken: Sequence[BrokenFile]) -> None:
    """Print the files that could not be read on standard error, one line each."""
    for file in broken:
        print_error(f"{file.address} is left out: {file.reason}"[:2000])


@contextmanager
def user_errors() -> Iterator[None]:
    """Print an error that the user can fix on standard error, and exit with code 2."""
    try:
        yield
    except UserError as error:
        print_error(str(error))
        raise typer.Exit(ExitCode.USAGE) from None

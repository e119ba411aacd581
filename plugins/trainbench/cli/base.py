"""Shared by all commands: exit codes, options, the console, errors of the user, and the contract of --json: exactly one
document on standard output, for success and failure; the rest on standard error.
"""

from __future__ import annotations

import getpass
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from pydantic_core import to_json
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from trainbench.cli import completions
from trainbench.core.formats import one_line
from trainbench.core.user_error import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from trainbench.core.tables import Table
    from trainbench.history.history import History
    from trainbench.results.artefacts import Store
    from trainbench.results.store_files import BrokenFile
    from trainbench.settings.environment import Settings


F = TypeVar("F", bound=Callable[..., Any])
SCHEMA_VERSION = 1
DEFECT = 70  # EX_SOFTWARE of sysexits.h: never mistaken for the verdict of a node
INTERRUPTED = (130, 143)  # 128 + SIGINT, 128 + SIGTERM
UNREAD = 141  # 128 + SIGPIPE
# Exit codes of a command that did its work; all others are failures.
ANSWERS = (0, 1, 3, 4)
MAX_MESSAGE = 20_000  # characters
LONG = 20  # files or campaigns: fewer are read before anybody looks
NORMAL = "What is normal for a node"  # a panel of the help
PIPED_WIDTH = 400  # columns where standard output is no terminal: `grep` finds whole rows


class ExitCode(IntEnum):
    """The exit codes that scripts may rely on; `trainbench --help` prints them."""

    OK = 0
    RED = 1
    USAGE = 2
    NOT_JUDGED = 3
    CHANGED = 4


# Options of several commands.
STORE_HELP = "Folder or URL. Default: TRAINBENCH_STORE, else a folder of this installation (docs/settings.md)."
StoreUrl = Annotated[str | None, typer.Option("--store", help=STORE_HELP)]
Who = Annotated[str | None, typer.Option(help="Your name. Default: the user of this machine.", metavar="NAME")]
Kubeconfig = Annotated[
    str | None, typer.Option(help="A kubeconfig file to use instead of the Airflow connection.", metavar="FILE")
]
Context = Annotated[str | None, typer.Option(help="The context of the kubeconfig.", metavar="NAME")]


def set_option(text: str) -> Any:
    """--set NAME=VALUE, with its help."""
    return typer.Option(
        "--set",
        "-s",
        metavar="NAME=VALUE",
        help=f"{text}; may be repeated.",
        autocompletion=completions.parameters,
    )


@dataclass
class Output:
    """The output of a command so far. `data`: its document; None: none yet."""

    command: str | None = None
    data: Any = None
    messages: list[str] = field(default_factory=list)


CURRENT: ContextVar[Output | None] = ContextVar("CURRENT", default=None)  # None: without --json


def _json_option() -> Any:
    made = typer.Typer()

    @made.command()
    def command(
        as_json: Annotated[
            bool, typer.Option("--json", expose_value=False, help="Print one JSON document on standard output.")
        ] = False,
    ) -> None:
        """Only its option counts: `Root.main` reads it."""

    return typer.main.get_command(made).params[0]


# What an option takes, in place of Python's type; a flag takes nothing.
TAKES = {
    "bool": "",
    "str": "TEXT",
    "path": "FILE",
    **dict.fromkeys(("int", "float", "int range", "float range"), "NUMBER"),
}


class _Plain:
    """Help and usage errors in plain words."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if isinstance(param, TyperArgument):
                param.metavar = param.metavar or str(param.name).upper()
                param.display_type_rich = lambda ctx: None  # type: ignore[method-assign]
            elif param.metavar is None and hasattr(param, "display_type"):  # before typer 0.29 its own words are shown
                takes = param.display_type(ctx).strip("<>")
                param.metavar = TAKES.get(takes, takes.replace("|", ", "))
        return params


class _Once(_Plain):
    """With the option --json; refuses an option that is given twice: click would silently drop the first value."""

    def __init__(self, *args: Any, params: list[Any] | None = None, **more: Any) -> None:
        super().__init__(*args, params=[*(params or []), _json_option()], **more)  # type: ignore[call-arg]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if output := CURRENT.get():
            output.command = ctx.command_path.partition(" ")[2]
        command: Any = self
        _, _, given = command.make_parser(ctx).parse_args(args=list(args))
        for option in given:
            has_one_value = isinstance(option, TyperOption) and not option.multiple and not option.is_flag
            if has_one_value and given.count(option) > 1:
                raise typer.BadParameter("it is given twice: give it once", ctx=ctx, param_hint=f"'{option.opts[0]}'")
        left: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        return left


class OnceCommand(_Once, TyperCommand):
    pass


class OnceGroup(_Once, TyperGroup):
    pass


class App(typer.Typer):
    """Commands of the command line. Each returns its exit code, or nothing where all is well. `panel`: their heading in
    the help.
    """

    def __init__(self, panel: str | None = None, **more: Any) -> None:
        super().__init__(**more)
        self.panel = panel

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = OnceCommand, **more: Any
    ) -> Callable[[F], F]:
        return super().command(name, cls=cls, rich_help_panel=self.panel, **more)


class Root(_Plain, TyperGroup):
    """The group of all commands: whatever happens to one, it ends with its code, and with `--json` as a document."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # typer would end with 1
            _end_unread()

    def main(  # type: ignore[override]
        self, args: Any = None, *, standalone_mode: bool = True, **options: Any
    ) -> Any:
        given = list(sys.argv[1:] if args is None else args) or ["--help"]
        ours = given[: given.index("--")] if "--" in given else given
        for_help = bool({"--help", "-h"} & set(ours))
        run: Callable[[], Any] = partial(super().main, given, standalone_mode=False, **options)
        if os.environ.get("_TRAINBENCH_COMPLETE") == "complete_bash":
            run = completions.for_bash()(run)
        try:
            code = write_document(run) if "--json" in ours and not for_help else ended(run)
        except BrokenPipeError:
            _end_unread()
        if for_help and code == 1:  # rich's: the reader of the help has ended
            _end_unread()
        sys.exit(code)


def ended(run: Callable[[], Any]) -> int:
    """Run a command; its exit code, its errors printed."""
    try:
        code = run()
    except SystemExit as error:
        code = error.code
    except KeyboardInterrupt:
        code = INTERRUPTED[0]
    except UserError as error:
        print_error(str(error))
        code = ExitCode.USAGE
    except Exception as error:
        if callable(getattr(error, "format_message", None)):  # typer's own: an option is wrong or missing
            context: Any = getattr(error, "ctx", None)
            see = f" (see {context.command_path} --help)" if context else ""
            print_error(f"{error.format_message().rstrip('.')}{see}".replace(": Value error, ", ": "))  # type: ignore[attr-defined]
            return int(getattr(error, "exit_code", ExitCode.USAGE))
        traceback.print_exc()
        print_error(f"{type(error).__name__}: {error}; this is a defect of trainbench, with its traceback above")
        code = DEFECT
    return code if isinstance(code, int) else 0 if code is None else 1


def write_document(run: Callable[[], Any]) -> int:
    """Run a command, write its document, and return its exit code. Prints of libraries go to standard error."""
    output, stdout = Output(), sys.stdout
    before = CURRENT.set(output)
    try:
        with redirect_stdout(sys.stderr):
            code = ended(run)
    finally:
        CURRENT.reset(before)
    error = None
    if code not in ANSWERS or output.data is None:
        kind = "interrupted" if code in INTERRUPTED else "defect" if code == DEFECT else "usage"
        default = "stopped before the end" if code in INTERRUPTED else f"the command ended with exit code {code}"
        error = {"kind": kind, "message": "; ".join(output.messages) or default}
    document = {
        "schema_version": SCHEMA_VERSION,
        "command": output.command,
        "exit_code": code,
        "error": error,
        "messages": output.messages,
        "data": output.data,
    }
    # JSON has no NaN and no infinity: null.
    stdout.write(to_json(document, indent=1, inf_nan_mode="null", ensure_ascii=True).decode() + "\n")
    stdout.flush()
    return code


def print_json(document: Any) -> bool:
    """Put out the command's document, the field `data` of what `--json` prints; the last one counts. False: without
    --json, so the command prints for people.
    """
    output = CURRENT.get()
    if output:
        output.data = document
    return output is not None


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


def console(stderr: bool = False) -> Console:
    from rich.console import Console

    shown = Console(stderr=stderr)
    shown = shown if shown.is_terminal else Console(stderr=stderr, width=PIPED_WIDTH)
    shown.on_broken_pipe = _end_unread  # type: ignore[method-assign]
    return shown


def _end_unread() -> None:
    """End a command whose reader has ended, as `head` does: rich and typer would exit with 1, which is a red node."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(UNREAD)


def show(*parts: Table | str, stderr: bool = False) -> None:
    """Print tables, with title and notes, and sentences, each on a line of its own."""
    from trainbench.reporting.terminal import plain, titled

    for part in parts:
        console(stderr).print(plain(part) if isinstance(part, str) else titled(part), soft_wrap=isinstance(part, str))


def answer(document: Any, *parts: Table | str) -> None:
    """The document with --json, else the parts for people."""
    if not print_json(document):
        show(*parts)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on standard error, on a terminal and for long work only. Call the value with (done, total)."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    shown = console(stderr=True)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal) as bar:
        task = bar.add_task(what, total=None, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=total >= LONG)


def read_settings() -> Settings:
    from trainbench.settings.environment import read_settings

    return read_settings()


def open_store(url: str | None = None) -> Store:
    from trainbench.results.artefacts import open_store

    return open_store(url)


def open_history(store_url: str | None) -> History:
    from trainbench.history.history import open_history

    return open_history(store=open_store(store_url))


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


def read_file(path: Path, most: int) -> bytes:
    """The content of a file that a person named. Raises UserError, also for more than `most` bytes."""
    from upath import UPath

    from trainbench.results.store_files import read_bounded

    try:
        path.stat()
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return read_bounded(UPath(path.absolute()), most)


def write_file(path: Path, content: str | bytes) -> None:
    """Write the content, in place of what is there. Raises UserError where the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None

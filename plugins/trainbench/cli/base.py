"""Shared by all commands: exit codes, options, the console, errors of the user, and the contract of --json: exactly one
document on standard output, for success and failure; the rest on standard error.
"""

from __future__ import annotations

import getpass
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic_core import to_json
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.models import CommandFunctionType

from trainbench.core.formats import one_line, visible
from trainbench.core.user_error import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from trainbench.results.stored_results import BrokenFile


SCHEMA_VERSION = 1
DEFECT = 70  # EX_SOFTWARE of sysexits.h: never mistaken for the verdict of a node
INTERRUPTED = (130, 143)  # 128 + SIGINT, 128 + SIGTERM
# Exit codes of a command that did its work; all others are failures.
ANSWERS = (0, 1, 3, 4)


@dataclass
class Output:
    """The output of a command so far. `data`: its document; None: none yet."""

    command: str | None
    data: Any = None
    messages: list[str] = field(default_factory=list)


CURRENT: ContextVar[Output | None] = ContextVar("CURRENT", default=None)


class OnceCommand(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _refuse_repeated(self, ctx, args)
        return super().parse_args(ctx, args)


class OnceGroup(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _refuse_repeated(self, ctx, args)
        return super().parse_args(ctx, args)


def _refuse_repeated(command: OnceCommand | OnceGroup, ctx: Any, args: list[str]) -> None:
    """Refuse an option that is given twice: click would silently drop the first value."""
    _, _, given = command.make_parser(ctx).parse_args(args=list(args))
    for option in given:
        has_one_value = isinstance(option, TyperOption) and not option.multiple and not option.is_flag
        if has_one_value and given.count(option) > 1:
            raise typer.BadParameter("it is given twice: give it once", ctx=ctx, param_hint=f"'{option.opts[0]}'")


class App(typer.Typer):
    """Commands of the command line."""

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = OnceCommand, **more: Any
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        return super().command(name, cls=cls, **more)


class JsonContractGroup(TyperGroup):
    """The group of all commands. With `--json` it writes the document, whatever happens to the command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _visible_errors():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _visible_errors():
            return super().invoke(ctx)

    def main(  # the signature is typer's
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        more = {
            "prog_name": prog_name,
            "complete_var": complete_var,
            "windows_expand_args": windows_expand_args,
            **extra,
        }
        run = super().main
        given = list(sys.argv[1:] if args is None else args)
        options = given[: given.index("--")] if "--" in given else given
        if "--json" not in options or "--help" in options:
            try:
                return run(args, standalone_mode=standalone_mode, **more)
            except Exception:
                if not standalone_mode:
                    raise
                traceback.print_exc()
                sys.exit(DEFECT)
        command = _command_name(self, given)
        sys.exit(write_document(command, lambda: run(given, standalone_mode=False, **more)))


@contextmanager
def _visible_errors() -> Iterator[None]:
    """Typer repeats a wrong option as it was given: without characters that turn the direction of writing."""
    try:
        yield
    except Exception as error:
        if _is_of_usage(error):
            error.message = visible(str(error.message))  # type: ignore[attr-defined]
        raise


def _is_of_usage(error: Exception) -> bool:
    """Whether it is typer's own: an option is wrong or missing."""
    return callable(getattr(error, "format_message", None))


def write_document(command: str | None, run: Callable[[], Any]) -> int:
    """Run the command, write its document, and return its exit code. Prints of libraries go to standard error."""
    output, error, stdout = Output(command), None, sys.stdout
    before = CURRENT.set(output)
    try:
        with redirect_stdout(sys.stderr):
            code, error = _run(run, output)
    finally:
        CURRENT.reset(before)
    if error is None and (code not in ANSWERS or output.data is None):
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


def _run(run: Callable[[], Any], output: Output) -> tuple[int, dict[str, str] | None]:
    """The exit code, and the error of a usage or a defect."""
    try:
        code = run()
    except SystemExit as error:
        code = error.code
    except KeyboardInterrupt:
        code = INTERRUPTED[0]
    except Exception as error:
        if _is_of_usage(error):
            message = " ".join(str(error.format_message()).split())  # type: ignore[attr-defined]
            sys.stderr.write(f"trainbench: {message}\n")
            return int(getattr(error, "exit_code", 2)), {"kind": "usage", "message": message}
        traceback.print_exc()
        message = f"{type(error).__name__}: {error}; this is a defect of trainbench, standard error has the traceback"
        return DEFECT, {"kind": "defect", "message": message}
    return (code if isinstance(code, int) else 0 if code is None else 1), None


def _command_name(group: Any, args: Sequence[str]) -> str | None:
    """The command with its group, as "baseline accept"; None where the arguments name none."""
    names = []
    for argument in args:
        commands: Mapping[str, Any] = getattr(group, "commands", {})
        if argument in commands:
            names.append(argument)
            group = commands[argument]
        elif not argument.startswith("-"):
            break
    return " ".join(names) or None


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

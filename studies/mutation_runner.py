"""Runs tests against mutants of a module, each in a fork of one process that has collected the tests.

    python studies/mutation_runner.py MUTANTS.jsonl OUTCOMES.jsonl SOURCE_ROOTS TEST...

MUTANTS.jsonl: what studies/mutants.py prints. OUTCOMES.jsonl gets a line for each: the mutant without its source, and
`outcome` ("killed", "survived", "timeout") with the `test` that failed. Lines that are there already are not run
again, so an interrupted run goes on where it ended. SOURCE_ROOTS: packages to import anew, as
"trainbench,bench_image,tests". A mutant's budget is CPU time, so a busy machine makes no timeouts; one that waits
for ever without computing is "stuck" after an hour. TEST may be an option of pytest, such as --deselect=NAME.

1. All tests run once, to know which of them enter which function and how long each takes.
2. A mutant inside a function: its code is put into the function object, and the tests that enter it run, fastest first.
3. A mutant outside of functions, and every one that 2. did not kill: modules and tests are imported anew with the
   mutated source, and all test files run that enter the module. Only what survives this has survived.
"""

from __future__ import annotations

import gc
import importlib.abc
import importlib.machinery
import importlib.util
import json
import math
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

Mutant = dict[str, Any]
Place = tuple[str, str, int]  # file, qualified name, first line
TIMED_OUT, STUCK = -1, -2
STUCK_AFTER_S = 3600.0
SEED = 20261122


def main() -> int:
    mutants, outcomes, roots, *tests = sys.argv[1:]
    runner = Runner(Path(mutants), Path(outcomes), tuple(roots.split(",")), tests)
    return int(pytest.main(["-q", "-p", "no:cacheprovider", "--timeout=0", *tests], plugins=[runner]))


class Runner:
    """A pytest plugin: collects as usual, then runs mutants in place of tests."""

    def __init__(self, mutants: Path, outcomes: Path, roots: tuple[str, ...], tests: Sequence[str]) -> None:
        lines = mutants.read_text(encoding="utf-8").splitlines()
        self.mutants: list[Mutant] = [json.loads(line) for line in lines]
        self.outcomes, self.roots, self.tests = outcomes, roots, tests
        self.entered: dict[Place, list[str]] = {}  # node ids of tests
        self.took_s: dict[str, float] = {}
        self.functions: dict[Place, list[FunctionType]] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        paths = {str(Path(mutant["path"]).resolve()) for mutant in self.mutants}
        entered, self.took_s, failed = in_fork(lambda: profiled(session, paths))
        self.entered = {(file, name, line): names for file, name, line, names in entered}
        if failed:
            raise pytest.UsageError(f"the tests fail without a mutant: {failed[0]}")
        self.functions = functions_of(paths)
        self._check_import(self.mutants[0])
        done = {json.loads(line)["key"] for line in _lines_of(self.outcomes)}
        gc.freeze()  # forks then write to few pages
        with self.outcomes.open("a", encoding="utf-8") as file:
            for number, mutant in enumerate(self.mutants, start=1):
                if mutant["key"] not in done:
                    row = {name: value for name, value in mutant.items() if name != "source"}
                    outcome, test = self.outcome(session, mutant)
                    file.write(json.dumps({**row, "outcome": outcome, "test": test}) + "\n")
                    file.flush()
                    os.write(2, f"{number}/{len(self.mutants)} {outcome} {mutant['path']}:{mutant['line']}\n".encode())
        return True

    def outcome(self, session: pytest.Session, mutant: Mutant) -> tuple[str, str | None]:
        """(outcome, first test that failed)"""
        patched = code_of(mutant)
        if patched:
            place, code = patched
            chosen = sorted(self.entered.get(place, ()), key=lambda name: self.took_s[name])
            cpu_s = 10 + 5 * sum(self.took_s[name] for name in chosen)
            failure = (
                in_fork(lambda: with_code(session, self.functions.get(place, []), code, chosen), cpu_s)
                if chosen
                else None
            )
            if failure:
                return _outcome(failure)
        return _outcome(in_fork(lambda: self.anew(mutant), 60 + 5 * sum(self.took_s.values())))

    def anew(self, mutant: Mutant) -> str | None:
        for name in [n for n in sys.modules if n.split(".")[0] in self.roots or n == "conftest"]:
            del sys.modules[name]
        sys.meta_path.insert(0, Mutated(str(Path(mutant["path"]).resolve()), mutant["source"]))
        first = FirstFailure()
        chosen = self._likely(mutant)
        flags = ["-q", "-x", "-p", "no:cacheprovider", "--timeout=0", *(t for t in self.tests if t.startswith("-"))]
        status = pytest.main([*flags, *chosen], plugins=[first])
        return first.name or (None if status == 0 else "collection")

    def _check_import(self, mutant: Mutant) -> None:
        """All tests must pass when modules are imported anew with an unchanged source: else that would kill mutants."""
        source = Path(mutant["path"]).read_text(encoding="utf-8")
        if failed := in_fork(lambda: self.anew({**mutant, "source": source})):
            raise pytest.UsageError(f"the tests fail when modules are imported anew: {failed}")

    def _likely(self, mutant: Mutant) -> Sequence[str]:
        """The test files that enter the module; all where none does."""
        path = str(Path(mutant["path"]).resolve())
        near = {name.split("::")[0] for (file, *_), names in self.entered.items() if file == path for name in names}
        return sorted(near or {name.split("::")[0] for name in self.took_s})


def _outcome(failure: Any) -> tuple[str, str | None]:
    """(outcome, first test that failed) from what the fork gave."""
    if failure in (TIMED_OUT, STUCK):
        return "timeout" if failure == TIMED_OUT else "stuck", None
    return ("killed", failure) if failure else ("survived", None)


class FirstFailure:
    """A pytest plugin: the first test that failed, or whose set-up did."""

    def __init__(self) -> None:
        self.name: str | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.name is None:
            self.name = report.nodeid


class Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives one module the mutated source."""

    def __init__(self, path: str, source: str) -> None:
        self.path, self.source = path, source

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.origin != self.path:
            return None
        return importlib.util.spec_from_file_location(name, self.path, loader=_Source(name, self.path, self.source))


class _Source(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self._mutated = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._mutated, self.path, "exec", dont_inherit=True)


def profiled(session: pytest.Session, paths: set[str]) -> tuple[list[Any], dict[str, float], list[str]]:
    """Runs all tests: (place, names of the tests that enter it) for the functions of `paths`, the seconds of CPU time
    that each test takes, and those that failed.
    """
    entered: dict[Place, set[str]] = {}
    took_s: dict[str, float] = {}
    failures: list[str] = []

    for item in session.items:

        def note(frame: FrameType, event: str, _: Any, name: str = item.nodeid) -> None:
            code = frame.f_code
            if event == "call" and code.co_filename in paths:
                entered.setdefault(_place(code), set()).add(name)

        began = time.process_time()
        sys.setprofile(note)
        failed = run_item(session, item)
        sys.setprofile(None)
        took_s[item.nodeid] = time.process_time() - began
        if failed:
            failures.append(failed)
    return [(*place, sorted(names)) for place, names in entered.items()], took_s, failures


def with_code(
    session: pytest.Session, functions: Sequence[FunctionType], code: CodeType, chosen: Sequence[str]
) -> str | None:
    for function in functions:
        function.__code__ = code
    items = {item.nodeid: item for item in session.items}
    return next(filter(None, (run_item(session, items[name]) for name in chosen)), None)


def run_item(session: pytest.Session, item: pytest.Item) -> str | None:
    """The name of the test when it failed."""
    from _pytest.runner import runtestprotocol

    reports = runtestprotocol(item, log=False, nextitem=None)
    return item.nodeid if any(report.failed for report in reports) else None


def functions_of(paths: set[str]) -> dict[Place, list[FunctionType]]:
    functions: dict[Place, list[FunctionType]] = {}
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType) and thing.__code__.co_filename in paths:
            functions.setdefault(_place(thing.__code__), []).append(thing)
    return functions


def code_of(mutant: Mutant) -> tuple[Place, CodeType] | None:
    """The outermost function that the mutant changes, and its new code; None where it changes more than that."""
    path = str(Path(mutant["path"]).resolve())
    old = compile(Path(path).read_text(encoding="utf-8"), path, "exec", dont_inherit=True)
    new = compile(mutant["source"], path, "exec", dont_inherit=True)
    return _changed(old, new)


def _changed(old: CodeType, new: CodeType) -> tuple[Place, CodeType] | None:
    """Descends through module and classes: their own instructions must be the same."""
    if old.co_code != new.co_code or old.co_names != new.co_names or len(old.co_consts) != len(new.co_consts):
        return None
    apart = [(a, b) for a, b in zip(old.co_consts, new.co_consts, strict=True) if not _same(a, b)]
    if len(apart) != 1 or not all(isinstance(side, CodeType) for side in apart[0]):
        return None
    a, b = apart[0]
    is_function = bool(a.co_flags & 0x02)  # CO_NEWLOCALS: not a class body
    if not is_function:
        return _changed(a, b)
    if a.co_freevars != b.co_freevars or a.co_argcount != b.co_argcount or a.co_firstlineno != b.co_firstlineno:
        return None
    return _place(a), b


def _same(a: object, b: object) -> bool:
    return type(a) is type(b) and repr(a) == repr(b) if not isinstance(a, CodeType) else a == b


def _place(code: CodeType) -> Place:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def in_fork(work: Callable[[], Any], cpu_s: float = 1800.0) -> Any:
    """Run `work` in a child process and return its value; TIMED_OUT after so many seconds of CPU time, STUCK after
    STUCK_AFTER_S on the clock; a text if it died.
    """
    with tempfile.NamedTemporaryFile() as answer:
        pid = os.fork()
        if pid == 0:
            _child(work, answer.name, math.ceil(cpu_s))
        ends_at = time.monotonic() + STUCK_AFTER_S
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                break
            if time.monotonic() > ends_at:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return STUCK
            time.sleep(0.005)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
            return TIMED_OUT
        if status:
            return f"the process ended with {status}"
        return json.loads(Path(answer.name).read_text(encoding="utf-8"))


def _child(work: Callable[[], Any], answer: str, cpu_s: int) -> None:
    status = 1
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 60))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        random.seed(SEED)
        Path(answer).write_text(json.dumps(work()), encoding="utf-8")
        status = 0
    finally:
        os._exit(status)


def _lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


if __name__ == "__main__":
    sys.exit(main())

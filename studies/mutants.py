"""Makes the mutants of some modules with cosmic-ray: one JSON object a line. Runs in the environment that holds it.

    python studies/mutants.py PLAN.json > mutants.jsonl

PLAN.json has either `only`, key (see `_key`) -> `before` of the mutants to make, and `files`, where they are; or

    seed   the sample: the same mutants again, whatever else changes
    size   how many to draw from all files together
    files  their paths. A file gives mutants in proportion to its candidates, one at least
    seen   keys of mutants that are not drawn: somebody has looked at them before

Each line: `key`, `path`, `operator`, `line`, `function` (dotted name, "" on module level), `before` and `after` (the
lines that differ), `candidates` (how many the file has) and `source` (the whole mutated module). Left out, because they
change nothing that a result could show: annotations, which are never evaluated here; decorators and `strict=`, which
guard against mistakes of programmers; and numbers from 100 up, which cosmic-ray changes by 1 and so by at most 1 %.

cosmic-ray replaces every comparison by every other one. Kept are the neighbour (< by <=) and the opposite (< by >=),
and one opposite of each arithmetic operator. Added are the calls that an audit of this project found untested: another
mean, extreme or rounding in place of the right one.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

OPERATORS = (
    *(
        f"core/ReplaceComparisonOperator_{pair}"
        for pair in (
            "Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Lt_GtE", "LtE_Gt", "Gt_LtE", "GtE_Lt",
            "Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is",
        )
    ),
    *(
        f"core/ReplaceBinaryOperator_{pair}"
        for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Mod_Mul", "Pow_Mul", "BitAnd_BitOr")
    ),
    "core/NumberReplacer",
    "core/AddNot",
    "core/ReplaceTrueWithFalse",
    "core/ReplaceFalseWithTrue",
    "core/ReplaceAndWithOr",
    "core/ReplaceOrWithAnd",
    "core/ReplaceBreakWithContinue",
    "core/ReplaceContinueWithBreak",
    "core/ReplaceUnaryOperator_USub_UAdd",
    "core/ReplaceUnaryOperator_Delete_Not",
    "core/ZeroIterationForLoop",
)  # fmt: skip
BARELY = 100
OTHER_CALLS = {
    "median": "fmean", "fmean": "median", "max": "min", "min": "max", "ceil": "floor", "floor": "ceil",
    "any": "all", "all": "any", "sqrt": "fabs", "sum": "max",
}  # fmt: skip


class Candidate(NamedTuple):
    """A mutant before it is made. `occurrence`: of the operator in its file."""

    path: str
    operator: str
    occurrence: int
    line: int
    column: int
    function: str
    order: str  # a hash: candidates in this order are a random sample that edits elsewhere do not change


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    by_path = {path: list(candidates(path, plan.get("seed", ""))) for path in plan["files"]}
    if "only" in plan:
        _print_only(by_path, plan["only"])
        return
    total, seen = sum(map(len, by_path.values())), set(plan["seen"])
    for of_file in by_path.values():
        number = max(1, round(plan["size"] * len(of_file) / total)) if total else 0
        for row in itertools.islice(_unseen(of_file, seen), number):
            print(json.dumps(row))


def _unseen(of_file: Sequence[Candidate], seen: set[str]) -> Iterator[dict[str, Any]]:
    """The mutants in the sample's order. `seen` grows: equal lines of one function give one mutant."""
    for candidate in sorted(of_file, key=lambda c: c.order):
        row = _row(candidate, len(of_file))
        if row and row["key"] not in seen:
            seen.add(row["key"])
            yield row


def _print_only(by_path: Mapping[str, Sequence[Candidate]], only: Mapping[str, str]) -> None:
    made: set[str] = set()
    for path, all_of_file in by_path.items():
        lines = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines()]
        for candidate in all_of_file:
            if not any(lines[candidate.line - 1] in before for before in only.values()):
                continue  # making it would tell the same, and takes long
            row = _row(candidate, len(all_of_file))
            if row and row["key"] in only and row["key"] not in made:
                made.add(row["key"])
                print(json.dumps(row))


def _row(candidate: Candidate, num_candidates: int) -> dict[str, Any] | None:
    """None where the change makes no other program."""
    source = Path(candidate.path).read_text(encoding="utf-8")
    changed = _changed(candidate, source)
    if changed is None or changed == source or not _is_code(changed):
        return None
    before, after = _lines(source, changed)
    row = {"key": _key(candidate, before, after), "path": candidate.path, "operator": candidate.operator}
    row |= {"line": candidate.line, "function": candidate.function, "before": before, "after": after}
    return {**row, "candidates": num_candidates, "source": changed}


def _key(candidate: Candidate, before: str, after: str) -> str:
    """The mutant's name as long as its lines stay as they are, wherever in the function they move: 12 hex digits."""
    text = " | ".join((candidate.path, candidate.function, before, after))
    return sha256(text.encode()).hexdigest()[:12]


def candidates(path: str, seed: str) -> Iterator[Candidate]:
    source = Path(path).read_text(encoding="utf-8")
    tree, lines = ast.parse(source), source.splitlines()
    left_out = list(_left_out(tree))
    seen: dict[tuple[str, str], int] = {}
    for operator, occurrence, line, column in (*_by_cosmic_ray(source), *_other_calls(tree)):
        if any(begin <= (line, column) < end for begin, end in left_out):
            continue
        text = (operator, lines[line - 1])
        seen[text] = seen.get(text, 0) + 1
        order = sha256(f"{seed} {path} {text} {seen[text]}".encode()).hexdigest()
        yield Candidate(path, operator, occurrence, line, column, _function(tree, line), order)


def _by_cosmic_ray(source: str) -> Iterator[tuple[str, int, int, int]]:
    nodes = list(ast_nodes(get_ast(source)))
    for name in OPERATORS:
        operator = get_operator(name)()
        positions = [start for node in nodes for start, _ in operator.mutation_positions(node)]
        for occurrence, (line, column) in enumerate(positions):
            yield name.removeprefix("core/"), occurrence, line, column


def _other_calls(tree: ast.AST) -> Iterator[tuple[str, int, int, int]]:
    """Whatever is called or handed on by such a name: `statistics.median(x)`, `key=max`."""
    for node in ast.walk(tree):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None
        if name in OTHER_CALLS and isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            end = node.end_col_offset or 0
            yield f"OtherCall_{name}_{OTHER_CALLS[name]}", 0, node.end_lineno or 1, end - len(name)


def _changed(candidate: Candidate, source: str) -> str | None:
    if not candidate.operator.startswith("OtherCall"):
        changed: str | None = mutate_code(source, get_operator(f"core/{candidate.operator}")(), candidate.occurrence)
        return changed
    _, name, other = candidate.operator.split("_")
    lines = source.splitlines(keepends=True)
    row, begin = lines[candidate.line - 1].encode(), candidate.column
    lines[candidate.line - 1] = (row[:begin] + other.encode() + row[begin + len(name) :]).decode()
    return "".join(lines)


def _left_out(tree: ast.AST) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """(begin, end) of each place where nothing is mutated, as (line, column)."""
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            parts += node.decorator_list
        if isinstance(node, ast.keyword) and node.arg == "strict":
            parts.append(node.value)
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and abs(node.value) >= BARELY:
            parts.append(node)
        if isinstance(node, ast.AnnAssign | ast.arg):
            parts.append(node.annotation)
        if isinstance(node, ast.FunctionDef):
            parts.append(node.returns)
        for part in parts:
            if isinstance(part, ast.expr):
                yield (part.lineno, part.col_offset), (part.end_lineno or 0, part.end_col_offset or 0)


def _is_code(source: str) -> bool:
    try:
        compile(source, "mutant", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def _function(tree: ast.Module, line: int) -> str:
    names: list[str] = []
    body: list[ast.stmt] = list(tree.body)
    while body:
        inside = [
            node
            for node in body
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
            and min([node.lineno, *(d.lineno for d in node.decorator_list)]) <= line <= (node.end_lineno or 0)
        ]
        if not inside:
            break
        names.append(inside[0].name)
        body = list(inside[0].body)
    return ".".join(names)


def _lines(source: str, changed: str) -> tuple[str, str]:
    diff = list(difflib.unified_diff(source.splitlines(), changed.splitlines(), n=0, lineterm=""))[3:]
    before, after = ([line[1:].strip() for line in diff if line.startswith(sign)] for sign in "-+")
    return " / ".join(before), " / ".join(after)


if __name__ == "__main__":
    main()

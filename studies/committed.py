"""The JSON documents of docs/results, most of them packed: a line each of one `documents.jsonl` for each measurement.

python studies/committed.py list [PATTERN]                      # what is there
python studies/committed.py unpack PATTERN OUT                  # as files again, for trainbench check, report, compare
python studies/committed.py pack FOLDER                         # every JSON file below it, into FOLDER/documents.jsonl
"""

from __future__ import annotations

import argparse
import json
import re
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
PACKED = "documents.jsonl"
LINE = re.compile(r'\{"path": "([^"]+)", "document": (.*)\}')


@cache
def _documents() -> dict[str, str]:
    found = {str(path.relative_to(RESULTS)): path.read_text() for path in RESULTS.rglob("*.json")}
    for packed in RESULTS.rglob(PACKED):
        for line in packed.read_text().splitlines():
            match = LINE.fullmatch(line)
            assert match, f"{packed}: no line of `pack`: {line[:80]}"
            found[str((packed.parent / match[1]).relative_to(RESULTS))] = match[2]
    return dict(sorted(found.items()))


def committed(pattern: str) -> dict[str, str]:
    """The documents by path below docs/results; `*` stands for any characters, `/` among them."""
    return {path: text for path, text in _documents().items() if fnmatchcase(path, pattern)}


def pack(folder: Path) -> None:
    files = sorted(folder.rglob("*.json"))
    lines = [
        f'{{"path": "{path.relative_to(folder)}", "document": {json.dumps(json.loads(path.read_text()))}}}\n'
        for path in files
    ]
    packed = folder / PACKED
    earlier = packed.read_text().splitlines(keepends=True) if packed.exists() else []
    packed.write_text("".join(sorted([*earlier, *lines])))
    for path in files:
        path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list").add_argument("pattern", nargs="?", default="*")
    unpacking = commands.add_parser("unpack")
    unpacking.add_argument("pattern")
    unpacking.add_argument("out", type=Path)
    commands.add_parser("pack").add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.command == "pack":
        pack(options.folder)
        return
    for path, text in committed(options.pattern).items():
        if options.command == "list":
            print(path)
        else:
            file = options.out / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)


if __name__ == "__main__":
    main()

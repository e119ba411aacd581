"""`python -m bench_image`: runs one benchmark from its RunSpec and prints the result."""

from __future__ import annotations

import argparse
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from bench_image.contract.frozen import ContractError
from bench_image.contract.parse import parse_spec
from bench_image.contract.pod_io import OUTPUT_DIR_ENV, POD_ENV, RESULT_FILE, SPEC_ENV
from bench_image.contract.result import Phase, RunResult, Status, failed_result
from bench_image.contract.result_lines import result_lines
from bench_image.contract.spec import RunSpec
from bench_image.process.exit_codes import BAD_SPEC, EXIT_CODES
from bench_image.process.supervisor import publish, supervise

HELP = f"""\
Runs one training benchmark on this machine and writes what it measured to {RESULT_FILE}.
The same JSON is the last line on stdout; progress and the libraries' output go to stderr. In a pod, where {POD_ENV} is
set, it leaves as numbered lines instead, which `trainbench result` reads."""
EXITS = "exit status: " + ", ".join(f"{code} {status.value}" for status, code in EXIT_CODES.items())


def main() -> int:
    """Runs the spec of --spec or of the environment; returns the exit status."""
    parser = argparse.ArgumentParser(
        "python -m bench_image",
        description=HELP,
        epilog=f"{EXITS}; {BAD_SPEC}: the spec is not valid, and nothing was run.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--spec", type=Path, metavar="FILE", help=f"RunSpec as JSON; without it, the environment variable {SPEC_ENV}"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        default=Path(os.environ.get(OUTPUT_DIR_ENV, ".")),
        help=f"folder for {RESULT_FILE} and each rank's own file; without it, {OUTPUT_DIR_ENV} or the current folder",
    )
    arguments = parser.parse_args()
    try:
        spec = parse_spec(_spec_text(arguments.spec))
    except ContractError as error:
        sys.stderr.write(f"bench_image: {error}\n")
        return BAD_SPEC
    result, published = _run(spec, arguments.output)
    # The result goes to stdout also when no file can be written.
    text = result.model_dump_json()
    for line in result_lines(text) if POD_ENV in os.environ else (text,):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()  # each line in one piece: other processes of the pod write there too
    return EXIT_CODES[result.status] if published else EXIT_CODES[Status.ERROR]


def _run(spec: RunSpec, output: Path) -> tuple[RunResult, bool]:
    """Runs the spec; the result, and whether its files could be written."""
    result = None
    try:
        result = supervise(spec, output, os.environ)
        publish(result, output)
    except OSError as error:
        message = f"the result cannot be written: {error}"
        sys.stderr.write(f"bench_image: {message}\n")
        kind, now = type(error).__name__, datetime.now(UTC)
        failed = failed_result(spec, status=Status.ERROR, kind=kind, message=message, phase=Phase.LAUNCH, at=now)
        return result or failed, False
    return result, True


def _spec_text(path: Path | None) -> str:
    if path is not None:
        try:
            return path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ContractError(f"the run spec cannot be read: {error}") from None
    if SPEC_ENV not in os.environ:
        raise ContractError(f"there is no run spec: set {SPEC_ENV} to its JSON, or give --spec FILE")
    return os.environ[SPEC_ENV]


if __name__ == "__main__":
    sys.exit(main())

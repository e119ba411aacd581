"""Hostile inputs: the damaged documents of tests/unit/test_hostile_inputs.py, as many as are asked for.

    PYTHONPATH=.:plugins python studies/fuzz_inputs.py OUTPUT.json --inputs 100000 --seed 12

Each reader answers with a value or its own error. Anything else is a surprise, noted with the seed of its input.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.unit.test_hostile_inputs import Reader, damage, is_refused, readers

MAX_SHOWN = 50  # surprises of one reader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--inputs", type=int, default=100_000, help="of all readers together, rounded up")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began_s = time.process_time()
    with TemporaryDirectory() as folder:
        known = readers(Path(folder))
        each = -(-options.inputs // len(known))
        answers = {name: answers_of(name, reader, each, options.seed) for name, reader in known.items()}
    summary = {"inputs": each * len(answers), "seed": options.seed, "cpu_s": round(time.process_time() - began_s)}
    options.output.write_text(json.dumps({**summary, "readers": answers}, indent=1) + "\n")
    print(json.dumps(summary), sum(len(of_reader["surprises"]) for of_reader in answers.values()), "surprises")


def answers_of(name: str, reader: Reader, inputs: int, seed: int) -> dict[str, Any]:
    refused, slowest_cpu_s, surprises = 0, 0.0, list[dict[str, str]]()
    for index in range(inputs):
        of_input = f"{seed} {name} {index}"
        damaged = damage(reader.document, random.Random(of_input))  # noqa: S311
        began_s = time.process_time()
        try:
            refused += is_refused(reader, damaged)
        except Exception as error:
            surprises.append({"seed": of_input, "error": f"{type(error).__name__}: {error}"[:1000]})
        slowest_cpu_s = max(slowest_cpu_s, time.process_time() - began_s)
    taken = inputs - refused - len(surprises)
    counts = {"inputs": inputs, "refused": refused, "taken": taken, "slowest_cpu_s": round(slowest_cpu_s, 3)}
    return {**counts, "surprises": surprises[:MAX_SHOWN]}


if __name__ == "__main__":
    main()

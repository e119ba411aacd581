"""Runs the detection study: slow nodes detected, good nodes blamed. Writes the counts as JSON.

PYTHONPATH=.:plugins python studies/detection_study.py docs/results/detection-2026-11-22/counts.json
PYTHONPATH=.:plugins python studies/detection_doc.py     # writes docs/detection.md from it
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from bench_image.contract.frozen import Frozen
from detection_nights import Fleet, Past, simulate
from studies.argument_types import output_file
from trainbench.core.verdicts import ReferenceMode

WORKERS = 2
FIRST = 20  # nights whose counts are kept apart, so that a test can repeat them
SPREADS, NOISES = (0.2, 0.4, 1.3), (0.1, 0.3, 1.0, 2.0)
SLOW = (3.0, 5.0, 7.0, 10.0)

Slow = tuple[float, ...]
NONE: Slow = ()


class Case(Frozen):
    table: str
    nights: int
    case: Fleet | Past


def cases() -> Iterator[Case]:
    yield from _targets()
    yield from _grid()
    yield from _rounds()
    yield from _sizes()
    yield from _references()
    yield from _odd_fleets()
    yield from _disturbed()
    yield from _uneven()
    yield from _quiet_windows()
    yield from _histories()
    yield from _other_metrics()


def _targets() -> Iterator[Case]:
    for noise in (0.1, 0.3):
        for rounds in (1, 3):
            for slow in _each(5.0, 7.0):
                fleet = Fleet(nodes=4, noise_pct=noise, rounds=rounds, slow_pct=slow)
                yield Case(table="targets", nights=600 if slow else 3000, case=fleet)


def _grid() -> Iterator[Case]:
    """Four nodes."""
    for rounds in (1, 3):
        for spread in SPREADS[1:]:
            for noise in NOISES:
                for slow in _each(*SLOW):
                    fleet = Fleet(nodes=4, spread_pct=spread, noise_pct=noise, rounds=rounds, slow_pct=slow)
                    yield Case(table="grid", nights=100 if slow else 200, case=fleet)


def _rounds() -> Iterator[Case]:
    """Cases of more rounds, for a fleet with noisy runs."""
    for noise in (1.0, 2.0):
        for rounds in (1, 3, 6, 10):
            for slow in _each(7.0, 10.0):
                fleet = Fleet(nodes=4, noise_pct=noise, rounds=rounds, slow_pct=slow)
                yield Case(table="rounds", nights=100, case=fleet)


def _sizes() -> Iterator[Case]:
    for nodes, nights in ((3, 200), (8, 200), (32, 60)):
        for spread in SPREADS:
            for slow in _each(5.0, 7.0):
                fleet = Fleet(nodes=nodes, spread_pct=spread, noise_pct=0.3, slow_pct=slow)
                yield Case(table="sizes", nights=nights, case=fleet)
    for spread in SPREADS:  # of a thousand nodes 40 are slow at once: the others' median does not notice
        yield Case(table="sizes", nights=6, case=Fleet(nodes=1000, spread_pct=spread, noise_pct=0.3))
        for pct in (5.0, 7.0):
            fleet = Fleet(nodes=1000, spread_pct=spread, noise_pct=0.3, slow_pct=(pct,) * 40)
            yield Case(table="sizes", nights=3, case=fleet)


def _references() -> Iterator[Case]:
    for reference in ReferenceMode:
        for slow in _each(5.0, 6.0, 7.0, 10.0):
            fleet = Fleet(nodes=4, slow_pct=slow, reference=reference)
            yield Case(table="references", nights=150, case=fleet)


def _odd_fleets() -> Iterator[Case]:
    for nodes, bad, pct in ((3, 1, 10.0), (3, 1, 20.0), (4, 2, 10.0), (5, 2, 10.0), (6, 3, 10.0)):
        yield Case(table="several", nights=200, case=Fleet(nodes=nodes, slow_pct=(pct,) * bad))
    for drill in (20.0, 60.0):
        yield Case(table="drills", nights=200, case=Fleet(nodes=4, drill_pct=drill))
        yield Case(table="drills", nights=200, case=Fleet(nodes=4, drill_pct=drill, slow_pct=(0.0, 7.0)))
    for noise in (0.3, 1.0, 2.0):
        for rounds in (1, 3):
            for slow in _each(10.0):
                fleet = Fleet(nodes=4, noise_pct=noise, rounds=rounds, slow_pct=slow, tails="t3")
                yield Case(table="tails", nights=200, case=fleet)


def _disturbed() -> Iterator[Case]:
    """Runs that something slows for minutes, alone and beside a slow node."""
    for nodes, nights in ((4, 3000), (8, 1000), (32, 1000)):
        for disturbed in (0.5, 2.0):
            for noise in (0.1, 0.3):
                for rounds in (1, 3):
                    for slow in _each(10.0):
                        fleet = Fleet(
                            nodes=nodes, noise_pct=noise, rounds=rounds, disturbed_pct=disturbed, slow_pct=slow
                        )
                        yield Case(table="disturbed", nights=nights, case=fleet)


def _uneven() -> Iterator[Case]:
    """A node with one window far off, alone and beside a slow node."""
    for nodes, nights in ((4, 1000), (8, 1000), (32, 1000), (256, 300)):
        for noise in (0.1, 0.3):
            for window in (10.0, 33.0, 50.0):
                for slow in _each(10.0):
                    fleet = Fleet(nodes=nodes, noise_pct=noise, window_pct=window, slow_pct=slow)
                    yield Case(table="uneven", nights=nights, case=fleet)
    for slow in _each(10.0):
        fleet = Fleet(nodes=4, noise_pct=0.3, rounds=3, window_pct=50.0, slow_pct=slow)
        yield Case(table="uneven", nights=1000, case=fleet)


def _quiet_windows() -> Iterator[Case]:
    """Windows that show less of the noise than in the other tables."""
    for share in (0.3, 0.1, 0.0):
        for noise in (0.3, 1.0, 2.0):
            for rounds in (1, 3):
                for slow in _each(10.0):
                    fleet = Fleet(nodes=4, noise_pct=noise, rounds=rounds, windows_show=share, slow_pct=slow)
                    yield Case(table="windows", nights=300, case=fleet)


def _histories() -> Iterator[Case]:
    for noise in (0.1, 0.3, 0.5, 1.0):
        for points in (5, 10, 30):
            for drop in (0.0, 1.0, 2.0, 3.0):
                past = Past(points=points, noise_pct=noise, drop_pct=drop)
                yield Case(table="history", nights=2000 if drop in (0.0, 2.0) else 500, case=past)


def _other_metrics() -> Iterator[Case]:
    for spread in (1.0, 2.0, 4.0):
        for hot in (0.0, 8.0, 10.0, 12.0, 15.0):
            fleet = Fleet(nodes=4, temperature_spread_c=spread, hot_c=hot)
            yield Case(table="temperature", nights=150, case=fleet)
    for memory in (0.0, 0.3):
        for heavy in (0.0, 1.0, 2.1, 3.0):
            fleet = Fleet(nodes=4, memory_spread_pct=memory, heavy_pct=heavy)
            yield Case(table="memory", nights=150, case=fleet)


def _each(*slow: float) -> tuple[Slow, ...]:
    """No slow node, then one that is slow by each."""
    return (NONE, *((pct,) for pct in slow))


def counted(case: Case) -> dict[str, object]:
    """The row of the JSON."""
    first = simulate(case.case, FIRST) if case.nights >= 100 else None
    return {
        **case.model_dump(mode="json", exclude_defaults=True),
        "counts": simulate(case.case, case.nights),
        "first": first,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=output_file)
    parser.add_argument("tables", nargs="*", help="only these are counted")
    options = parser.parse_args()
    known = dict.fromkeys(case.table for case in cases())
    if unknown := [name for name in options.tables if name not in known]:
        parser.error(f"there is no table {unknown[0]}: choose from {', '.join(known)}")
    run(options.output, options.tables or known)


def run(path: Path, tables: Collection[str]) -> None:
    started, planned = time.monotonic(), [case for case in cases() if case.table in tables]
    with ProcessPoolExecutor(WORKERS) as pool:
        rows = []
        for i, row in enumerate(pool.map(counted, planned), 1):
            rows.append(row)
            print(f"\r{i} of {len(planned)} cases, {time.monotonic() - started:.0f} s", end="", flush=True)
    about = {
        "cpu_s": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime),
        "workers": WORKERS,
        "python": platform.python_version(),
    }
    lines = ",\n".join(json.dumps(row) for row in rows)
    path.write_text(f'{{"about": {json.dumps(about)}, "first_nights": {FIRST}, "cases": [\n{lines}\n]}}\n')
    print(f"\n{path}")


if __name__ == "__main__":
    main()

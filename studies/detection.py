"""Simulated nights of a fleet, judged by the real rules: slow nodes found, good nodes blamed, messages sent.

python studies/detection.py [--nights 400]     # simulates, and writes docs/results/detection-2026-11-23/nights.json
python studies/detection.py --page             # writes its table into docs/internals/detection.md

**Model.** log samples/s of window w of a run = node + round + run + window_w, and the run's rate is exp of the
mean over its three windows. With the noise s of a run and the share f = 0.3 that its windows show:

    node     ~ N(0, 0.4 %)         drawn once for each node
    round    ~ N(0, s)             one for all nodes of a round; the re-runs are rounds of their own
    run      ~ N(0, (1 - f) s^2)   for each run
    window_w ~ N(0, 3 f s^2)       for each window; the mean of three has the variance f s^2

A disturbed run loses 10 to 30 % in all its windows, evenly drawn; a re-run as well. Each night has its own seed.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from bench_image.contract.frozen import Frozen
from bench_image.contract.parse import parse_result
from bench_image.contract.result import RunResult
from bench_image.contract.result_sections import Context, Window
from bench_image.contract.spec import RunSpec
from trainbench.core.formats import count
from trainbench.core.verdicts import State
from trainbench.judging.judge import Judgement, Known, judge
from trainbench.judging.levels import KnownLevel, made_levels
from trainbench.judging.past import NodeRecord
from trainbench.params.campaign_params import BenchmarkParams
from trainbench.planning.plan import Plan
from trainbench.results.setups import setup_of

DOCS = Path(__file__).resolve().parents[1] / "docs"
CAMPAIGN = DOCS / "results" / "campaigns" / "h200-aa-2026-11-21"
FILE, PAGE = DOCS / "results" / "detection-2026-11-23" / "nights.json", DOCS / "internals" / "detection.md"
BEGIN, END = "<!-- nights -->", "<!-- end of nights -->"
SMALL, LARGE = 4, 32  # nodes; small fleets get five times the nights, larger ones half
FIRST = 20  # nights that a test simulates again
TYPICAL = 10.0  # samples/s of a typical node
NUM_WINDOWS, WINDOWS_SHOW, SPREAD = 3, 0.3, 0.004
FIRST_NIGHT = datetime(2026, 11, 1, 2, tzinfo=UTC)


class Fleet(Frozen):
    """One kind of night. The first node is slow by `slow_pct`. `past`: earlier nights, at the same noise."""

    nodes: int
    noise_pct: float
    slow_pct: float = 0.0
    disturbed_pct: float = 0.0
    past: int = 0
    level_band_pct: float | None = None  # None: no level is known


def simulate(fleet: Fleet, nights: int) -> dict[str, float]:
    """Name -> share of the nights, in percent, over `nights` nights of fresh fleets."""
    counts: Counter[str] = Counter()
    for night in range(nights):
        draw = random.Random(f"{fleet.model_dump_json()} night {night}")  # noqa: S311 - the same again, not secret
        counts.update(set(_night(fleet, draw)))
    names = ("red", "look", "definite", "bad_red", "bad_reported", "bad_suspect")
    return {name: round(100 * counts[name] / nights, 2) for name in names if counts[name] or not name.startswith("bad")}


def _night(fleet: Fleet, draw: random.Random) -> Sequence[str]:
    effects = [draw.gauss(0, SPREAD) for _ in range(fleet.nodes)]
    sd = fleet.noise_pct / 100
    earlier = []
    for night in range(fleet.past):
        drift = draw.gauss(0, sd)
        earlier += [_record(node, night, effect + drift + draw.gauss(0, sd)) for node, effect in enumerate(effects)]
    effects[0] += math.log1p(-fleet.slow_pct / 100)
    names = tuple(map(_name, range(fleet.nodes)))
    plan = Plan.model_construct(
        campaign_id="night", params=BenchmarkParams(), nodes=names, specs=(), skipped=(), has_reruns=True
    )
    levels = () if fleet.level_band_pct is None else (_level(fleet.level_band_pct),)
    known = Known(at=FIRST_NIGHT + timedelta(days=fleet.past), earlier=earlier, levels=levels)
    results = _round(fleet, range(fleet.nodes), 1, effects, draw)
    first = judge(plan, results, (), known)
    again = [int(name.removeprefix("node-")) for name in (*first.suspects, *first.controls) if first.suspects]
    reruns = [run for round_ in (2, 3) for run in _round(fleet, again, round_, effects, draw)]
    return _counted(fleet, first, judge(plan, results, reruns, known))


def _counted(fleet: Fleet, first: Judgement, settled: Judgement) -> list[str]:
    nodes = [node for group in settled.groups for node in group.nodes]
    bad = [node for node in nodes if fleet.slow_pct and node.node == _name(0)]
    good = [node for node in nodes if node not in bad]
    counted = [node.state.value for node in good]
    counted += ["definite"] if all(node.state is not State.NOT_CHECKED for node in nodes) else []
    counted += ["bad_red" for node in bad if node.is_red]
    counted += ["bad_reported" for node in bad if node.state in (State.RED, State.LOOK)]
    counted += ["bad_suspect" for node in bad if node.node in first.suspects]
    return counted


def _round(
    fleet: Fleet, nodes: Sequence[int], round_: int, effects: Sequence[float], draw: random.Random
) -> list[RunResult]:
    drift = draw.gauss(0, fleet.noise_pct / 100)
    return [_run(fleet, node, round_, effects[node] + drift, draw) for node in nodes]


def _run(fleet: Fleet, node: int, round_: int, log_rate: float, draw: random.Random) -> RunResult:
    if draw.random() < fleet.disturbed_pct / 100:
        log_rate += math.log1p(-draw.uniform(0.10, 0.30))
    sd = fleet.noise_pct / 100
    log_rate += draw.gauss(0, sd) * math.sqrt(1 - WINDOWS_SHOW)
    windows = [log_rate + draw.gauss(0, sd) * math.sqrt(NUM_WINDOWS * WINDOWS_SHOW) for _ in range(NUM_WINDOWS)]
    usual = template()
    performance = usual.performance.model_copy(
        update={
            "samples_per_second": TYPICAL * math.exp(statistics.fmean(windows)),
            "windows": tuple(_window(TYPICAL * math.exp(window)) for window in windows),
        }
    )
    return usual.model_copy(update={"spec": _spec(node, round_), "performance": performance, "context": _context(node)})


def _record(node: int, night: int, log_rate: float) -> NodeRecord:
    context = _context(node)
    return NodeRecord(
        campaign_id=f"night-{night}",
        at=FIRST_NIGHT + timedelta(days=night),
        node=_name(node),
        fingerprint=template().effective_spec.fingerprint,
        gpu_name=context.gpus[0].name,
        samples_per_second=TYPICAL * math.exp(log_rate),
        memory_gb=None,
        temperature_c=None,
        setup=setup_of(context),
    )


def _level(band_pct: float) -> KnownLevel:
    (level,) = made_levels([_run(Fleet(nodes=1, noise_pct=0), 0, 1, 0.0, random.Random(1))], "0", FIRST_NIGHT.date())  # noqa: S311
    return level.model_copy(update={"samples_per_second": TYPICAL, "band_pct": band_pct})


def _name(node: int) -> str:
    return f"node-{node}"


@cache
def template() -> RunResult:
    """A measured run; what the simulation says replaces what it measured."""
    return parse_result(min(CAMPAIGN.glob("runs/*/result.json")).read_bytes())


@cache
def _spec(node: int, round_: int) -> RunSpec:
    identity = {"node": _name(node), "round": round_, "run_id": f"{_name(node)}-r{round_}"}
    return template().spec.changed(identity=identity)


@cache
def _context(node: int) -> Context:
    context = template().context
    assert context, "a measured run has one"
    gpu = context.gpus[0].model_copy(update={"uuid": f"GPU-{node}"})
    return context.model_copy(update={"gpus": (gpu,), "node": _name(node)})


def _window(samples_per_s: float) -> Window:
    return template().performance.windows[0].model_copy(update={"samples_per_second": samples_per_s})


# The rows of ../docs/internals/detection.md: what is asked -> the fleets.
CASES: dict[str, Sequence[Fleet]] = {
    "healthy, 1 % of the runs disturbed": [
        Fleet(nodes=256, noise_pct=2, disturbed_pct=1), Fleet(nodes=32, noise_pct=2, disturbed_pct=1),
        Fleet(nodes=256, noise_pct=0.3, disturbed_pct=1),
    ],
    "healthy": [
        *(Fleet(nodes=256, noise_pct=noise) for noise in (0.1, 0.3, 0.5, 2)),
        *(Fleet(nodes=nodes, noise_pct=0.5) for nodes in (3, 4, 8, 32)),
        Fleet(nodes=256, noise_pct=0.3, past=10), Fleet(nodes=4, noise_pct=0.3, past=2),
        Fleet(nodes=1, noise_pct=0.3, past=10), Fleet(nodes=1, noise_pct=0.3, past=1),
    ],
    "slow by 5.5 %": [Fleet(nodes=nodes, noise_pct=0.5, slow_pct=5.5) for nodes in (4, 8, 32, 256)],
    "slow by 8 %": [
        *(Fleet(nodes=nodes, noise_pct=0.5, slow_pct=8) for nodes in (3, 4, 32, 256)),
        *(Fleet(nodes=nodes, noise_pct=2, slow_pct=8) for nodes in (4, 32, 256)),
    ],
    "2 % slower than its past": [
        *(Fleet(nodes=nodes, noise_pct=0.3, slow_pct=2, past=10) for nodes in (1, 4, 32)),
    ],
    "one and two nodes with a known level": [
        *(Fleet(nodes=nodes, noise_pct=noise, level_band_pct=4) for nodes in (1, 2) for noise in (0.5, 2)),
        Fleet(nodes=1, noise_pct=2, past=1, level_band_pct=4),
        Fleet(nodes=1, noise_pct=0.5, slow_pct=8, level_band_pct=4),
    ],
}  # fmt: skip


COLUMNS = {
    "red": "a good node red",
    "look": "asked to look",
    "definite": "all have a state",
    "bad_reported": "slow node reported",
    "bad_red": "of it red",
}


def rows(nights: int) -> Iterator[dict[str, Any]]:
    """A row for each fleet; `first` repeats the first few of its nights, which a test simulates again."""
    for case, fleets in CASES.items():
        for fleet in fleets:
            number = nights * 5 if fleet.nodes <= SMALL else nights if fleet.nodes <= LARGE else nights // 2
            shares = {"shares": simulate(fleet, number), "first": simulate(fleet, FIRST)}
            yield {"case": case, "fleet": fleet.model_dump(exclude_defaults=True), "nights": number, **shares}


def table(of: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: one line for each fleet, shares of its nights in percent."""
    lines = [f"| fleet | nights | {' | '.join(COLUMNS.values())} |", f"|---|--:|{'--:|' * len(COLUMNS)}"]
    case = ""
    for row in of:
        if row["case"] != case:
            case = row["case"]
            lines.append(f"| **{case}** |")
        shares = [f"{row['shares'][name]:g}" if name in row["shares"] else "-" for name in COLUMNS]
        lines.append(f"| {_fleet_text(Fleet(**row['fleet']))} | {row['nights']:,} | {' | '.join(shares)} |")
    return "\n".join(lines)


def _fleet_text(fleet: Fleet) -> str:
    past = f", {count(fleet.past, 'night')} before" if fleet.past else ""
    past += f", {fleet.slow_pct:g} % slow" if fleet.slow_pct and fleet.level_band_pct else ""
    return f"{count(fleet.nodes, 'node')}, noise {fleet.noise_pct:g} %{past}"


def with_table(page: str, of: Sequence[Mapping[str, Any]]) -> str:
    """The page with this table between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(of)}\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--nights", type=int, default=400, help="of a fleet, small ones more, large ones fewer (default 400)"
    )
    parser.add_argument("--page", action="store_true", help="write the table into the page, simulate nothing")
    arguments = parser.parse_args()
    if arguments.page:
        PAGE.write_text(with_table(PAGE.read_text(), json.loads(FILE.read_text())))
        return
    made = []
    for row in rows(arguments.nights):
        print(row, flush=True)
        made.append(row)
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Known levels: what a GPU of one kind makes of one work, for nodes without peers or past.

`levels.toml` beside this module has the shipped ones, made from the results in docs/results; a fleet's own are in its
store. GPUs of one kind differ by several percent, so the bands are wide.
"""

from __future__ import annotations

import json
import math
import statistics
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from importlib.resources import files
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, ValidationError

from bench_image.contract.fingerprint import fingerprint
from bench_image.contract.frozen import Frozen
from bench_image.contract.options import Strategy
from bench_image.contract.parse import explain
from bench_image.contract.result import RunResult, Status
from trainbench.core.formats import figure
from trainbench.core.grouping import grouped
from trainbench.core.user_error import UserError
from trainbench.core.verdicts import Finding, Level, LevelSource
from trainbench.judging.node_runs import by_gpu
from trainbench.judging.noise import Noise, joined, median_sd
from trainbench.results.readings import gpu_name, shared_by
from trainbench.results.setups import gpu_uuids, setup_of

SHIPPED_FILE = "levels.toml"
LEVELS_UNREAD = "levels_unread"
MIN_BAND_PCT = 4.0  # five healthy H200s of three machines differ by up to 3.9 %
BAND_SPREADS = 3.0  # the band holds so many standard deviations between GPUs
MIN_ROBUST = 4  # of fewer GPUs the median deviation says too little
Name = Annotated[str, Field(min_length=1, max_length=200)]


class LevelsError(UserError, ValueError):
    """A text of levels cannot be used; the message names the row, the value and the remedy."""


class KnownLevel(Frozen):
    """`work`: of what one rank computes, see `work_of`. The band is one-sided for verdicts: slower than
    `band_pct` below is off, faster than that above is only said.
    """

    gpu_name: Name
    work: Annotated[str, Field(pattern="^[0-9a-f]{12}$")]
    model: Name
    recipe: Name
    preset: Name
    strategy: Name
    gpus: Annotated[int, Field(ge=1, le=64)]  # that work together
    shape: Name  # "batch 8 x 512 tokens"
    program: Name  # version of trainbench that measured it
    samples_per_second: Annotated[float, Field(gt=0, lt=1e9)]  # of one GPU
    spread_pct: Annotated[float, Field(ge=0, lt=100)]  # one standard deviation between healthy GPUs
    band_pct: Annotated[float, Field(gt=0, lt=100)]
    num_runs: Annotated[int, Field(ge=1)]
    num_gpus: Annotated[int, Field(ge=1)]
    software: Mapping[Name, Name]
    files: tuple[Name, ...]  # of the results that it was made from
    as_of: date
    accepted_by: str = ""  # of a fleet's own level
    origin: Literal["shipped", "own"] = "own"

    @property
    def key(self) -> tuple[str, str]:
        return self.gpu_name, self.work

    @property
    def source(self) -> str:
        """The source of an expectation: "the shipped level of NVIDIA H200", "this fleet's own level of NVIDIA H200"."""
        whose = "the shipped" if self.origin == "shipped" else "this fleet's own"
        return f"{whose} level of {self.gpu_name}"

    @property
    def description(self) -> str:
        """ "NVIDIA H200, mistral-7b qlora tuned, single, batch 8 x 512 tokens: 38.55 samples/s per GPU (±6.1 %)"."""
        gpus = "" if self.gpus == 1 else f" on {self.gpus} GPUs"
        return (
            f"{self.gpu_name}, {self.model} {self.recipe} {self.preset}, {self.strategy}{gpus}, {self.shape}: "
            f"{figure(self.samples_per_second)} samples/s per GPU (±{self.band_pct:.1f} %)"
        )

    def expected_of(self, result: RunResult) -> float:
        """The samples/s of a run as it is judged: of independent ranks those of one GPU."""
        placement = result.spec.placement
        return self.samples_per_second * (1 if placement.strategy is Strategy.INDEPENDENT else placement.world_size)


def work_of(result: RunResult) -> str:
    """12 hex digits of what one rank computes and how ranks share it. How long it is measured does not matter."""
    spec = result.effective_spec.of_one_rank
    return fingerprint(spec.work, spec.placement)


class Levels(NamedTuple):
    """The levels to judge by, the fleet's own first. `fault`: why its own cannot be used."""

    known: tuple[KnownLevel, ...] = ()
    fault: str | None = None


NO_LEVELS = Levels()


def load_levels(source: LevelSource, own: str | None) -> Levels:
    """`own`: the text of the store's levels. A broken one costs itself only: the shipped levels are still used."""
    if source is LevelSource.NONE:
        return NO_LEVELS
    text = files("trainbench.judging").joinpath(SHIPPED_FILE).read_text(encoding="utf-8")
    shipped = tuple(level.model_copy(update={"origin": "shipped"}) for level in parse_levels(text, SHIPPED_FILE))
    if source is not LevelSource.OWN or not own:
        return Levels(shipped)
    try:
        return Levels((*parse_levels(own, "levels.toml of the store"), *shipped))
    except LevelsError as error:
        return Levels(shipped, str(error))


def unread_levels(levels: Levels, campaign_id: str) -> tuple[Finding, ...]:
    if levels.fault is None:
        return ()
    finding = Finding(
        level=Level.WARNING,
        category=LEVELS_UNREAD,
        item=campaign_id,
        measured="no level of the fleet's own",
        expected="those of its levels.toml",
        summary="judged without the fleet's own levels, which cannot be read",
        cause=levels.fault,
        resolution="mend the file or put its backup back, and try `trainbench levels list`",
    )
    return (finding,)


def level_of(result: RunResult, levels: Iterable[KnownLevel]) -> KnownLevel | None:
    """The first level of the run's kind of GPU and work."""
    key = gpu_name(result), work_of(result)
    return next((level for level in levels if level.key == key), None)


def made_levels(
    results: Iterable[RunResult], program: str, as_of: date, files: Sequence[str] = ()
) -> tuple[KnownLevel, ...]:
    """One level for each kind of GPU and work: the median over the GPUs of each one's median. Failed, drilled and
    shared runs, those over several nodes and those without a GPU do not count.
    """
    good = [
        result
        for result in results
        if result.status is Status.OK
        and result.spec.placement.nodes == 1
        and not result.spec.drill
        and gpu_name(result)
        and shared_by(result) is None
    ]
    together = grouped(((gpu_name(result), work_of(result)), result) for result in good)
    return tuple(_made(runs, program, as_of, files) for runs in together.values())


def _made(results: Sequence[RunResult], program: str, as_of: date, files: Sequence[str]) -> KnownLevel:
    parts = [part for result in results for part in (by_gpu(result).values() or [result])]
    known = ((part, rate) for part in parts if (rate := part.performance.samples_per_second))
    rates = grouped((gpu_uuids(part), math.log(rate / part.spec.placement.world_size)) for part, rate in known)
    medians = [statistics.median(of_one) for of_one in rates.values()]
    within = joined(Noise(statistics.stdev(one), len(one) - 1) for one in rates.values() if len(one) > 1)
    spread_pct = 100 * math.hypot(_between(medians), within.sd if within else 0.0)
    band_pct = round(max(MIN_BAND_PCT, BAND_SPREADS * spread_pct), 1)
    first = results[0]
    ran, setup = first.effective_spec.of_one_rank, setup_of(first.context)
    driver = {"driver": setup.driver} if setup.driver else {}
    return KnownLevel(
        gpu_name=gpu_name(first) or "",
        work=work_of(first),
        model=ran.work.model,
        recipe=ran.work.recipe.value,
        preset=ran.work.preset.value,
        strategy=ran.placement.strategy.value,
        gpus=ran.placement.world_size,
        shape=ran.work.size,
        program=program,
        samples_per_second=float(f"{math.exp(statistics.median(medians)):.5g}"),
        spread_pct=round(spread_pct, 2),
        band_pct=band_pct,
        num_runs=len(results),
        num_gpus=len(frozenset[str]().union(*rates)) or 1,
        software=driver | dict(setup.libraries or {}),
        files=tuple(files),
        as_of=as_of,
    )


def _between(medians: Sequence[float]) -> float:
    """Standard deviation between GPUs; of many by their median deviation, which a few slow ones do not move."""
    if len(medians) < MIN_ROBUST:
        return statistics.stdev(medians) if len(medians) > 1 else 0.0
    return median_sd(medians)


# --- as text ----------------------------------------------------------------------------------------------------------


def parse_levels(text: str, where: str) -> tuple[KnownLevel, ...]:
    """The levels of a TOML text. `where`: its name, for the message. Raises LevelsError."""
    try:
        rows = tomllib.loads(text).get("level", [])
    except (ValueError, RecursionError) as error:  # no TOML, a number too long, too deep
        raise LevelsError(
            f"{where} is no TOML ({error}): correct it, or take the file of `trainbench levels export`"
        ) from None
    if not isinstance(rows, list) or not rows:
        raise LevelsError(f"{where} has no level: one [[level]] table for each is expected, see `levels export`")
    levels = []
    for number, row in enumerate(rows, start=1):
        try:
            levels.append(KnownLevel.model_validate(row))
        except ValidationError as error:
            raise LevelsError(
                f"{where}, level {number}: {explain(error)}: correct the row, or make it with `trainbench levels make`"
            ) from None
    keys = [level.key for level in levels]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise LevelsError(f"{where} has two levels of {twice[0][0]} at work {twice[0][1]}: leave one")
    return tuple(levels)


def levels_toml(levels: Iterable[KnownLevel]) -> str:
    """The text that `parse_levels` reads."""
    tables = []
    for level in levels:
        row = level.model_dump(mode="json", exclude={"software", "origin", "as_of"}, exclude_defaults=True)
        lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in row.items()]
        software = ", ".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in level.software.items())
        tables.append("\n".join(["[[level]]", *lines, f"as_of = {level.as_of}", f"software = {{ {software} }}", ""]))
    return "\n".join(tables)


def merged(own: Iterable[KnownLevel], new: Iterable[KnownLevel]) -> tuple[KnownLevel, ...]:
    """The own levels with the new ones, which replace those of the same GPU and work."""
    return tuple({level.key: level for level in (*own, *new)}.values())

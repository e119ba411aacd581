"""Reads steps and their speed from the log of a training command, line by line, with bounded memory."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bench_image.contract.own_job import SIZES, LogProfile, OwnJob
from bench_image.contract.result_bounds import MAX_COUNT

MAX_LINE = 8_000  # characters; the rest of a longer line is left out
MAX_MEASURED = 20_000  # lines of steps that count; later ones are not kept
TAIL_LINES, TAIL_CHARS = 15, 200
ARRIVAL = "the arrival of its lines"
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Entry(NamedTuple):
    """A measured line: the steps that its time stands for, those since the line before and their seconds, and its own
    figures.
    """

    steps: int
    passed: int
    arrived_after_s: float | None
    figures: dict[str, float]


class Speed(NamedTuple):
    """What a profile read. `seconds`: of one step, as each entry tells it; `steps`: for how many it stands;
    `first_at`, `warm_at`, `last_at`: epoch seconds of the first line of a step, of the end of warm-up and of the last
    line.
    """

    profile: LogProfile
    seconds: tuple[float, ...]
    steps: tuple[int, ...]
    source: str
    samples_per_step: int | None
    tokens_per_second: float | None
    losses: tuple[float | None, ...]
    first_at: float
    warm_at: float
    last_at: float
    num_figures: int


class LogReader:
    """Reads by one profile. `job` overrides what a log says of samples, tokens and warm-up."""

    def __init__(self, profile: LogProfile, job: OwnJob, num_gpus: int) -> None:
        self.profile = profile
        self._expressions = {name: re.compile(text) for name, text in profile.expressions.items()}
        self._num_gpus = num_gpus
        self._warmup = profile.warmup_steps if job.warmup_steps is None else job.warmup_steps
        given = {"samples_per_step": job.samples_per_step, "tokens_per_sample": job.tokens_per_sample}
        self._given = {name: float(value) for name, value in given.items() if value}
        self._sizes: dict[str, float] = {}
        self._last: dict[float | None, tuple[float, float, int]] = {}  # total -> step, arrival, steps since the first
        self._entries: dict[float | None, list[Entry]] = {}
        self._times: dict[float | None, list[float]] = {}  # first line, first measured, last
        self._losses: list[tuple[bool, float | None]] = []
        self._seen: set[str] = set()
        self.num_lines = 0  # that tell of a step
        self.newest = ""  # "120", or "120/200"

    def add(self, line: str, at: float) -> bool:
        """Take a line that arrived at epoch seconds `at`; whether it tells of a measured step."""
        if not any(mark in line for mark in self.profile.marks):
            return False
        numbers = ((name, _number(text, line)) for name, text in self._expressions.items())
        found = {
            name: number for name, number in numbers if number is not None and (name == "loss" or math.isfinite(number))
        }
        self._seen |= found.keys()
        for name in SIZES:
            if found.get(name, 0) >= 1:
                self._sizes[name] = found[name]
        is_measured = "step" in found and self._step(found, at)
        # A summary has two rates: samples per step, where they are exact enough.
        exact = _share(found.get("samples_per_second"), found.get("steps_per_second")) or 0.0
        if "step" not in found and 0 < exact < MAX_COUNT and abs(exact - round(exact)) < 0.02 * exact:
            self._sizes.setdefault("samples_per_step", max(1, round(exact)))
        if "loss" in found and len(self._losses) < MAX_MEASURED:
            loss, is_warm = found["loss"], any(self._entries.values())
            self._losses.append((is_warm, loss if math.isfinite(loss) else None))
        return is_measured

    def _step(self, found: dict[str, float], at: float) -> bool:
        total, step = found.get("total"), found["step"]
        before = self._last.get(total)
        if before and step == before[0]:  # another rank's line, or the bar drawn again
            return False
        self.num_lines += 1
        self.newest = f"{step:.0f}/{total:.0f}" if total else f"{step:.0f}"
        follows = before is not None and step > before[0]
        passed = int(step - before[0]) if before and follows else 1
        done = before[2] if before else 0
        self._last[total] = (step, at, done + passed if before else 0)
        times = self._times.setdefault(total, [at, 0.0, at])
        times[2] = at
        entries = self._entries.setdefault(total, [])
        if before is None or done < self._warmup or len(entries) >= MAX_MEASURED:
            return False
        times[1] = times[1] or before[1]
        arrived_after_s = at - before[1] if follows else None
        entries.append(Entry(passed if self.profile.covers == "steps" else 1, passed, arrived_after_s, found))
        return True

    def speed(self) -> Speed | None:
        """What was read; None for fewer than two measured lines."""
        total = max(self._entries, key=lambda key: len(self._entries[key]), default=None)
        entries = self._entries.get(total, [])
        sizes = self._sizes | self._given
        if "tokens_per_sample" in sizes and "samples_per_step" in sizes:
            sizes["tokens_per_step"] = sizes["tokens_per_sample"] * sizes["samples_per_step"]
        told = [_step_s(entry, sizes, self._num_gpus) for entry in entries]
        for source in told[0] if told else ():
            timed = [(entry, seconds) for entry, of in zip(entries, told, strict=True) if (seconds := of[source])]
            if len(timed) >= 2 and (len(timed) == len(entries) or source == ARRIVAL):
                break
        else:
            return None
        if source == ARRIVAL:
            timed = [(entry._replace(steps=entry.passed), seconds) for entry, seconds in timed]
        first_at, warm_at, last_at = self._times[total]
        samples_per_step = sizes.get("samples_per_step")
        return Speed(
            profile=self.profile,
            seconds=tuple(seconds for _, seconds in timed),
            steps=tuple(entry.steps for entry, _ in timed),
            source=source,
            samples_per_step=round(samples_per_step) if samples_per_step else None,
            tokens_per_second=self._tokens_per_second(timed, sizes),
            losses=tuple(loss for is_warm, loss in self._losses if is_warm),
            first_at=first_at,
            warm_at=warm_at,
            last_at=last_at,
            num_figures=len(self._seen),
        )

    def _tokens_per_second(self, timed: Sequence[tuple[Entry, float]], sizes: dict[str, float]) -> float | None:
        """Over all GPUs: by the tokens of a step, else the log's own rates, weighted by their time."""
        total_s = math.fsum(entry.steps * seconds for entry, seconds in timed)
        if "tokens_per_step" in sizes:
            return sizes["tokens_per_step"] * sum(entry.steps for entry, _ in timed) / total_s
        rates = [(_tokens_rate(entry, self._num_gpus), entry.steps * seconds) for entry, seconds in timed]
        if any(rate is None for rate, _ in rates):
            return None
        return math.fsum((rate or 0.0) * seconds for rate, seconds in rates) / total_s


def _step_s(entry: Entry, sizes: dict[str, float], num_gpus: int) -> dict[str, float | None]:
    """From where the time of a step is taken, the most direct first -> seconds of one step; None: it does not tell."""
    own, tokens = entry.figures, _tokens_rate(entry, num_gpus)
    seconds = {
        "the log's time per step": own.get("seconds") or own.get("milliseconds", 0.0) / 1000,
        "the log's steps per second": _share(1.0, own.get("steps_per_second")),
        "the log's tokens per second": _share(sizes.get("tokens_per_step"), tokens),
        "the log's samples per second": _share(sizes.get("samples_per_step"), own.get("samples_per_second")),
        "the log's samples per second, each sample a step": _share(1.0, own.get("samples_per_second")),
        ARRIVAL: _share(entry.arrived_after_s, entry.passed),
    }
    return {
        source: value if value and value > 0 and math.isfinite(value) else None for source, value in seconds.items()
    }


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part and whole else None


def _tokens_rate(entry: Entry, num_gpus: int) -> float | None:
    per_gpu = entry.figures.get("tokens_per_second_per_gpu")
    return entry.figures.get("tokens_per_second") or (per_gpu * num_gpus if per_gpu else None)


def _number(expression: re.Pattern[str], line: str) -> float | None:
    found = expression.search(line)
    try:
        return float(found[1].replace(",", "")) if found and found[1] else None
    except ValueError:
        return None


class JobLog:
    """The whole log: its lines, its last ones, and what each profile reads."""

    def __init__(self, profiles: Sequence[LogProfile], job: OwnJob, num_gpus: int) -> None:
        self.readers = tuple(LogReader(profile, job, num_gpus) for profile in profiles)
        self._marks = re.compile("|".join(re.escape(mark) for profile in profiles for mark in profile.marks))
        self._open = b""  # a line without its end
        self._is_cut = False
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._kept_tail = ""

    @property
    def tail(self) -> str:
        """The last lines, shortened."""
        return self._kept_tail or "\n".join(self._tail)

    def keep_tail(self) -> None:
        """What follows is the command's answer to our signal, and would push the lines away that tell where it was."""
        self._kept_tail = self.tail

    @property
    def newest(self) -> str:
        """The newest step, by the profile that reads most; empty before the first."""
        return max(self.readers, key=lambda reader: reader.num_lines).newest

    def lines(self, chunk: bytes) -> Iterator[str]:
        """The lines that end within this part of the log. A progress bar's are ended by a carriage return."""
        *whole, left = re.split(rb"[\r\n]", chunk)
        for part in whole:
            yield from self._line(part)
        if self._is_cut or len(left) + len(self._open) > MAX_LINE:
            self._is_cut = True
        self._open = (self._open + left)[: MAX_LINE + 1]

    def last_line(self) -> Iterator[str]:
        """What stands after the last end of a line."""
        yield from self._line(b"")

    def _line(self, end: bytes) -> Iterator[str]:
        raw, is_cut = self._open + end, self._is_cut or len(self._open) + len(end) > MAX_LINE
        self._open, self._is_cut = b"", False
        line = _COLOUR.sub("", raw[:MAX_LINE].decode(errors="replace")).rstrip()
        if line:
            self._tail.append(line if len(line) <= TAIL_CHARS else f"{line[:TAIL_CHARS]} ...")
            yield f"{line} ... (a longer line)" if is_cut else line

    def add(self, line: str, at: float) -> bool:
        """Take a line that arrived at epoch seconds `at`; whether it tells of a measured step."""
        if not self._marks.search(line):
            return False
        return any([reader.add(line, at) for reader in self.readers])  # each of them reads it

    def speed(self) -> Speed | None:
        """That of the profile that reads most lines, then most figures."""
        speeds = [speed for reader in self.readers if (speed := reader.speed())]
        return max(speeds, key=lambda speed: (len(speed.seconds), speed.num_figures), default=None)

    @property
    def why_none(self) -> str:
        """Why there is no speed, and what to do."""
        read = [f"{reader.profile.name} {reader.num_lines}" for reader in self.readers if reader.num_lines]
        if read:
            return (
                f"too few steps (lines of steps by profile: {', '.join(read)}), at least 2 must follow the warm-up "
                "steps: let the command train longer, or set job_warmup_steps=0"
            )
        names = [reader.profile.name for reader in self.readers]
        tried = f"any of {len(names)} profiles" if len(names) > 1 else names[0]
        return f"no line of a step for {tried}: write the line of docs/own-job.md, or a profile of your own"

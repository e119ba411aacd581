"""The deviation of a figure from its reference: size, side, and state."""

from __future__ import annotations

from trainbench.core.formats import noise_share, signed
from trainbench.core.verdicts import Metric, Side, State, Tolerances
from trainbench.judging import noise

UNITS = {Metric.SAMPLES_PER_SECOND: " %", Metric.MEMORY_GB: " %", Metric.TEMPERATURE_C: " °C"}
NAMES = {
    Metric.SAMPLES_PER_SECOND: "samples/s",
    Metric.MEMORY_GB: "memory",
    Metric.TEMPERATURE_C: "temperature",
}

# A node that is slow by exactly the limit exceeds it on every second night only, so watching begins at half of it.
WATCHED_SHARE = 0.5


def limit_of(metric: Metric, tolerances: Tolerances) -> float:
    """The limit in percent of the reference; of temperature in degrees C."""
    return {
        Metric.SAMPLES_PER_SECOND: tolerances.samples_per_second_pct,
        Metric.MEMORY_GB: tolerances.memory_pct,
        Metric.TEMPERATURE_C: tolerances.temperature_c,
    }[metric]


def decide_state(deviation: float, limit: float, noise_pct: float | None) -> State:
    """ok, breach or insufficient; deviation, limit and noise are in one unit."""
    if noise_pct is None or noise_pct <= limit:
        return State.BREACH if abs(deviation) > limit else State.OK
    return State.BREACH if abs(deviation) > limit + noise_pct else State.INSUFFICIENT


def is_slow(deviation: float, limit: float) -> bool:
    """Whether a deviation in percent is slow by more than half of the limit."""
    return deviation < -WATCHED_SHARE * limit


def deviation_of(metric: Metric, value: float, reference: float) -> float:
    """The deviation in percent of the reference; of temperature in degrees C."""
    if metric is Metric.TEMPERATURE_C:
        return round(value - reference, 9)
    return noise.deviation_pct(value, reference)


def side_of(metric: Metric, deviation: float) -> Side:
    below, above = (Side.SLOW, Side.FAST) if metric is Metric.SAMPLES_PER_SECOND else (Side.LOW, Side.HIGH)
    return below if deviation < 0 else above


def figures_text(metric: Metric, state: State, deviation: float, limit: float, noise_pct: float | None) -> str:
    """A phrase with the figures that decide the state."""
    unit = UNITS[metric]
    known = "" if noise_pct is None else f", noise {noise_share(noise_pct)}"
    text = f"{NAMES[metric]}: deviation {signed(deviation, unit)}, limit {limit:.1f}{unit}{known}"
    if state is State.INSUFFICIENT:
        return f"{text}: repeats differ by more than the limit; use more repeats or a quieter machine"
    return text


def too_noisy(noise_pct: float | None) -> str:
    return "" if noise_pct is None else f", beyond the limit but within the noise of one run, {noise_share(noise_pct)}"

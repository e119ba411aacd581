"""Tables of a diagnosis: which configuration helped against the baseline, which did not, which failed."""

from __future__ import annotations

from collections.abc import Iterator

from trainbench.comparison.configurations import (
    TELLING_PCT,
    WORTH_PCT,
    GpuKindComparison,
    Standing,
    Verdict,
    compare_by_gpu_kind,
)
from trainbench.core.formats import NA, count, listing, one_line, percent
from trainbench.core.tables import Table, Tone, make_table, median_run, text
from trainbench.figure_catalogue import run_figures
from trainbench.figure_catalogue.table_figures import SAVING, SPEED_UP
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.variants import BASELINE, VARIANTS
from trainbench.results.campaign import Campaign

TONES = {Verdict.HELPED: Tone.GOOD, Verdict.SLOWER: Tone.WARN, Verdict.FAILED: Tone.BAD}
ORDER = tuple(Verdict)


def configurations(campaign: Campaign) -> tuple[Table, ...]:
    """Tables for each kind of GPU: the verdicts, the figures, and the gain of each further step."""
    if campaign.campaign_kind is not CampaignKind.CONFIGURATIONS:
        return ()
    tables = (make(kind) for kind in compare_by_gpu_kind(campaign) for make in (_verdicts, _figures, _steps))
    return tuple(made for made in tables if made.rows)


def verdicts(campaign: Campaign) -> tuple[Table, ...]:
    """The tables of verdicts alone, one for each kind of GPU."""
    return tuple(made for made in configurations(campaign) if "summary" in made.names)


def figures(campaign: Campaign) -> tuple[Table, ...]:
    """The tables of figures alone, with what each configuration saves."""
    return tuple(made for made in configurations(campaign) if "saving" in made.names)


def headline(campaign: Campaign) -> tuple[str, ...]:
    """Sentences on the best configuration, and on the best per sample where it is another, one for each kind of GPU."""
    if campaign.campaign_kind is not CampaignKind.CONFIGURATIONS:
        return ()
    sentences = []
    for kind in compare_by_gpu_kind(campaign):
        if not kind.baseline.results:
            continue
        best = max((one for one in kind.standings if one.verdict is Verdict.HELPED), key=_ratio, default=None)
        told = f"No configuration is faster than the baseline beyond noise on {kind.gpu}"
        if best and best.per_token:
            told = f"{best.name} helped most on {kind.gpu}: {best.per_token.text()}"
        other = max((one for one in kind.standings if one.verdict is Verdict.OTHER_WORK), key=_ratio, default=None)
        if other and other.per_token:
            told += f"; {other.name}, whose samples have another length: {_apart(other)}"
        if kind.has_noise and kind.num_rounds < 2:
            told += " (by one round: without what pods differ by)"
        sentences.append(f"{told}.")
    return tuple(sentences)


def _ratio(one: Standing) -> float:
    return one.per_token.ratio if one.per_token else 0.0


def _apart(one: Standing) -> str:
    assert one.per_sample is not None, "it was compared"
    assert one.per_token is not None, "it was compared"
    return f"{one.per_sample.text()} the samples/s, {one.per_token.text()} the tokens/s"


def _verdicts(kind: GpuKindComparison) -> Table:
    judged = [one for one in kind.standings if one.verdict is not Verdict.BASELINE]
    noise = (
        "The noise is that of the two configurations compared. Few rounds measure it badly, so the others' noise "
        "between runs counts a little, without any configuration that stands out."
    )
    if not kind.has_noise:
        noise = "The noise is unknown: no run was repeated. Choose two rounds or more."
    elif kind.num_rounds < 2:
        noise = (
            "One round: the noise is that between the windows of a pod, without differences between pods. "
            "Two rounds or more include them."
        )
    return make_table(
        sorted(judged, key=lambda one: (ORDER.index(one.verdict), -_ratio(one))),
        (
            text("verdict", lambda one: one.verdict.value),
            text("configuration", lambda one: one.name),
            text("summary", _summary),
            text("what it tests", lambda one: VARIANTS[one.name].tests if one.name in VARIANTS else ""),
        ),
        tone=_tone,
        run_id=_run,
        title=f"What helped, what did not, what failed, {kind.gpu}",
        notes=(
            "Only equal sample lengths are judged. A difference counts beyond the noise (99 % interval of the rounds' "
            f"ratios) and from {WORTH_PCT:g} % on; noise above {TELLING_PCT:g} % allows no verdict. The effect on the "
            "model's quality is not measured.",
            noise,
        ),
    )


def _tone(one: Standing) -> Tone:
    return TONES.get(one.verdict, Tone.PLAIN)


def _run(one: Standing) -> str | None:
    return median_run(one.results or one.failed)


def _summary(one: Standing) -> str:
    if one.why_not:
        return one_line(one.why_not)
    assert one.per_token is not None, "it was compared"
    parts = [f"{one.per_token.text()} the baseline's samples/s"]
    if one.verdict is Verdict.OTHER_WORK:
        parts = [f"samples of another length: {_apart(one)}"]
    if one.memory_pct is not None and abs(one.memory_pct) >= 1:
        parts.append(f"memory {percent(one.memory_pct)}")
    if costs := ", ".join(_costs(one)):
        parts.append(costs)
    if one.failed:
        parts.append(f"{len(one.failed)} of {count(len(one.failed) + len(one.results), 'run')} failed")
    return "; ".join(parts)


def _costs(one: Standing) -> Iterator[str]:
    """Changes of cost, only where the speed changed beyond noise: cost is its inverse."""
    is_noise = one.verdict in (Verdict.NO_DIFFERENCE, Verdict.UNCLEAR)
    if one.saving_pct is None or one.token_saving_pct is None or is_noise:
        return
    both = [("sample", one.saving_pct, one.per_sample), ("token", one.token_saving_pct, one.per_token)]
    is_other_work = one.verdict is Verdict.OTHER_WORK
    for what, saving_pct, rate in both if is_other_work else both[:1]:
        if not is_other_work or (rate and rate.is_beyond_noise):
            yield f"a {what} costs {abs(saving_pct):.1f} % {'less' if saving_pct >= 0 else 'more'}"


def _figures(kind: GpuKindComparison) -> Table:
    notes = [
        "Figures are medians over runs; a speed-up is over the baseline of the same round and node, ± 99 % interval. "
        "Savings are on the baseline's price of a sample and of a token; − is more expensive."
    ]
    lengths = sorted({one.seq_length for one in kind.standings if one.seq_length})
    if len(lengths) > 1:
        notes.append(
            f"Unequal work: samples of {listing(f'{length:,}' for length in lengths)} tokens. A shorter sample is less "
            "work, so samples/s of different lengths are not ranked; tokens/s stand beside them. Attention over a "
            "longer sample costs more per token."
        )

    def runs(one: Standing) -> str:
        done, planned = len(one.results), len(one.results) + len(one.failed)
        return str(done) if done == planned else f"{done} of {planned}"

    return make_table(
        kind.standings,
        (
            text("configuration", lambda one: one.name),
            text("changes", lambda one: "; ".join(one.changes) or ("" if one.name == BASELINE else NA)),
            run_figures.SAMPLES_PER_SECOND.own(),
            SPEED_UP.column(lambda one: one.per_sample.text() if one.per_sample else NA),
            run_figures.TOKENS_PER_SECOND.own(),
            SPEED_UP.column(lambda one: one.per_token.text() if one.per_token else NA, "per token"),
            run_figures.PEAK_MEMORY_GB.own(),
            run_figures.USD_PER_1000_SAMPLES.own(),
            SAVING.column(lambda one: one.saving_pct),
            run_figures.USD_PER_1M_TOKENS.own(),
            SAVING.column(lambda one: one.token_saving_pct, "saving per token"),
            text("runs", runs, is_number=True),
            text("verdict", lambda one: one.verdict.value),
        ),
        tone=_tone,
        run_id=_run,
        title=f"The figures, {kind.gpu}",
        notes=tuple(notes),
    )


def _steps(kind: GpuKindComparison) -> Table:
    """Configurations whose predecessor is another one than the baseline."""
    return make_table(
        kind.steps,
        (
            text("configuration", lambda step: step.name),
            text("against", lambda step: step.against),
            SPEED_UP.column(lambda s: s.speed_up.text() + ("" if s.speed_up.is_beyond_noise else " (within noise)")),
            text("memory", lambda step: percent(step.memory_pct), is_number=True),
            SAVING.column(lambda step: step.saving_pct, "saving per sample"),
        ),
        title=f"Step by step, {kind.gpu}",
    )

"""Tables of a diagnosis: which configuration helped against the baseline, which did not, which failed."""

from __future__ import annotations

from itertools import chain

from trainbench.comparison.configurations import (
    TELLING_PCT,
    WORTH_PCT,
    GpuKindComparison,
    SpeedUp,
    Standing,
    Verdict,
    compare_by_gpu_kind,
)
from trainbench.core.formats import NA, count, listing, one_line, percent
from trainbench.core.tables import Table, Tone, make_table, median_run, text
from trainbench.figure_catalogue.run_figures import (
    PEAK_MEMORY_GB,
    SAMPLES_PER_SECOND,
    TOKENS_PER_SECOND,
    USD_PER_1M_TOKENS,
    USD_PER_1000_SAMPLES,
)
from trainbench.figure_catalogue.table_figures import SAVING, SPEED_UP
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.variants import BASELINE, VARIANTS
from trainbench.results.campaign import Campaign

TONES = {Verdict.HELPED: Tone.GOOD, Verdict.SLOWER: Tone.WARN, Verdict.FAILED: Tone.BAD}


def configurations(campaign: Campaign) -> tuple[Table, ...]:
    """Tables for each kind of GPU: the verdicts, the figures, and the gain of each further step."""
    if campaign.campaign_kind is not CampaignKind.CONFIGURATIONS:
        return ()
    tables = ((_verdicts(kind), _figures(kind), _steps(kind)) for kind in compare_by_gpu_kind(campaign))
    return tuple(made for made in chain.from_iterable(tables) if made.rows)


def verdicts(campaign: Campaign) -> tuple[Table, ...]:
    """The tables of verdicts alone, one for each kind of GPU."""
    return tuple(made for made in configurations(campaign) if "summary" in made.names)


def headline(campaign: Campaign) -> tuple[str, ...]:
    """Sentences on the best configuration, and on the best per sample where it is another, one for each kind of GPU."""
    if campaign.campaign_kind is not CampaignKind.CONFIGURATIONS:
        return ()
    return tuple(_headline(kind) for kind in compare_by_gpu_kind(campaign) if kind.baseline.results)


def _headline(kind: GpuKindComparison) -> str:
    of = f" on {kind.gpu}"
    helped = [one for one in kind.standings if one.verdict is Verdict.HELPED]
    other = [one for one in kind.standings if one.verdict is Verdict.OTHER_WORK and one.per_token]
    headline = f"No configuration is faster than the baseline beyond noise{of}"
    if helped:
        best = max(helped, key=_ratio)
        assert best.per_token is not None, "it helped"
        headline = f"{best.name} helped most{of}: {best.per_token.text()}"
    if not other:
        return f"{headline}."
    best = max(other, key=_ratio)
    return f"{headline}; {best.name}, whose samples have another length: {_apart(best)}."


def _apart(one: Standing) -> str:
    assert one.per_sample is not None, "it was compared"
    assert one.per_token is not None, "it was compared"
    return f"{one.per_sample.text()} the samples/s, {one.per_token.text()} the tokens/s"


def _verdicts(kind: GpuKindComparison) -> Table:
    order = tuple(Verdict)
    judged = [one for one in kind.standings if one.verdict is not Verdict.BASELINE]
    return make_table(
        sorted(judged, key=lambda one: (order.index(one.verdict), -_ratio(one))),
        (
            text("verdict", lambda one: one.verdict.value),
            text("configuration", lambda one: one.name),
            text("summary", _summary),
            text("what it tests", lambda one: VARIANTS[one.name].tests if one.name in VARIANTS else ""),
        ),
        tone=_tone,
        run_id=_run,
        title=f"What helped, what did not, what failed, {kind.gpu}",
        notes=_verdict_notes(kind),
    )


def _tone(one: Standing) -> Tone:
    return TONES.get(one.verdict, Tone.PLAIN)


def _summary(one: Standing) -> str:
    if one.why_not:
        return one_line(one.why_not)
    assert one.per_token is not None, "it was compared"
    apart = f"samples of another length: {_apart(one)}"
    rate = apart if one.verdict is Verdict.OTHER_WORK else f"{one.per_token.text()} the baseline's samples/s"
    memory = [] if one.memory_pct is None or abs(one.memory_pct) < 1 else [f"memory {percent(one.memory_pct)}"]
    parts = [rate, *memory, *_cost_parts(one)]
    if one.failed:
        parts.append(f"{len(one.failed)} of {count(len(one.failed) + len(one.results), 'run')} failed")
    return "; ".join(parts)


def _cost_parts(one: Standing) -> list[str]:
    """Changes of cost, only where the speed changed beyond noise: cost is its inverse."""
    is_noise = one.verdict in (Verdict.NO_DIFFERENCE, Verdict.UNCLEAR)
    if one.saving_pct is None or one.token_saving_pct is None or is_noise:
        return []
    if one.verdict is not Verdict.OTHER_WORK:
        return [_costs("sample", one.saving_pct)]
    both = (("sample", one.saving_pct, one.per_sample), ("token", one.token_saving_pct, one.per_token))
    if parts := [_costs(what, pct) for what, pct, rate in both if rate and rate.is_beyond_noise]:
        return [", ".join(parts)]
    return []


def _costs(what: str, saving_pct: float) -> str:
    return f"a {what} costs {abs(saving_pct):.1f} % {'less' if saving_pct >= 0 else 'more'}"


def _verdict_notes(kind: GpuKindComparison) -> tuple[str, ...]:
    notes = [
        "Only equal sample lengths are judged. A difference counts beyond the noise (99 % interval of the rounds' "
        f"ratios) and from {WORTH_PCT:g} % on; noise above {TELLING_PCT:g} % allows no verdict. The effect on the "
        "model's quality is not measured.",
        *kind.drift,
    ]
    if not kind.has_noise:
        notes.append("The noise is unknown: no run was repeated. Choose two rounds or more.")
    elif kind.num_rounds < 2:
        notes.append(
            "One round: the noise is that between the windows of a pod, without differences between pods. "
            "Two rounds or more include them."
        )
    else:
        notes.append(
            "The noise is that of the two configurations compared. Few rounds measure it badly, so the others' noise "
            "between runs counts a little, without any configuration that stands out."
        )
    return tuple(notes)


def _figures(kind: GpuKindComparison) -> Table:
    return make_table(
        kind.standings,
        (
            text("configuration", lambda one: one.name),
            text("changes", lambda one: "; ".join(one.changes) or ("" if one.name == BASELINE else NA)),
            SAMPLES_PER_SECOND.own(),
            SPEED_UP.column(lambda one: _text(one.per_sample)),
            TOKENS_PER_SECOND.own(),
            SPEED_UP.column(lambda one: _text(one.per_token), "per token"),
            PEAK_MEMORY_GB.own(),
            USD_PER_1000_SAMPLES.own(),
            SAVING.column(lambda one: one.saving_pct),
            USD_PER_1M_TOKENS.own(),
            SAVING.column(lambda one: one.token_saving_pct, "saving per token"),
            text("runs", _runs, is_number=True),
            text("verdict", lambda one: one.verdict.value),
        ),
        tone=_tone,
        run_id=_run,
        title=f"The figures, {kind.gpu}",
        notes=_figures_notes(kind),
    )


def _runs(one: Standing) -> str:
    done, planned = len(one.results), len(one.results) + len(one.failed)
    return str(done) if done == planned else f"{done} of {planned}"


def _run(one: Standing) -> str | None:
    return median_run(one.results or one.failed)


def _figures_notes(kind: GpuKindComparison) -> tuple[str, ...]:
    lengths = sorted({one.seq_length for one in kind.standings if one.seq_length})
    notes = [
        "Figures are medians over runs; a speed-up is over the baseline of the same round and node, ± 99 % interval. "
        "Savings are on the baseline's price of a sample and of a token; − is more expensive.",
    ]
    if len(lengths) > 1:
        sizes = listing(f"{length:,}" for length in lengths)
        notes.append(
            f"Unequal work: samples of {sizes} tokens. A shorter sample is less work, so samples/s of different "
            "lengths are not ranked; tokens/s stand beside them. Attention over a longer sample costs more per token."
        )
    if kind.over_nodes:
        notes.append(f"Speed-up by node: {'; '.join(kind.over_nodes)}.")
    return tuple(notes)


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


def _text(value: SpeedUp | None) -> str:
    return value.text() if value else NA


def _ratio(one: Standing) -> float:
    return one.per_token.ratio if one.per_token else 0.0

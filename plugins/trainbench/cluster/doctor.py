"""`trainbench doctor`: checks that everything is ready for a benchmark, and names each fault with its remedy.

The checks are pure functions from facts to `Check`s. `examine` gathers the facts first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from trainbench.cluster.cluster_checks import GPUS, cluster_checks
from trainbench.cluster.doctor_check import Check, CheckState
from trainbench.cluster.doctor_facts import Facts, Manifests, gather_facts, with_probe_facts
from trainbench.cluster.installation_checks import airflow_checks, site_checks
from trainbench.cluster.kubernetes_api import Cluster, open_cluster
from trainbench.core.formats import count, one_line, sentence
from trainbench.core.tables import Table, Tone, make_table, text
from trainbench.settings.environment import Settings

OUTAGES = ("cluster", "store", "history")  # checks that fail where something gives no answer
SIGNS = {CheckState.OK: "✓", CheckState.WARN: "!", CheckState.FAIL: "✗", CheckState.UNKNOWN: "?"}
TONES = {
    CheckState.OK: Tone.GOOD,
    CheckState.WARN: Tone.WARN,
    CheckState.FAIL: Tone.BAD,
    CheckState.UNKNOWN: Tone.PLAIN,
}


def examine(
    settings: Settings,
    manifests: Manifests = (),
    opened: Callable[[], Cluster] | None = None,
    with_probe: bool = False,
) -> tuple[Check, ...]:
    """The checks' outcomes, in seconds (`with_probe`: minutes). Never raises. `manifests`: the pods of a plan; without
    them a sample pod is tried. `opened`: opens the cluster without the Airflow connection, which is not checked then.
    """
    try:
        way = opened or partial(open_cluster, settings)
        facts = gather_facts(settings, manifests, way, asks_airflow=opened is None)
        return checks(with_probe_facts(facts, way) if with_probe else facts)
    except Exception as error:  # a broken doctor must not stop a benchmark that could run
        summary = f"the examination itself failed: {type(error).__name__}: {one_line(str(error))}"
        return (Check(name="doctor", state=CheckState.UNKNOWN, summary=summary, resolution="please report this"),)


def checks(facts: Facts) -> tuple[Check, ...]:
    """All checks, in the order in which their faults should be fixed."""
    return (*cluster_checks(facts), *airflow_checks(facts), *site_checks(facts))


def refusal(checks: Sequence[Check], uses_gpus: bool = True) -> str | None:
    """A sentence on why no run is possible; None: runs are possible. A trial on CPUs ignores the check of GPUs."""
    failed = _failed(checks, uses_gpus)
    if not failed:
        return None
    first = failed[0]
    others = [check.name for check in failed[1:]]
    more = f" Also not ready: {', '.join(others)}." if others else ""
    return sentence(f"{first.name}: {first.summary.rstrip('.')}. {_capital(first.resolution)}") + more


def may_pass(checks: Sequence[Check], uses_gpus: bool = True) -> bool:
    """Whether the `refusal` may be over in minutes: nothing failed but checks of OUTAGES."""
    return all(check.name in OUTAGES for check in _failed(checks, uses_gpus))


def _failed(checks: Sequence[Check], uses_gpus: bool) -> list[Check]:
    return [check for check in checks if check.state is CheckState.FAIL and (uses_gpus or check.name != GPUS)]


def verdict(checks: Sequence[Check]) -> str:
    failed = [check.name for check in checks if check.state is CheckState.FAIL]
    warned = sum(check.state is CheckState.WARN for check in checks)
    if failed:
        return f"Not ready: {', '.join(failed)}."
    return f"Ready, with {count(warned, 'warning')}." if warned else "Ready."


def table(checks: Sequence[Check]) -> Table:
    return make_table(
        checks,
        (
            text("", lambda check: SIGNS[check.state]),
            text("what", lambda check: check.name),
            text("how it is, and what to do", _sentences),
        ),
        tone=lambda check: TONES[check.state],
    )


def _sentences(check: Check) -> str:
    return sentence(check.summary) + (f" {sentence(_capital(check.resolution))}" if check.resolution else "")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]

"""`trainbench doctor`: checks that everything is ready for a benchmark, and names each fault with its remedy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from trainbench.cluster.cluster_checks import GPUS, on_cluster, probe, sample_pods
from trainbench.cluster.doctor_check import Check, CheckState, Examination, Manifests, Site, fail, ok, unknown
from trainbench.cluster.installation_checks import airflow, campaigns, channels, history, interpreter, notices, store
from trainbench.cluster.kubernetes_api import Cluster, open_cluster
from trainbench.core.formats import count, one_line
from trainbench.core.tables import Table, make_table, text
from trainbench.planning.nodes import Fleet
from trainbench.pods.pod_template import PodTemplateError
from trainbench.settings.environment import Launcher, Settings

DEADLINE_S = 30.0
IN_THIS_THREAD = (airflow, channels)  # a task requests a connection from its supervisor
NOT_PROBED = unknown("DNS", "only a pod can test whether pods find each other by the Service", "--probe runs one")
OUTAGES = ("cluster", "store", "history")  # checks that fail where something gives no answer
SIGNS = {CheckState.OK: "✓", CheckState.WARN: "!", CheckState.FAIL: "✗", CheckState.UNKNOWN: "?"}


def examine(
    settings: Settings,
    manifests: Manifests = (),
    opened: Callable[[], Cluster] | None = None,
    with_probe: bool = False,
    deadline_s: float | None = None,
) -> tuple[Check, ...]:
    """The checks' outcomes, in the order in which their faults should be fixed, in seconds (`with_probe`: minutes).
    Never raises. `manifests`: the pods of a plan; without them a sample pod is tried. `opened`: opens the cluster
    without the Airflow connection, which is not checked then. `deadline_s`: of all answers together.
    """
    try:
        checks, usable = _template_check(settings)
        examinations = [store, history, *([channels, notices] if settings.notify else [])]
        if settings.campaigns:
            examinations.append(campaigns)
        cluster: Cluster | Exception | None = None
        if settings.launcher is Launcher.LOCAL:
            examinations.insert(0, interpreter)
        else:
            examinations[:0] = [on_cluster, airflow] if opened is None else [on_cluster]
            try:
                cluster = (opened or partial(open_cluster, settings))()
            except Exception as error:  # the cluster's examination tells of it
                cluster = error
        site = Site(usable, cluster, manifests, asks_airflow=opened is None)
        checks += _answers(examinations, site, DEADLINE_S if deadline_s is None else deadline_s)
        if any(check.name == "cluster" and check.state is CheckState.OK for check in checks):
            if with_probe and usable == settings:
                checks += _answer(probe, site)
            elif site.needs_service:
                checks.append(NOT_PROBED)
        return tuple(checks)
    except Exception as error:  # a broken doctor must not stop a benchmark that could run
        summary = f"the examination itself failed: {type(error).__name__}: {one_line(str(error))}"
        return (unknown("doctor", summary, "please report this"),)


def _template_check(settings: Settings) -> tuple[list[Check], Settings]:
    """The check of the Pod template, and the settings without one that cannot be used."""
    try:
        sample_pods(settings, Fleet())
    except PodTemplateError as error:
        check = fail("pod template", str(error), "fix what it names: docs/pod-template.md")
        return [check], settings.model_copy(update={"pod_template": None})
    if settings.pod_template is None:
        return [], settings
    return [ok("pod template", f"{settings.pod_template} is merged into every pod")], settings


def _answers(examinations: Sequence[Examination], site: Site, deadline_s: float) -> list[Check]:
    """The checks of all. They are made side by side in daemon threads: one that hangs does not delay the answer past
    the deadline.
    """
    answers: dict[Examination, list[Check]] = {}

    def fill(examination: Examination) -> None:
        answers[examination] = _answer(examination, site)

    threads = []
    for examination in examinations:
        if examination in IN_THIS_THREAD:
            fill(examination)
        else:
            threads.append(threading.Thread(target=fill, args=(examination,), daemon=True))
            threads[-1].start()
    give_up = time.monotonic() + deadline_s
    for thread in threads:
        thread.join(max(0.0, give_up - time.monotonic()))
    late = f"no answer within {deadline_s:g} s"
    return [check for each in examinations for check in answers.get(each, [each.silent(site, late)])]


def _answer(examination: Examination, site: Site) -> list[Check]:
    try:
        return list(examination.checks(site))
    except Exception as error:  # doctor reports every fault; none of them may end it
        return [examination.silent(site, one_line(str(error)) or type(error).__name__)]


def refusal(checks: Sequence[Check], uses_gpus: bool = True) -> str | None:
    """A sentence on why no run is possible; None: runs are possible. A trial on CPUs ignores the check of GPUs."""
    failed = _failed(checks, uses_gpus)
    if not failed:
        return None
    more = f" Also not ready: {', '.join(check.name for check in failed[1:])}." if failed[1:] else ""
    return f"{failed[0].name}: {failed[0].sentences}{more}"


def may_pass(checks: Sequence[Check], uses_gpus: bool = True) -> bool:
    """Whether the `refusal` may be over in minutes: nothing failed but checks of OUTAGES."""
    return all(check.name in OUTAGES for check in _failed(checks, uses_gpus))


def _failed(checks: Sequence[Check], uses_gpus: bool) -> list[Check]:
    return [check for check in checks if check.state is CheckState.FAIL and (uses_gpus or check.name != GPUS)]


def verdict(checks: Sequence[Check]) -> str:
    if failed := _failed(checks, uses_gpus=True):
        return f"Not ready: {', '.join(check.name for check in failed)}."
    warned = sum(check.state is CheckState.WARN for check in checks)
    return f"Ready, with {count(warned, 'warning')}." if warned else "Ready."


def table(checks: Sequence[Check]) -> Table:
    return make_table(
        checks,
        (
            text("", lambda check: SIGNS[check.state]),
            text("what", lambda check: check.name),
            text("how it is, and what to do", lambda check: check.sentences),
        ),
    )

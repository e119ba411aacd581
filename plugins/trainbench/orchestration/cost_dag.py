"""Builds the DAG `cost_report`: the cost of benchmarking, written when results are published and once a month."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, Asset, Param, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

from trainbench.orchestration.dag_ids import our_dag
from trainbench.orchestration.dag_tasks import RESULTS
from trainbench.params.cost_params import months_until, spend_form
from trainbench.params.form_fields import shown_fields
from trainbench.settings.environment import read_settings

IN_VIEW = ("month", "months", "usd_per_gpu_hour", "purchase_usd_per_gpu")
MONTHLY = "0 5 1 * *"  # on the first, after the night
# Its own asset: emitting RESULTS would start this DAG again.
COSTS = Asset(name="trainbench_costs", uri="x-trainbench://results/costs")
DOC = f"""\
**What do benchmarks cost, and what does the measured work cost over time?** Runs when a benchmark publishes results,
on the first of each month for the month before, and by hand. Starts no pod.

It shows the spend of each DAG and month; cost per 1K samples and per 1M tokens of each work on each kind of GPU;
the change since the month before, split into price and throughput; the cost at other prices; and the energy.
Runs without a known price are counted and named; they do not count as free.

The files lie in the store under `cost/`: `COST_REPORT.md`, `cost_report.html`, `costs.json`.
`TRAINBENCH_SCHEDULE_COST_REPORT` sets another time than `{MONTHLY}`. With `none`, and with the local launcher, it runs
by hand only.
"""


def build_cost_report(name: str) -> DAG:
    with our_dag(
        name,
        read_settings(),
        "Cost report",
        DOC,
        MONTHLY,
        asset=RESULTS,
        dagrun_timeout=timedelta(hours=1),
        tags=["trainbench", "cost"],
        params={name: Param(**field) for name, field in shown_fields(spend_form(), IN_VIEW).items()},
    ) as dag:
        report_costs()
    return dag


@task(task_id="report", outlets=[COSTS])
def report_costs() -> dict[str, str]:
    """Reads the history, writes the report; returns the files' addresses."""
    from trainbench.cost.monthly_report import publish, report_on
    from trainbench.history.history import open_history
    from trainbench.params.cost_params import parse_spend_params
    from trainbench.params.refusals import ParamsError
    from trainbench.planning.plan import campaign_id
    from trainbench.prices.price_tables import PriceError
    from trainbench.results.artefacts import open_store
    from trainbench.results.store_files import StoreError

    context, settings = get_current_context(), read_settings()
    run = context["dag_run"]
    form = dict(context["params"])
    if run.run_type == "scheduled" and not form["month"]:
        form["month"] = months_until(f"{run.run_after:%Y-%m}", 2)[0]  # on the first day: the month that has just ended
    try:
        params = parse_spend_params(form)
        store = open_store(settings.store)
        history = open_history(settings.history_url, store)
        report = report_on(params, history, campaign_id(context["dag"].dag_id, context["run_id"]), datetime.now(UTC))
        addresses = dict(publish(report, store))
    except (ParamsError, StoreError, PriceError) as error:
        raise AirflowFailException(str(error)) from None
    for line in (*report.summary, *addresses.values()):
        print(line)  # noqa: T201 - goes to the task's log
    context["outlet_events"][COSTS].extra = {"month": report.month, "summary": list(report.summary)}
    return addresses

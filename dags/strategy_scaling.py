"""The Airflow DAG `strategy_scaling`: every strategy at every number of GPUs, weekly."""

from trainbench.orchestration.dag_factory import Suite, build_dag
from trainbench.params.campaign_kind import CampaignKind

dag = build_dag(
    Suite(
        dag_id="strategy_scaling",
        title="Strategy scaling",
        campaign_kind=CampaignKind.STRATEGIES,
        schedule="0 4 * * 6",
        tags=("trainbench", "weekly"),
        timeout_h=24.0,
        doc="""
**Which strategy should we train with?** Runs `single`, `ddp`, `fsdp`, `zero2` and `zero3` on equal work, at each of the
chosen numbers of GPUs: one gang after another, one pod for each node of a gang. The report ranks throughput, scaling
efficiency against the smallest size measured, memory and the exposed share of communication. With a `command` of your
own it runs that instead, at each number of GPUs.

Strategies and sizes that are not chosen are shown as skipped. When one pod of a gang fails, the others are ended, and
the report names the first cause. A configuration that does not fit the GPU's memory is a row of the table; any other
failure turns the run red, after the report is published.
""",
    )
)

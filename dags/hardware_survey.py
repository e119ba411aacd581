"""The Airflow DAG that compares kinds of GPU: the same models and recipes on each kind that the cluster has."""

from trainbench.orchestration.dag_factory import Suite, build_comparison_dag
from trainbench.params.campaign_kind import Question

dag = build_comparison_dag(
    Suite(
        dag_id="hardware_survey",
        title="Hardware survey",
        question=Question.HARDWARE,
        schedule=None,
        tags=("trainbench", "manual"),
        timeout_h=24.0,
        doc="""\
**Which GPU should we rent or buy, for which model and recipe?** Every chosen model runs with every chosen recipe on
one GPU of each kind that the cluster has, one pod after another. Nodes are grouped by the name of their GPU.

The report tells, per model: the speed of each GPU relative to one of them, the time of an epoch, the cost of a million
samples and tokens; what a recipe saves in memory against full fine-tuning (measured, or by formula where full does not
fit); what each budget buys; and, with purchase prices, from how much use buying beats renting.

A micro-batch of `auto` is the fastest that fits each GPU: the report says where that makes the work unequal. What does
not fit a kind of GPU is a row with its need; a kind of which no node can be had is a row with the reason. Any other
failure turns the run red, after the report is out.
""",
    )
)

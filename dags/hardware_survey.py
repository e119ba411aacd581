"""The Airflow DAG `hardware_survey`: the same models and recipes on each kind of GPU in the cluster."""

from trainbench.orchestration.dag_factory import Suite, build_dag
from trainbench.params.campaign_kind import CampaignKind

dag = build_dag(
    Suite(
        dag_id="hardware_survey",
        title="Hardware survey",
        campaign_kind=CampaignKind.HARDWARE,
        schedule=None,
        tags=("trainbench", "manual"),
        timeout_h=24.0,
        doc="""\
**Which GPU should we rent or buy, for which model and recipe?** Every chosen model runs with every chosen recipe on
one GPU of each kind that the cluster has, one pod after another. Nodes are grouped by the name of their GPU. With
`world_sizes`, such as 1, 2, 4 and 8, each also runs on so many GPUs of one node, by each of the `strategies`.

The report shows for each model: the speed of each GPU relative to one of them, MFU, the time of an epoch, the cost of
a million samples and tokens, and of several GPUs the rate per GPU and the scaling; the memory that a recipe saves
against full fine-tuning (measured, or by formula where full does not fit); what each budget buys; and, with purchase
prices, the utilisation from which buying beats renting.

A micro-batch of `auto` is the fastest that fits each GPU: the report says where that makes the work unequal. A recipe
that does not fit a kind of GPU is a row with the memory it needs; a kind without an available node is a row with the
reason. Any other failure turns the run red, after the report is published.
""",
    )
)

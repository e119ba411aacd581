"""The Airflow DAG `interconnect`: which node or link makes gangs slow, weekly."""

from trainbench.orchestration.dag_factory import Suite, build_dag
from trainbench.params.campaign_kind import CampaignKind

dag = build_dag(
    Suite(
        dag_id="interconnect",
        title="Interconnect",
        campaign_kind=CampaignKind.INTERCONNECT,
        schedule="0 6 * * 0",
        tags=("trainbench", "weekly"),
        timeout_h=12.0,
        doc="""
**Which node, or which link, makes gangs slow?** Groups of nodes run side by side: each sweeps all-reduce, all-gather,
reduce-scatter and all-to-all over message sizes, then trains for some steps. A group that fails, or is slow beside the
others, is halved until one node or one pair is left, which is confirmed beside other nodes that are well.

| round | runs |
|---|---|
| 1 | all groups: by the installation's topology label, or of about the square root of all nodes |
| 2 | the same without NVLink, where nodes have several GPUs: to tell the network from NVLink |
| 3 | one node of each healthy group together, beside the halves of bad groups |
| 4 to 14 | halves, pairs, confirmations; skipped where nothing is left to find |

Where all groups of a round fail it is a setting or the network, and no group is halved. Busy and missing nodes are left
out, and named.
""",
    )
)

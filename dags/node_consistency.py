"""The Airflow DAG `node_consistency`: the nightly comparison of each node with its peers and its past."""

from trainbench.orchestration.dag_factory import Suite, build_node_dag
from trainbench.params.campaign_kind import CampaignKind

dag = build_node_dag(
    Suite(
        dag_id="node_consistency",
        title="Node consistency",
        campaign_kind=CampaignKind.NODES,
        schedule="0 2 * * *",
        tags=("trainbench", "nightly"),
        doc="""\
All GPUs of every node: one pod per node and strategy, all doing the same work. `independent` trains on each GPU by
itself, all of a node at once, and compares every GPU with those of its kind; `ddp` trains on all GPUs of a node
together, where it has several. A node is as good as its worst GPU.

| task | does |
|---|---|
| `ready` | names in one sentence what is missing, before any pod starts |
| `plan` | finds the nodes and their GPUs, checks the parameters, decides the runs |
| `divide` | cuts the runs into blocks, because Airflow maps a task over at most 1,024 values by default |
| `benchmark` | one mapped pod per node, strategy and round; its label names them |
| `judge` | compares the nodes: samples/s ± 5 %, GPU memory ± 2 %, temperature ± 10 °C |
| `confirm` | runs every breaching node once more |
| `publish` | reports, metrics and history |
| `alert` | emits the asset event with all breaches and warnings |
| `gate` | turns the run red on breaches, failed or missing nodes and a drill that was not detected |

A busy node is reported and not red. When `ready` or `plan` fails, no node is judged.

The preset `tuned` is the default: there the GPU sets the pace. `as_users_run` is the published guide's configuration,
with gradient checkpointing and paged 8-bit AdamW.

A run with a node slowed on purpose (`drill_node`) must turn red: it shows that the alarm works. If the node is not
detected, the report gives the measured figures.
""",
    )
)

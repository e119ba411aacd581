"""The Airflow DAG `node_consistency`: the nightly comparison of each node with its peers and its past."""

from trainbench.orchestration.dag_factory import Suite, build_dag
from trainbench.params.campaign_kind import CampaignKind

dag = build_dag(
    Suite(
        dag_id="node_consistency",
        title="Node consistency",
        campaign_kind=CampaignKind.NODES,
        schedule="0 2 * * *",
        tags=("trainbench", "nightly"),
        doc="""\
**Is every node as fast as its peers, as it was, and as its kind of GPU should be?** All GPUs of every node do the same
work, in one pod per node and strategy. `independent` trains on each GPU by itself, all of a node at once, and compares
every GPU with those of its kind; `ddp` trains on all GPUs of a node together, where it has several. A node is as good
as its worst GPU.

| task | does |
|---|---|
| `ready` | names in one sentence what is missing, before any pod starts |
| `plan` | finds the nodes and their GPUs, checks the parameters, decides the runs |
| `divide` | cuts the runs into blocks, because Airflow maps a task over at most 1,024 values by default |
| `benchmark` | one mapped pod per node, strategy and round; its label names them |
| `judge` | compares each node with its peers, its own past and the known level of its GPU, and chooses who runs again |
| `confirm` | runs each suspect twice more, together with up to three nodes that are well |
| `publish` | the verdict by all runs; reports, metrics and history |
| `alert` | emits the asset event with what is red and what needs a look |
| `gate` | turns the run red on red nodes (slow, failed, missing, other numbers) and a drill that was not detected |

A busy node is reported and not red. When `ready` or `plan` fails, no node is judged.

The preset `tuned` is the default: there the GPU sets the pace. `as_users_run` is the published guide's configuration,
with gradient checkpointing and paged 8-bit AdamW.

A run with a node slowed on purpose (`drill_node`) must turn red: it shows that the alarm works. If the node is not
detected, the report gives the measured figures.
""",
    )
)

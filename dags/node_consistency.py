"""The Airflow DAG of the nightly check: is every node as fast as its peers, and as it was last week?"""

from bench_control.asking.question import Question
from bench_control.flows.dag_factory import Suite, build_node_dag

dag = build_node_dag(
    Suite(
        dag_id="node_consistency",
        title="Node consistency",
        question=Question.NODES,
        schedule="0 2 * * *",
        tags=("trainbench", "nightly"),
        doc="""\
One independent benchmark pod per GPU node and strategy, all doing the same work; every node is compared with the
median of the others.

| task | does |
|---|---|
| `ready` | says in one sentence what is missing, before every pod does |
| `plan` | finds the nodes, checks the parameters, writes one Pod manifest per run |
| `benchmark` | one mapped pod per node, strategy and round; its label names them |
| `judge` | compares the nodes: samples/s ± 5 %, GPU memory ± 2 %, temperature ± 10 °C |
| `confirm` | runs every breaching node once more |
| `publish` | reports, metrics and history |
| `alert` | emits the asset event with what is wrong |
| `gate` | turns the run red on confirmed breaches, failed or missing nodes; a busy node is told, never red |

A run with a node slowed on purpose (`drill_node`) must turn red: it shows that the alarm works.
""",
    )
)

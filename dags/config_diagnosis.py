"""The Airflow DAG `config_diagnosis`: a baseline against variants of it, on the same node."""

from trainbench.orchestration.dag_factory import Suite, build_dag
from trainbench.params.campaign_kind import CampaignKind

dag = build_dag(
    Suite(
        dag_id="config_diagnosis",
        title="Configuration diagnosis",
        campaign_kind=CampaignKind.CONFIGURATIONS,
        schedule=None,
        tags=("trainbench", "manual"),
        timeout_h=24.0,
        doc="""\
**What makes our training faster or cheaper, and what does not?** The work as the form describes it is the baseline;
each chosen configuration is that work with one thing changed. One node runs them in turn, the baseline in every round
(A B C, A B C, ...), so that a machine that warms up or gets busy does so for all of them.

| configuration | changes |
|---|---|
| `adamw_torch` | the optimizer |
| `LoRA r8` | the rank of the adapters |
| `seq 512` | the length of a sample |
| `seq 512 + batch 8` | the length, and twice as many samples at once |
| `fp16` | the precision, with loss scaling |
| `fp32`, `tf32` | the precision; tf32: fp32 with products of fewer bits |
| `compile` | layers and loss by torch.compile |
| `eager attention`, `flash attention` | how attention is computed |
| `checkpointing off` | activations are kept and not computed again |
| `data from disk` | ready tokens come from shard files instead of memory |
| `QLoRA plain`, `+ double quantisation`, `+ checkpointing`, `+ both` | the four ways to spend less memory |

The report shows which configurations helped, which did not and which failed: speed-up with its uncertainty, memory,
cost and saving. Samples of another length are other work: they are listed and not ranked with the rest. A
configuration that does not fit the GPU's memory is a row of the table; any other failure turns the run red, after the
report is published.
""",
    )
)

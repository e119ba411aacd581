"""The Airflow DAG of the weekly scaling study: every strategy at every number of GPUs."""

from bench_control.dag_factory import Suite, build_scaling_dag

dag = build_scaling_dag(
    Suite(
        dag_id="strategy_scaling",
        title="Strategy scaling",
        schedule="0 4 * * 6",
        tags=("trainbench", "weekly"),
        timeout_h=24.0,
        doc="""
**Which strategy should we train with?** Runs `single`, `ddp`, `fsdp`, `zero2` and `zero3` on equal work, at each of the
chosen numbers of GPUs: one gang after another, one pod for each node of a gang. The report ranks throughput, scaling
efficiency against the smallest size measured, memory and the exposed share of communication.

Strategies and sizes that are not chosen show as skipped. When one pod of a gang fails, the others are ended, and the
report tells the first cause. A configuration that does not fit the GPU's memory is a row of the table; any other
failure turns the run red, after the report is out.
""",
        defaults={
            "model": "tier-a",
            "recipe": "full",
            "preset": "tuned",
            "strategies": ["single", "ddp", "fsdp", "zero2", "zero3"],
            "gpus_per_node": 8,
            "micro_batch_size": 1,
            "gradient_accumulation_steps": 4,
            "seq_length": 2048,
            "optimizer": "adamw_torch",
            "gradient_checkpointing": False,
        },
        local_defaults={"strategies": ["single", "ddp", "fsdp"], "world_sizes": [1, 2], "gpus_per_node": 1},
        hidden=(
            "noise_floor",
            "rounds",
            "reference",
            "fixed_samples_per_second",
            "samples_per_second_tolerance_pct",
            "memory_tolerance_pct",
            "temperature_tolerance_c",
            "drill_node",
            "drill_slowdown_pct",
        ),
    )
)

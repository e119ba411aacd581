"""What a DAG of your own can be made of: `from trainbench.airflow import NodeCheck` (docs/own-dag.md)."""

from __future__ import annotations

from trainbench.orchestration.benchmark_operator import BenchmarkOperator, read_result
from trainbench.orchestration.dag_factory import NodeCheck
from trainbench.orchestration.nodes_well import NodesWellSensor

__all__ = ["BenchmarkOperator", "NodeCheck", "NodesWellSensor", "read_result"]

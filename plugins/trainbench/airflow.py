"""What a DAG of your own can be made of: `from trainbench.airflow import NodeCheck` (docs/own-dag.md)."""

from __future__ import annotations

from trainbench.orchestration.node_check import NodeCheck

__all__ = ["NodeCheck"]

"""The models of `--json`: for each command the shape of `data`. docs/schemas/ is made from them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, create_model

from bench_image.contract.frozen import Frozen
from trainbench.cli.json_output import SCHEMA_VERSION
from trainbench.cluster.collect_pods import CollectedPod
from trainbench.cluster.doctor_check import Check
from trainbench.cluster.running_pods import LivePod
from trainbench.core.baselines import Baseline
from trainbench.cost.estimate import Estimate
from trainbench.cost.monthly_report import SpendReport
from trainbench.cost.plan_estimate import PlanEstimate
from trainbench.judging.levels import KnownLevel
from trainbench.judging.node_marks import Mark
from trainbench.planning.plan import Plan
from trainbench.prices.price_import import ImportedPrices
from trainbench.prices.price_tables import Price
from trainbench.reporting.verdict_text import NodeRow
from trainbench.results.campaign import Campaign

SCHEMAS = Path("docs") / "schemas"
FILES = Field(description="name -> address of each written file")


class ErrorDocument(Frozen):
    """Why the command did not do its work."""

    kind: Literal["usage", "interrupted", "defect"] = Field(
        description="usage: wrong usage, or something is missing; the message says what to do"
    )
    message: str


class PlanDocument(Plan):
    estimate: PlanEstimate
    manifests: tuple[dict[str, Any], ...] | None = Field(None, description="with --manifests: the Pods")


def _fields_of(model: type[BaseModel], without: str = "") -> dict[str, Any]:
    return {name: (field.annotation, field) for name, field in model.model_fields.items() if name != without}


# The verdict of a campaign; the results themselves are in their files.
VerdictDocument = create_model(
    "VerdictDocument",
    __base__=Frozen,
    **_fields_of(Campaign, without="results"),
    nodes=(tuple[NodeRow, ...], Field(description="one state for each node, the worst first")),
    files=(dict[str, str], FILES),
)


class ReportDocument(Frozen):
    campaign_id: str
    files: dict[str, str] = FILES


class LeftOut(Frozen):
    address: str
    reason: str


class ComparisonDocument(Frozen):
    format: str
    format_version: int
    rows: tuple[dict[str, Any], ...] = Field(description="one for each kind of runs; figures as in docs/figures.md")
    summary: tuple[str, ...]
    notes: tuple[str, ...]
    left_out: tuple[LeftOut, ...]


class EstimatesDocument(Frozen):
    currency: Literal["USD"]
    estimates: tuple[Estimate, ...]


# Computed figures of a price are properties there, and fields here.
PriceRow = create_model(
    "PriceRow",
    __base__=Frozen,
    **_fields_of(Price),
    usd_per_gpu_hour=float,
    spot_usd_per_gpu_hour=float | None,
    age_days=int | None,
    stale=bool,
)


class PricesDocument(Frozen):
    currency: Literal["USD"]
    prices: tuple[PriceRow, ...]


class CostDocument(SpendReport):
    files: dict[str, str] = FILES


class PodsDocument(Frozen):
    pods: tuple[LivePod, ...]
    problem: str | None = Field(description="why the cluster could not be queried")


class ExportDocument(Frozen):
    run_id: str
    files: tuple[str, ...]


class ImportDocument(Frozen):
    campaigns: dict[str, str] = Field(description="file -> the campaign that it became")
    left_out: tuple[LeftOut, ...]


class ReindexDocument(Frozen):
    recorded: tuple[str, ...]
    unpublished: tuple[str, ...]
    imported: tuple[str, ...]
    left_out: tuple[LeftOut, ...]


class BaselinesDocument(Frozen):
    baselines: tuple[Baseline, ...]


class LevelsDocument(Frozen):
    levels: tuple[KnownLevel, ...]


class DoctorDocument(Frozen):
    ready: bool
    checks: tuple[Check, ...]


class NodeDocument(Frozen):
    node: str
    shape: str | None = Field(description="what keeps work away from the node")
    mark: Mark | None
    outcome: str
    fault: str | None


class NodesDocument(Frozen):
    nodes: tuple[NodeDocument, ...]


class SweptDocument(Frozen):
    deleted: tuple[str, ...]
    to_delete: tuple[str, ...]
    to_look_at: dict[str, str]
    faults: dict[str, str]
    bytes: int
    looked_at: int


class HousekeepingDocument(Frozen):
    pods: SweptDocument | None
    artefacts: SweptDocument | None
    problems: tuple[str, ...]


class TableDocument(Frozen):
    num_rows: int
    columns: tuple[str, ...]
    file: str | None = Field(description="with --output: the file that was written")
    rows: tuple[dict[str, Any], ...] | None = Field(description="without --output: the rows, by column")


class GpusDocument(Frozen):
    gpus: tuple[dict[str, Any], ...] = Field(description="facts of each GPU, by column")
    fits: tuple[dict[str, Any], ...] = Field(description="what fits, by column")
    sentence: str | None = Field(description="what fits the GPU that was named")


class CollectDocument(Frozen):
    pods: tuple[CollectedPod, ...]
    campaigns: tuple[str, ...] = Field(description="those that have new files in the store")


DOCUMENTS: Mapping[str, type[Any]] = {
    "plan": PlanDocument,
    "run": VerdictDocument,
    "check": VerdictDocument,
    "report": ReportDocument,
    "compare": ComparisonDocument,
    "estimate": EstimatesDocument,
    "prices": PricesDocument,
    "prices import": ImportedPrices,
    "cost": CostDocument,
    "watch": PodsDocument,
    "export": ExportDocument,
    "import": ImportDocument,
    "reindex": ReindexDocument,
    "baseline accept": Baseline,
    "baseline list": BaselinesDocument,
    "baseline revoke": Baseline,
    "levels list": LevelsDocument,
    "levels make": LevelsDocument,
    "levels accept": LevelsDocument,
    "levels import": LevelsDocument,
    "doctor": DoctorDocument,
    "nodes list": NodesDocument,
    "nodes free": NodesDocument,
    "table": TableDocument,
    "gpus": GpusDocument,
    "collect": CollectDocument,
    "result": dict[str, Any],
    "housekeeping": HousekeepingDocument,
}


def json_schema(command: str) -> dict[str, Any]:
    """The JSON Schema of the command's whole document."""
    fields: dict[str, Any] = {
        "schema_version": (Literal[SCHEMA_VERSION], ...),
        "command": (Literal[command], ...),
        "exit_code": (int, Field(description="as `trainbench --help` lists them")),
        "error": (ErrorDocument | None, Field(description="null: the command did its work, whatever the verdict")),
        "messages": (tuple[str, ...], Field(description="the lines for people, as on standard error")),
        "data": (DOCUMENTS[command] | None, Field(description="null: there is an error")),
    }
    model = create_model(f"trainbench {command}", __base__=Frozen, **fields)
    schema = model.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def schema_file(command: str) -> str:
    return f"{command.replace(' ', '-')}.json"

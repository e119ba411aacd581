"""Keeps what this version writes in tests/kept/VERSION, for the tests of later ones: store, history and an export.

PYTHONPATH=.:plugins:scripts .venv/bin/python scripts/keep_store.py

Run it once for each release, last of all, and never again once that version is tagged: tests/unit/test_upgrade.py
opens every kept store. Before the tag, a change of what is stored is kept by running it again. Four invented nodes: one
is 20 % slower and confirmed so, one gives no answer.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from tests.builders import STARTED_AT, make_result, make_spec
from tests.builders.commands import trainbench
from trainbench import __version__
from trainbench.params.campaign_params import parse_params
from trainbench.planning.plan import Plan
from trainbench.results.arrivals import PlannedCampaign
from trainbench.results.artefacts import open_store

KEPT = Path(__file__).resolve().parents[1] / "tests" / "kept"
NIGHT = "night-1"
RATES = {"node-1": 10.0, "node-2": 10.1, "node-3": 8.0}  # samples/s; node-4 gives no answer
LARGE = ("report.html", "plots", "BENCHMARK_REPORT.md", "COST_REPORT.md")  # nobody reads them back


def main() -> None:
    target = KEPT / __version__
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name:
        store = Path(name) / "store"
        os.environ |= {"TRAINBENCH_STORE": str(store)}
        os.environ.pop("TRAINBENCH_HISTORY_URL", None)
        _write_night()
        for command in (
            ["report", NIGHT],
            ["reindex"],
            ["baseline", "accept", "--node", "node-3", "--why", "a kept store"],
        ):
            if (done := trainbench(*command)).exit_code:
                raise SystemExit(f"keep_store: {command}: {done.stderr or done.exception}")
        result = next((store / "campaigns" / NIGHT / "runs").glob("*node-1*/result.json"))
        trainbench("export", str(result), "--output", f"{name}/export")
        with closing(sqlite3.connect(store / "history.sqlite")) as connection:
            history = "\n".join(connection.iterdump())
        shutil.copytree(store, target / "store", ignore=shutil.ignore_patterns("history.sqlite*", *LARGE))
        shutil.copytree(f"{name}/export", target / "export")
    (target / "history.sql").write_text(history + "\n")
    print(f"kept: {target}")


def _write_night() -> None:
    names = (*RATES, "node-4")
    specs = tuple(make_spec(node=name, campaign_id=NIGHT, run_id=f"{NIGHT}-{name}-r1") for name in names)
    again = make_spec(node="node-3", campaign_id=NIGHT, run_id=f"{NIGHT}-node-3-r2", round=2)
    plan = Plan(campaign_id=NIGHT, params=parse_params({"nodes": list(names)}), nodes=names, specs=specs, skipped=())
    planned = PlannedCampaign(plan=plan, suite="node_consistency", dag_run_id="scheduled__1", planned_at=STARTED_AT)
    store = open_store()
    store.write_plan(NIGHT, planned.model_dump_json())
    for spec in (*specs[:3], again):
        node = spec.identity.node
        store.write_result(make_result(node, RATES[node]).model_copy(update={"spec": spec}))


if __name__ == "__main__":
    main()

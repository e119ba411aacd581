"""Makes the pictures under docs/images anew: a real Airflow and a real Chromium over made nights, and a run of a drill.

    make screenshots

The runs are Airflow's own; their pods are the tests' stand-in image, so every figure in the pictures is made.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import Browser, Locator, Page, ViewportSize

from chromium import NoChromium, chromium
from local_airflow import ROOT, LocalAirflow, LocalAirflowError
from made_history import DAG_ID, JOB, NODES, SCALING, record_nights
from tests.builders.ports import free_port
from tests.dag.standin_image import as_python
from trainbench.history.history import open_history
from trainbench.results.artefacts import open_store

IMAGES = ROOT / "docs" / "images"
DRILLED = NODES[4]
RUN = JOB | {"samples_per_second_tolerance_pct": 5}  # the form of this machine begins with that of a CPU trial
RUN_NODES = [node for node in NODES if node != "gpu-09"]  # its notice stays open
DRILL = {"nodes": RUN_NODES, "drill_node": DRILLED, "drill_slowdown_pct": 20}  # as much as the stand-in is slowed
SCALED = {
    "device": "cuda",
    "model": "tier-a",
    "recipe": "full",
    "nodes": list(NODES[:4]),
    "gpus_per_node": 1,
    "strategies": ["single", "ddp", "fsdp"],
}
DESK, TALL = ViewportSize(width=1280, height=760), ViewportSize(width=1280, height=960)
PHONE = ViewportSize(width=390, height=844)
COLOURS = 256  # of a picture's palette: a third of the size
PATIENCE_S = 900


def main() -> int:
    try:
        with tempfile.TemporaryDirectory(prefix="trainbench-") as folder:
            _make(Path(folder))
    except (LocalAirflowError, NoChromium) as error:
        print(f"screenshots: {error}")
        return 2
    return 0


def _make(state: Path) -> None:
    environment = {
        "TRAINBENCH_LOCAL_PYTHON": str(as_python(state)),
        "TRAINBENCH_LOCAL_PYTHONPATH": f"{ROOT}:{ROOT / 'plugins'}",
        "TRAINBENCH_WORLD_SIZES": "1,2,4",
    }
    record_nights(open_history(store=open_store(str(state / "store"))))
    with LocalAirflow(free_port(), with_triggerer=True, state=state, environment=environment) as airflow:
        for dag_id in (DAG_ID, SCALING):
            airflow.wait_until_healthy(dag_id)
        _run(airflow, SCALING, SCALED)
        drill = _run(airflow, DAG_ID, RUN | DRILL)
        with chromium() as browser:
            _in_airflow(browser, airflow.url, f"{airflow.url}/dags/{DAG_ID}/runs/{quote(drill)}")
            _by_themselves(browser, f"{airflow.url}/trainbench")


def _in_airflow(browser: Browser, url: str, run: str) -> None:
    page = browser.new_context(viewport=DESK).new_page()
    banner = page.get_by_test_id("dashboard-alert-content")
    page.goto(f"{url}/")
    while not banner.count():  # the page never waits for them
        time.sleep(1)
        page.reload()
        page.get_by_role("heading", name="Welcome").wait_for()
    _save(page, "banner", banner.first)
    page.goto(run)
    _save(page, "grid", page.get_by_role("link", name="gate").first)
    page.goto(f"{run}/plugin/trainbench-run")
    _save(page, "report", page.frame_locator("iframe").locator("h1"))
    page.goto(f"{url}/dags/{SCALING}")
    _save(page, "scaling-grid", page.get_by_text("ddp_4_gpu"))
    for mode in ("light", "dark"):
        context = browser.new_context(viewport=TALL)
        context.add_init_script(f"localStorage.setItem('theme', '{mode}')")
        framed = context.new_page()
        framed.goto(f"{url}/plugin/trainbench")
        _save(framed, f"benchmarks-{mode}", framed.frame_locator("iframe").locator(".heat td a").first)


def _by_themselves(browser: Browser, url: str) -> None:
    page = browser.new_context(viewport=DESK).new_page()
    page.goto(f"{url}/nodes/gpu-07?days=90")
    _save(page, "node", page.locator("figure.chart svg").first)
    page.goto(f"{url}/strategies")
    _save(page, "strategies", page.locator("table").first)
    phone = browser.new_context(viewport=PHONE, is_mobile=True, has_touch=True, device_scale_factor=2).new_page()
    phone.goto(f"{url}/")
    _save(phone, "phone", phone.locator("article").first)


def _run(airflow: LocalAirflow, dag_id: str, conf: Mapping[str, Any]) -> str:
    """Until it has ended; its id."""
    run_id = airflow.trigger(dag_id, dict(conf))
    give_up = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up:
        run = airflow.get(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}") or {}
        if run.get("state") in ("success", "failed"):
            print(f"{dag_id}: {run['state']}")
            return run_id
        time.sleep(1)
    raise LocalAirflowError(f"{dag_id} did not end within {PATIENCE_S} s. {airflow.cause(dag_id, run_id)}")


def _save(page: Page, name: str, awaited: Locator) -> None:
    """As soon as `awaited` is there and nothing moves or loads any more."""
    awaited.wait_for(timeout=60_000)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1500)
    path = IMAGES / f"{name}.png"
    page.screenshot(path=path, animations="disabled")
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(COLOURS).save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    sys.exit(main())

"""Stands for the benchmark image in DAG tests: writes a made result at once. It does not simulate training at all.

The node's name says what happens: `slow` loses 20 %, `flaky` does so in round 1 only; `truncated`, `nan`, `foreign`,
`old-schema`, `oversized`, `silent` and `oom` break the result in that way; `crashed` and `killed` (as by SIGKILL) end
without one; the clock of `clock-ahead` and `clock-behind` is wrong; `tight` is out of memory without checkpointing; a
drill does not slow `deaf`. The links of a gang with `lame` have a third of the others' rate. Everything else
is healthy. STANDIN_S is how long it takes; with STANDIN_UNTIL it then runs
on until that file is there. With STANDIN_CLOCK=real a result says when it was made, and with STANDIN_REPAIRED=1 `slow`
is healthy.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench_image.contract.options import SINGLE_GPU
from bench_image.contract.parse import parse_spec
from bench_image.contract.pod_io import MAX_RESULT_BYTES, SPEC_ENV
from bench_image.contract.result import Phase, Status
from bench_image.contract.result import failed_result as fail
from bench_image.contract.result_lines import result_lines
from bench_image.contract.spec import RunSpec
from tests.builders import STARTED_AT, make_links, make_result

CLOCKS = {"clock-ahead": timedelta(days=1), "clock-behind": timedelta(days=-365)}
BREAKS = {
    "truncated": lambda text: text[: len(text) // 2],
    "nan": lambda text: text.replace('"mean_loss":10.2', '"mean_loss":NaN'),
    "foreign": lambda text: text.replace("-foreign-r1", "-other-r1"),
    "old-schema": lambda text: text.replace('"schema_version":1', '"schema_version":0'),
    "oversized": lambda text: text + " " * MAX_RESULT_BYTES,
}


def main() -> int:
    spec = parse_spec(os.environ[SPEC_ENV])
    node = spec.identity.nodes[int(os.environ.get("NODE_RANK", "0"))]
    kind = node.rsplit("gpu-", 1)[-1]
    print(f"phase=measure node={node}", flush=True)
    time.sleep(float(os.environ.get("STANDIN_S", "0")))
    while (until := os.environ.get("STANDIN_UNTIL")) and not Path(until).exists():
        time.sleep(0.2)
    if kind == "tight" and spec.work.gradient_checkpointing is False:
        kind = "oom"
    if kind == "silent":
        return 0
    if kind == "crashed":
        sys.exit("the file system is read-only")
    if kind == "killed":
        return 137
    text = BREAKS.get(kind, str)(_oom(spec) if kind == "oom" else _healthy(spec, kind))
    print(*result_lines(text), sep="\n", flush=True)
    return 3 if kind == "oom" else 0


def _healthy(spec: RunSpec, kind: str) -> str:
    drilled = spec.drill is not None and kind != "deaf"
    is_broken = kind == "slow" and "STANDIN_REPAIRED" not in os.environ
    slow = is_broken or (kind == "flaky" and spec.identity.round == 1) or drilled
    # a few tenths of a percent between nodes and rounds, as on real GPUs
    rate = (8.0 if slow else 10.0) * (1 + 0.001 * ((len(spec.identity.node) + spec.identity.round) % 3))
    result = make_result(spec.identity.node, rate, **_samples(spec))
    times: dict[str, datetime] = {}
    if os.environ.get("STANDIN_CLOCK") == "real":  # results say by their node's clock when they were made
        now = datetime.now(UTC) + CLOCKS.get(kind, timedelta())
        times = {"started_at": now - (result.finished_at - result.started_at), "finished_at": now}
    links = (
        make_links(12.0 if any("lame" in name for name in spec.identity.nodes) else 36.0) if spec.link_sweep else None
    )
    return result.model_copy(update={"spec": spec, "links": links} | times).model_dump_json()


def _samples(spec: RunSpec) -> dict[str, Any]:
    """The fields that determine the samples and tokens of a step; a result's windows and rate must agree with them."""
    work, placement = spec.work, spec.placement
    named = ("micro_batch_size", "gradient_accumulation_steps", "model", "seq_length")
    fields = {name: getattr(work, name) for name in named}
    if placement.strategy not in SINGLE_GPU:
        fields |= {name: getattr(placement, name) for name in ("strategy", "nodes", "gpus_per_node")}
        fields |= {"peers": spec.identity.peers}
    return fields


def _oom(spec: RunSpec) -> str:
    message = "CUDA out of memory: tried to allocate 2.00 GiB"
    result = fail(spec, status=Status.OOM, kind="OutOfMemoryError", message=message, phase=Phase.WARMUP, at=STARTED_AT)
    return result.model_dump_json()


def as_python(folder: Path) -> Path:
    """For TRAINBENCH_LOCAL_PYTHON: runs this program whatever module is asked for."""
    python = folder / "python"
    version_check = '[ "$1" = -c ] && exec echo 3.11.0'  # by the task `ready`: which version, and is anything missing
    python.write_text(f'#!/bin/sh\n{version_check}\nexec "{sys.executable}" "{Path(__file__).resolve()}"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    return python


if __name__ == "__main__":
    sys.exit(main())

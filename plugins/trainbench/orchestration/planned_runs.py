"""Passes the runs of a plan to mapped tasks: task i of a mapped task makes the pod of run i.

Airflow maps over a list of at most `[core] max_map_length` values, and each mapped task reads the whole list. So the
lists hold numbers only: a mapped task is expanded over blocks and places, which together make as many tasks as there
are runs, and a task reads the few runs of its own chunk.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from bench_image.contract.frozen import Frozen
from bench_image.contract.spec import RunSpec
from trainbench.core.user_error import UserError
from trainbench.pods.machine_turns import Slot, slots

CHUNK = 25  # runs in one XCom: about 40 kB
COUNT = "num_runs"  # XCom key
MAX_TEXT_BYTES = 400_000_000  # of a plan: 100,000 runs make 200 MB


class PackedTextError(UserError):
    """A compressed text that is none of ours."""


class PlannedRun(Frozen):
    """A run with its work's name in the plan. `slot`: its place among the pods of one machine."""

    spec: RunSpec
    slot: Slot
    what: str | None = None


def hand_out(ti: Any, specs: Sequence[RunSpec], labels: Mapping[str, str] | None = None) -> None:
    """Push the runs for the mapped tasks."""
    runs = [
        PlannedRun(spec=spec, slot=slot, what=(labels or {}).get(spec.identity.group_id))
        for spec, slot in zip(specs, slots(specs), strict=True)
    ]
    ti.xcom_push(key=COUNT, value=len(runs))
    for first in range(0, len(runs), CHUNK):
        chunk = [run.model_dump_json() for run in runs[first : first + CHUNK]]
        ti.xcom_push(key=chunk_key(first), value=chunk)


def handed_out(ti: Any, planned_by: str) -> tuple[RunSpec, ...] | None:
    """The runs that a task pushed; None: it pushed none, because it failed before."""
    num = ti.xcom_pull(task_ids=planned_by, key=COUNT)
    if num is None:
        return None
    chunks = (ti.xcom_pull(task_ids=planned_by, key=chunk_key(first)) for first in range(0, num, CHUNK))
    return tuple(PlannedRun.model_validate_json(run).spec for chunk in chunks for run in chunk)


def own_run(ti: Any, planned_by: str) -> PlannedRun | None:
    """The run of this mapped task; None: the plan has fewer runs than the blocks have places."""
    return run_at(ti, planned_by, ti.map_index)


def run_at(ti: Any, planned_by: str, index: int) -> PlannedRun | None:
    """The run of this number; None: the task pushed fewer."""
    chunk = ti.xcom_pull(task_ids=planned_by, key=chunk_key(index))
    if chunk is None or index % CHUNK >= len(chunk):
        return None
    return PlannedRun.model_validate_json(chunk[index % CHUNK])


def num_blocks(num_runs: int, max_map_length: int) -> int:
    return max(1, math.ceil(num_runs / max_map_length))


def places(num_runs: int, blocks: int) -> list[int]:
    """The places of a block, enough that every run has one; the last block may have free ones."""
    return list(range(math.ceil(num_runs / blocks)))


def packed(text: str) -> str:
    """Compressed text for an XCom; the runs of a plan differ little."""
    return base64.b64encode(zlib.compress(text.encode())).decode()


def unpacked(text: str) -> str:
    """The text of `packed`. Raises PackedTextError."""
    stream = zlib.decompressobj()
    try:
        unpacked_bytes = stream.decompress(base64.b64decode(text), MAX_TEXT_BYTES)
        if stream.eof:
            return unpacked_bytes.decode()
    except (ValueError, zlib.error):
        pass
    raise PackedTextError(
        f"an XCom of this DAG run is cut off, changed, or longer than {MAX_TEXT_BYTES} bytes: clear the task `plan`"
    )


def chunk_key(index: int) -> str:
    """Key of the XCom that holds run `index`."""
    return f"runs_{index // CHUNK}"

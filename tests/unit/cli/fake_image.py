"""Stands for the image: answers every spec with a rate that depends on the node and on the drill only."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

from bench_image.contract.parse import parse_spec
from bench_image.contract.pod_io import SPEC_ENV
from bench_image.contract.result_lines import result_lines
from tests.builders import make_cpu_result


def main() -> int:
    spec = parse_spec(os.environ[SPEC_ENV])
    print("phase=warmup step=1/5", flush=True)
    if spec.identity.node == "node-hangs":
        Path(os.environ["HANGS"]).write_text(str(os.getpid()))
        time.sleep(3600)
    if spec.identity.node == "node-silent":
        return 3
    rate = 40.0 + int(spec.identity.node[-1]) / 10
    rate *= 1 - spec.drill.slowdown_pct / 100 if spec.drill else 1
    windows = [rate * 0.999, rate, rate * 1.001]
    about = {"seq_length": spec.work.seq_length, "micro_batch_size": spec.work.micro_batch_size}
    result = make_cpu_result(spec.identity.node, rate, windows=windows, step_cv_pct=0.3, **about)
    now = datetime.now(UTC)
    times = {"started_at": now - (result.finished_at - result.started_at), "finished_at": now}
    for line in result_lines(result.model_copy(update={"spec": spec, **times}).model_dump_json()):
        print(line)
    return 0

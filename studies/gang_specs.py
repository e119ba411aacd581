"""Writes the runs that measure the links of one machine: a sweep of collectives and a short ddp training.

    python3 studies/gang_specs.py OUTPUT_DIR --gpus 2

Two spec files: with all links, and without NVLink and direct copies between GPUs. `studies/run_specs.py` runs them;
its python must hold the training stack.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench_image.contract.links import LinkSweep
from bench_image.contract.options import Optimizer, Recipe, Strategy
from bench_image.contract.spec import Identity, Measurement, Placement, RunSpec
from bench_image.contract.work import Device, Preset, Work

TOP_BYTES = {Device.CUDA: 2**30, Device.CPU: 2**22}


def sweeps(campaign_id: str, gpus: int, device: Device) -> Iterator[tuple[str, RunSpec]]:
    """Names and specs: the sweep by every link, then without the links within the machine."""
    on_gpu = device is Device.CUDA
    work = Work(
        device=device,
        model="tier-a" if on_gpu else "tiny",
        recipe=Recipe.FULL,
        preset=Preset.TUNED,
        optimizer=Optimizer.ADAMW_TORCH,
        gradient_checkpointing=False,
        micro_batch_size=1,
        seq_length=2048 if on_gpu else 64,
    )
    for name, inner_link in (("sweep", True), ("sweep-inner-link-off", False)):
        yield (
            name,
            RunSpec(
                identity=Identity(
                    campaign_id=campaign_id, run_id=f"{name}-{gpus}", group_id=f"{name}-{gpus}", node="this-machine"
                ),
                work=work,
                placement=Placement(strategy=Strategy.DDP, gpus_per_node=gpus),
                measurement=Measurement(warmup_steps=14, measured_steps=10, max_measured_steps=20, repeats=1),
                link_sweep=LinkSweep(top_bytes=TOP_BYTES[device], inner_link=inner_link),
                timeout_s=300,
            ),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, metavar="OUTPUT_DIR")
    parser.add_argument("--gpus", type=int, default=2, help="GPUs of the machine, one rank each; 2 by default")
    parser.add_argument("--device", type=Device, choices=[*Device], default=Device.CUDA, help="cpu: processes, by gloo")
    parser.add_argument("--campaign", default="links", help="folder of the results; lower-case letters, digits, '-'")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for number, (name, spec) in enumerate(sweeps(arguments.campaign, arguments.gpus, arguments.device)):
        (arguments.output / f"{number}-{name}-{arguments.gpus}.json").write_text(spec.model_dump_json(indent=1))


if __name__ == "__main__":
    main()

"""The flags of `python -m bench_image.seq2seq`, and the plan of the run that they describe."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from pydantic import ValidationError

from bench_image.contract.flops import tokens_per_sample
from bench_image.contract.model_shapes import EncoderDecoderShape
from bench_image.contract.options import Optimizer, Precision, Recipe, Strategy
from bench_image.contract.parse import explain
from bench_image.contract.seq2seq_file import CAMPAIGN
from bench_image.contract.spec import Identity, Measurement, Placement, RunSpec
from bench_image.contract.work import DiskData, Preset, Work

BATCH_SIZE, FULL_BATCH_SIZE = 32, 1024
NUM_SAMPLES = 32_768
FULL_BYTES = 30_000_000_000
DISK_FOLDER = "data"
MOST_WARMUP_STEPS = 10_000  # the contract's
MOST_STEPS_PER_EPOCH = 100_000  # the contract's, for a window
MOST_STEPS = 350_000  # a result holds each step's time; 4 MB of its 16
TIMEOUT_S = 86_400.0
PRESETS = "tuned: compiled, a step as one CUDA graph, with --amp bf16 no fp32 copies (default: as_users_run)"
AMP = {"fp16": Precision.FP16, "bf16": Precision.BF16, "off": Precision.FP32}

DESCRIPTION = """\
Trains an encoder-decoder Transformer on synthetic tokens and writes the measured epochs to
RESULTS_DIR/bench_{GPU_MODEL}_{N}gpu_{TIMESTAMP}.json. It uses all visible GPUs, with one process per GPU."""

EXAMPLES = """\
examples:
  python -m bench_image.seq2seq                        3.4 M parameters, data in memory, all GPUs
  python -m bench_image.seq2seq --single               one GPU
  python -m bench_image.seq2seq --full --disk          about 30 GB in shards under ./data, read while training
  python -m bench_image.seq2seq --data-dir /mnt/nfs/data --num-samples 1000000
  python -m bench_image.seq2seq --d-model 512 --nhead 8 --num-encoder-layers 6 --num-decoder-layers 6 \\
      --dim-feedforward 2048                           about 52 M parameters
  python -m bench_image.seq2seq --device cpu --d-model 32 --num-samples 64
  torchrun --nproc-per-node=8 -m bench_image.seq2seq --batch-size 128 --epochs 5

exit status: 0 ok, 1 error, 2 a flag is wrong, 3 out of memory, 4 the loss is not finite, 5 timeout, 6 interrupted"""


class FlagError(ValueError):
    """A flag or a combination of flags is not allowed; the message is one line that says what is allowed."""


class Launch(NamedTuple):
    """The rank of a process that torchrun started."""

    rank: int
    world_size: int
    local_world_size: int

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Launch | None:
        """From torchrun's environment variables; None without them."""
        if not all(environ.get(name, "").isdigit() for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")):
            return None
        world_size = int(environ["WORLD_SIZE"])
        return cls(int(environ["RANK"]), world_size, int(environ.get("LOCAL_WORLD_SIZE", world_size)))


class Plan(NamedTuple):
    """The run, and where it differs from the flags."""

    spec: RunSpec
    notes: tuple[str, ...]


class _OneLine(argparse.ArgumentParser):
    """Raises its errors as FlagError of one line, because of several ranks only one prints."""

    def error(self, message: str) -> NoReturn:
        raise FlagError(f"{message}; --help lists all flags")


def parser() -> argparse.ArgumentParser:
    """All flags, in four groups."""
    flags = _OneLine(
        "python -m bench_image.seq2seq", description=DESCRIPTION, epilog=EXAMPLES, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    model = flags.add_argument_group("model")
    _number(model, "--d-model", 128, "embedding dimension")
    _number(model, "--nhead", 4, "attention heads; must divide d-model")
    _number(model, "--num-encoder-layers", 3, "encoder layers")
    _number(model, "--num-decoder-layers", 3, "decoder layers")
    _number(model, "--dim-feedforward", 512, "inner dimension of the feed-forward blocks")
    _number(model, "--vocab-size", 8000, "token ids are random numbers below N", low=2, high=2**31)
    work = flags.add_argument_group("work")
    _number(work, "--seq-len", 128, "tokens of a source, and of a target", low=8, high=65_536)
    _number(
        work, "--batch-size", None, f"samples per GPU and step (default: {BATCH_SIZE}; with --full {FULL_BATCH_SIZE})"
    )
    _number(work, "--epochs", 3, "measured passes over the data", high=100)
    _number(work, "--warmup-epochs", 1, "passes before the measured ones", low=0, high=100)
    work.add_argument("--amp", choices=AMP, help="mixed precision (default: fp16; off on the CPU, which emulates fp16)")
    work.add_argument("--preset", choices=[*map(str, Preset)], default=str(Preset.AS_USERS_RUN), help=PRESETS)
    work.add_argument("--no-amp", dest="amp", action="store_const", const="off", help="full fp32: --amp off")
    _number(work, "--seed", 0, "of weights and data", low=0, high=2**31 - 1)
    data = flags.add_argument_group("data")
    size = data.add_mutually_exclusive_group()
    _number(size, "--num-samples", None, f"samples of an epoch (default: {NUM_SAMPLES})", high=10**12)
    size.add_argument("--full", action="store_true", help=f"as many samples as fill {FULL_BYTES / 1e9:.0f} GB")
    data.add_argument("--disk", action="store_true", help="read from shards in ./data, written first unless they exist")
    data.add_argument("--data-dir", type=Path, metavar="DIR", help="the same in another folder")
    _number(data, "--num-shards", None, "number of files (default: about 128 MB each)", high=100_000)
    machine = flags.add_argument_group("machine")
    machine.add_argument("--device", choices=("cuda", "cpu"), help="default: cuda, or cpu without an NVIDIA GPU")
    gpus = machine.add_mutually_exclusive_group()
    _number(gpus, "--gpus", None, "how many GPUs, or processes on the CPU (default: all GPUs; 1)", high=64)
    gpus.add_argument("--single", action="store_true", help="one GPU: --gpus 1")
    machine.add_argument(
        "--results-dir", type=Path, default=Path("results"), metavar="DIR", help="folder for results (default: results)"
    )
    return flags


def _number(group: Any, flag: str, default: int | None, text: str, *, low: int = 1, high: int = 1_000_000) -> None:
    def whole(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from {low} to {high}")
        return number

    shown = "" if default is None else f" (default: {default})"
    group.add_argument(flag, type=whole, default=default, metavar="N", help=f"{text}{shown}")


def plan(flags: argparse.Namespace, launch: Launch | None, run_id: str, visible: tuple[int, str | None]) -> Plan:
    """The run that the flags describe. `visible`: number of GPUs, and the reason if there is none. Raises FlagError."""
    if flags.d_model % flags.nhead:
        raise FlagError(f"--nhead {flags.nhead} does not divide --d-model {flags.d_model}")
    device, num_ranks = _machine(flags, launch, *visible)
    shape = EncoderDecoderShape(
        family="encoder-decoder", vocab_size=flags.vocab_size, hidden_size=flags.d_model,
        intermediate_size=flags.dim_feedforward, num_encoder_layers=flags.num_encoder_layers,
        num_decoder_layers=flags.num_decoder_layers, num_heads=flags.nhead, max_positions=max(4096, flags.seq_len),
    )  # fmt: skip
    batch = flags.batch_size or (FULL_BATCH_SIZE if flags.full else BATCH_SIZE)
    num_samples = flags.num_samples or NUM_SAMPLES
    if flags.full:
        token_bytes = 2 if flags.vocab_size <= 65_536 else 4
        num_samples = FULL_BYTES // (tokens_per_sample(shape, flags.seq_len) * token_bytes)
    steps = _steps_per_epoch(flags, num_samples, batch, num_ranks)
    warmup_steps = min(max(1, flags.warmup_epochs * steps), MOST_WARMUP_STEPS)
    amp = flags.amp or ("fp16" if device == "cuda" else "off")
    data: Any = "memory"
    if flags.disk or flags.data_dir:
        folder = (flags.data_dir or Path(DISK_FOLDER)).expanduser().absolute()
        data = DiskData(folder=str(folder), num_samples=num_samples, num_shards=flags.num_shards)
    elif flags.num_shards:
        raise FlagError("--num-shards goes with --disk or --data-dir")
    try:
        spec = RunSpec(
            identity=Identity(
                campaign_id=CAMPAIGN, run_id=run_id, group_id="seq2seq", node=_node_name(socket.gethostname())
            ),
            work=Work(
                model="encoder-decoder", dimensions=shape, recipe=Recipe.FULL, preset=Preset(flags.preset),
                device=device, micro_batch_size=batch, seq_length=flags.seq_len, precision=AMP[amp],
                optimizer=Optimizer.ADAMW_TORCH, gradient_checkpointing=False, data=data, seed=flags.seed,
            ),
            placement=Placement(
                strategy=Strategy.DDP if num_ranks > 1 else Strategy.SINGLE, gpus_per_node=num_ranks
            ),
            measurement=Measurement(
                warmup_steps=warmup_steps, measured_steps=steps, max_measured_steps=steps,
                max_window_s=TIMEOUT_S,  # a window is an epoch: all of its steps, however long they take
                repeats=flags.epochs,
            ),
            timeout_s=TIMEOUT_S,
        )  # fmt: skip
    except ValidationError as error:
        raise FlagError(explain(error)) from None
    return Plan(spec, _notes(flags, num_samples, steps, spec))


def _machine(
    flags: argparse.Namespace, launch: Launch | None, num_visible: int, why_none: str | None
) -> tuple[str, int]:
    """Device and number of ranks. Raises FlagError where the machine or torchrun has other ones."""
    device = flags.device or ("cuda" if num_visible else "cpu")
    num_wanted = 1 if flags.single else flags.gpus
    if launch:
        if launch.local_world_size != launch.world_size:
            raise FlagError(f"torchrun with {launch.world_size} processes on several hosts: this benchmark runs on one")
        if num_wanted not in (None, launch.world_size):
            raise FlagError(f"torchrun started {launch.world_size} processes, but the flags say {num_wanted}")
        num_wanted = launch.world_size
    if device == "cpu":
        return device, num_wanted or 1
    if not num_visible:
        raise FlagError(f"--device cuda, but there is no NVIDIA GPU ({why_none}): --device cpu")
    if num_wanted and num_wanted > num_visible:
        raise FlagError(f"--gpus {num_wanted}, but {num_visible} are visible: --gpus 1 to {num_visible}")
    return device, num_wanted or num_visible


def _steps_per_epoch(flags: argparse.Namespace, num_samples: int, batch: int, num_ranks: int) -> int:
    """Whole steps of an epoch; the remaining samples open the next one. Raises FlagError for too few or too many."""
    steps = num_samples // (batch * num_ranks)
    shown = f"{num_samples:,} samples, {num_ranks} x --batch-size {batch} per step: {steps:,} steps per epoch"
    if steps < 2:
        raise FlagError(
            f"{shown}, and 2 are the least: --num-samples {2 * batch * num_ranks}, or a smaller --batch-size"
        )
    most = min(MOST_STEPS_PER_EPOCH, MOST_STEPS // flags.epochs)
    if steps > most:
        least = -(-num_samples // (most * num_ranks))
        raise FlagError(
            f"{shown}, and {most:,} are the most with --epochs {flags.epochs}: --batch-size {least} or more"
        )
    return steps


def _notes(flags: argparse.Namespace, num_samples: int, steps: int, spec: RunSpec) -> tuple[str, ...]:
    notes = []
    if flags.warmup_epochs == 0:
        notes.append("one warm-up step runs before the first epoch: the first step of a process sets things up")
    if spec.measurement.warmup_steps < flags.warmup_epochs * steps:
        notes.append(
            f"warm-up ends after {spec.measurement.warmup_steps:,} steps, before {flags.warmup_epochs} epochs are over"
        )
    if left := num_samples - steps * spec.samples_per_step:
        notes.append(f"an epoch is {steps:,} whole steps: {left:,} of {num_samples:,} samples are left to the next one")
    if flags.device is None and spec.work.device == "cpu":
        notes.append("no NVIDIA GPU is visible: this is a run on the CPU")
    return tuple(notes)


def _node_name(hostname: str) -> str:
    """The host's name, reduced to what the contract allows."""
    kept = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in hostname.lower())
    return kept.strip("-")[:200].strip("-") or "localhost"

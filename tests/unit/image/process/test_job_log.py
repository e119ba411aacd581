"""Steps and speed from logs: real ones, made here on the CPU, and lines quoted from where the formats are documented."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench_image.contract.own_job import OwnJob, choose_profiles, parse_profiles
from bench_image.process.job_log import MAX_LINE, TAIL_LINES, JobLog, Speed

LOGS = Path(__file__).with_name("logs")
STEP_S = 0.5  # by which each line of a test arrives after the one before


def read(text: bytes, profile: str = "auto", num_gpus: int = 1, **job: int) -> Speed:
    """The speed in a log whose lines arrive at regular times."""
    log = JobLog(choose_profiles(profile), OwnJob(command="x", **job), num_gpus)
    at = 0.0
    for line in log.lines(text + b"\n"):
        log.add(line, at := at + STEP_S)
    return speed_of(log)


def speed_of(log: JobLog) -> Speed:
    speed = log.speed()
    assert speed is not None
    return speed


def real(name: str, **options: int) -> Speed:
    speed = read((LOGS / f"{name}.log").read_bytes(), **options)
    assert speed.profile.name == name
    return speed


def test_a_real_log_of_the_hugging_face_trainer() -> None:
    """3.928 samples/s / 0.491 steps/s = 8 samples a step; of 40 steps the first and 5 of warm-up do not count; the bars
    of its evaluations have another total. The loss lines stand between the bars, so two steps take a line longer.
    """
    speed = real("hf-trainer")
    assert (speed.samples_per_step, sum(speed.steps), speed.source) == (8, 35, "the arrival of its lines")
    assert min(speed.seconds) == STEP_S
    assert len(speed.losses) == 4
    assert all(loss == pytest.approx(6.13, abs=0.3) for loss in speed.losses)


def test_a_real_log_of_a_loop_by_accelerate() -> None:
    """The bar of step 0 is the first line of a step; its steps 1 to 5 are warm-up, 6 to 30 count."""
    speed = real("accelerate")
    assert (sum(speed.steps), set(speed.seconds), speed.samples_per_step) == (25, {STEP_S}, None)


def test_a_real_log_of_lightning_whose_steps_begin_anew_with_each_epoch() -> None:
    """32 steps in two epochs, whose bars start at 0; given are 256 samples a step and 7 tokens a sample."""
    speed = real("lightning", samples_per_step=256, tokens_per_sample=7)
    assert 24 <= sum(speed.steps) <= 28
    total_s = sum(seconds * steps for seconds, steps in zip(speed.seconds, speed.steps, strict=True))
    assert speed.tokens_per_second == pytest.approx(7 * 256 * sum(speed.steps) / total_s)
    assert speed.losses[-1] == 0.404


def test_a_real_log_of_the_loop_of_nanogpt() -> None:
    """Steps 6 to 59 count, by their own milliseconds: the first is 475.09 ms, the last 815.32 ms."""
    speed = real("nanogpt")
    assert (len(speed.seconds), speed.source) == (54, "the log's time per step")
    assert (speed.seconds[0], speed.seconds[-1]) == (pytest.approx(0.47509), pytest.approx(0.81532))
    assert (speed.losses[0], speed.losses[-1]) == (5.8188, 0.6097)


# Profile -> three lines from the source that stands above them; seconds, samples and tokens/s computed by hand.
QUOTED = {
    # NVIDIA/Megatron-LM issue 756
    "megatron-lm": (
        " [2024-04-06 02:59:36] iteration       43/     100 | consumed samples:         5504 | elapsed time per iteration (ms): 5444.9 | throughput per GPU (TFLOP/s/GPU): 239.8 | learning rate: 8.600000E-06 | global batch size:   128 | lm loss: 1.825991E+00 | load_balancing_loss: 1.019746E+00 |\n"
        " [2024-04-06 02:59:41] iteration       44/     100 | consumed samples:         5632 | elapsed time per iteration (ms): 5533.8 | throughput per GPU (TFLOP/s/GPU): 236.0 | learning rate: 8.800000E-06 | global batch size:   128 | lm loss: 1.875063E+00 | load_balancing_loss: 1.020033E+00 |\n"
        " [2024-04-06 02:59:47] iteration       45/     100 | consumed samples:         5760 | elapsed time per iteration (ms): 5718.6 | throughput per GPU (TFLOP/s/GPU): 228.4 | learning rate: 9.000000E-06 | global batch size:   128 | lm loss: 1.834162E+00 | load_balancing_loss: 1.018004E+00 |\n",
        (5.5338, 5.7186), 128, None, 1.875063,
    ),
    # NVIDIA-BioNeMo/bionemo-recipes pull request 740
    "nemo": (
        "Training epoch 0, iteration 120/149 | lr: 3e-05 | consumed_samples: 121 | global_batch_size: 1 | global_step: 120 | reduced_train_loss: 1.233 | train_step_timing in s: 0.03146 | val_loss: 4.106\n"
        "Training epoch 0, iteration 121/149 | lr: 3e-05 | consumed_samples: 122 | global_batch_size: 1 | global_step: 121 | reduced_train_loss: 1.288 | train_step_timing in s: 0.03163 | val_loss: 4.106\n"
        "Training epoch 0, iteration 122/149 | lr: 3e-05 | consumed_samples: 123 | global_batch_size: 1 | global_step: 122 | reduced_train_loss: 1.333 | train_step_timing in s: 0.03215 | val_loss: 4.106\n",
        (0.03163, 0.03215), 1, None, 1.288,
    ),
    # pytorch/torchtitan pull request 3393, on 2 GPUs: (7,334 + 7,313) / 2 x 2 tokens/s; the lines arrive each 0.5 s
    "torchtitan": (
        "[rank0]:[titan] 2026-05-18 16:04:46,338 - root - INFO - step: 14  loss:  3.24405  grad_norm:  0.8319  memory:  9.46GiB(64.99%)  tps: 7,282  tflops: 0.52  mfu: 0.17%\n"
        "[rank0]:[titan] 2026-05-18 16:04:47,456 - root - INFO - step: 15  loss:  3.10680  grad_norm:  0.8587  memory:  9.46GiB(64.99%)  tps: 7,334  tflops: 0.53  mfu: 0.17%\n"
        "[rank0]:[titan] 2026-05-18 16:04:48,577 - root - INFO - step: 16  loss:  3.05047  grad_norm:  0.5443  memory:  9.46GiB(64.99%)  tps: 7,313  tflops: 0.52  mfu: 0.17%\n",
        (STEP_S, STEP_S), None, 14_647, 3.1068,
    ),
    # the format of karpathy/nanochat, scripts/base_train.py at 00255c19, with figures from a log of it
    "nanochat": (
        "step 00009/00500 (1.80%) | loss: 8.986036 | lrm: 0.25 | dt: 2340.11ms | tok/sec: 7,001 | bf16_mfu: 0.00 | epoch: 1 pq: 0 rg: 1 | total time: 0.00m\n"
        "step 00010/00500 (2.00%) | loss: 8.978078 | lrm: 0.28 | dt: 2298.10ms | tok/sec: 7,129 | bf16_mfu: 0.00 | epoch: 1 pq: 0 rg: 1 | total time: 0.00m\n"
        "step 00011/00500 (2.20%) | loss: 8.968472 | lrm: 0.30 | dt: 2287.30ms | tok/sec: 7,163 | bf16_mfu: 0.00 | epoch: 1 pq: 0 rg: 1 | total time: 0.00m\n",
        (2.2981, 2.2873), None, (7129 * 2.2981 + 7163 * 2.2873) / 4.5854, 8.978078,
    ),
    # Lightning-AI/litgpt issue 1110
    "litgpt": (
        "Epoch 4 | iter 961 step 961 | loss train: 1.062, val: 1.057 | iter time: 529.46 ms (step)\n"
        "Epoch 4 | iter 962 step 962 | loss train: 0.937, val: 1.057 | iter time: 503.53 ms (step)\n"
        "Epoch 4 | iter 963 step 963 | loss train: 0.971, val: 1.057 | iter time: 522.10 ms (step)\n",
        (0.50353, 0.5221), None, None, 0.937,
    ),
    # a result of MLPerf Training 4.0, llama2_70b_lora: 8 samples a step / 1.9257918929116467 samples/s
    "mlperf": (
        '0: :::MLLOG {"namespace": "", "time_ms": 1721026000000, "event_type": "POINT_IN_TIME", "key": "global_batch_size", "value": 8, "metadata": {"file": "/workspace/ft-llm/train.py", "lineno": 1}}\n'
        + "".join(
            f'0: :::MLLOG {{"namespace": "", "time_ms": 1721026805975, "event_type": "POINT_IN_TIME", "key": "tracked_stats", "value": {{"throughput": 1.9257918929116467}}, "metadata": {{"file": "/workspace/ft-llm/custom_callbacks.py", "lineno": 161, "step": {step}}}}}\n'
            for step in (2688, 3072, 3456)
        ),
        (4.154135, 4.154135), 8, None, None,
    ),
    "json-lines": (
        "".join(f'{{"loss": 2.5, "step": {step}, "tokens_per_second": 4000, "tokens": 1000}}\n' for step in (1, 2, 3)),
        (0.25, 0.25), None, 4000, 2.5,
    ),
    "trainbench": (
        "".join(f"trainbench: step={step} seconds=0.25 samples=8 tokens=4096 loss=1.5\n" for step in (1, 2, 3)),
        (0.25, 0.25), 8, 16_384, 1.5,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUOTED)
def test_quoted_lines_are_read_by_the_profile_of_their_framework(name: str) -> None:
    lines, seconds, samples, tokens_per_second, loss = QUOTED[name]
    speed = read(lines.encode(), num_gpus=2, warmup_steps=0)
    assert (speed.profile.name, speed.samples_per_step) == (name, samples)
    assert speed.seconds == pytest.approx(seconds, rel=1e-6)
    assert speed.tokens_per_second == (tokens_per_second and pytest.approx(tokens_per_second))
    assert (speed.losses[0] if speed.losses else None) == loss


def test_lines_of_other_ranks_count_once_and_a_mean_stands_for_all_steps_since_the_line_before() -> None:
    """Steps 20 and 30 by lines of 10 steps, each from two ranks: 2 lines for 20 steps."""
    line = " iteration {0}/ 100 | elapsed time per iteration (ms): {0}.0 | global batch size: 4 |\n"
    speed = read("".join(line.format(step) * 2 for step in (10, 20, 30)).encode(), warmup_steps=0)
    assert (speed.steps, speed.seconds) == ((10, 10), (0.02, 0.03))


def test_a_loss_that_is_not_finite_is_kept_as_none() -> None:
    text = "".join(f"iter {step}: loss nan, time 5.00ms, mfu 1%\n" for step in range(9)).encode()
    assert set(read(text).losses) == {None}


NINES = "9" * 400  # beyond any float


@pytest.mark.parametrize(
    "line",
    [
        f"trainbench: step={NINES} seconds=0.25",
        f"trainbench: step=2 seconds=0.25 samples={NINES} tokens={NINES}",
        "{'train_samples_per_second': 1e308, 'train_steps_per_second': 1e-308}",
    ],
)
def test_numbers_without_end_are_not_read(line: str) -> None:
    """They would have ended the thread that reads the log, and the command would have waited for its reader for ever."""
    known = "".join(f"trainbench: step={step} seconds=0.25 samples=8\n" for step in range(1, 5))
    speed = read(f"{known}{line}\n{known.replace('step=', 'step=1')}".encode(), warmup_steps=0)

    assert (set(speed.seconds), speed.samples_per_step) == ({0.25}, 8)


def test_memory_stays_bounded_whatever_a_log_holds() -> None:
    """A line of 10 MB that comes in parts, and more lines than are shown."""
    log = JobLog(choose_profiles("auto"), OwnJob(command="x"), 1)
    for _ in range(100):
        assert list(log.lines(b"y" * 100_000)) == []
        assert len(log._open) <= MAX_LINE + 1
    (line,) = log.lines(b"\n")
    assert line.endswith(" ... (a longer line)")
    assert len(line) < MAX_LINE + 50
    assert len([*log.lines(b"\x1b[31mred\xff\n" * 50)]) == 50
    assert log.tail.splitlines() == ["red\N{REPLACEMENT CHARACTER}"] * TAIL_LINES


def test_a_profile_of_the_users_own_replaces_the_shipped_one_of_its_name() -> None:
    (own,) = parse_profiles(
        '[[profile]]\nname = "nanogpt"\nsource = "mine"\nmarks = ["S"]\nstep = "S(\\\\d+)"\nseconds = "t=([\\\\d.]+)"',
        "f",
    )
    log = JobLog(choose_profiles("nanogpt", (own,)), OwnJob(command="x", warmup_steps=0), 1)
    for line in ("S1 t=3", "S2 t=4", "S3 t=5"):
        log.add(line, 0.0)
    assert speed_of(log).seconds == (4.0, 5.0)

"""The same QLoRA job through the HF Trainer, as its users run it, and through `as_users_run`, by turns in one process.

The Trainer's side is what PEFT's and transformers' guides show: `prepare_model_for_kbit_training`, `get_peft_model`
with defaults, `TrainingArguments(bf16, gradient_checkpointing, paged_adamw_8bit)`. Both sides train random tokens of
full length on a model of random weights, built by the same code up to the point where users would have loaded it.

    python3 studies/compare_hf_trainer.py --model mistral-7b --output trainer.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
from typing import Any

import torch

from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Preset
from bench_image.model.architectures import skeleton
from bench_image.model.build import build
from bench_image.model.dtypes import ModelDtypes
from bench_image.model.init_weights import init_weights, random_weights, rebuild_buffers
from bench_image.model.lora_layers import with_4bit_layers
from bench_image.parallel.process_group import ProcessGroup
from bench_image.training.train_step import TrainStep
from same_job import ALL_LINEARS, job_spec, mark, seconds_between
from studies.argument_types import output_file

WARMUP = 5  # steps of each turn that are not counted: the Trainer's first ones prepare the turn


class Tokens(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Random ids (samples, sequence); the labels are the ids."""

    def __init__(self, num_samples: int, spec: RunSpec) -> None:
        self.ids = torch.randint(spec.work.shape.vocab_size, (num_samples, spec.work.seq_length))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


def users_model(spec: RunSpec, device: torch.device) -> Any:
    """A model as users have it after loading it in 4 bits (the rest in bf16) and preparing it with PEFT."""
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    assert spec.work.lora is not None
    assert spec.work.quantisation is not None
    bf16 = torch.bfloat16
    loaded = ModelDtypes(weights=bf16, unquantised=bf16, adapters=bf16, autocast=None, scaled=False)
    base = with_4bit_layers(skeleton(spec.work.shape, bf16), spec.work.quantisation, loaded)
    init_weights(base, device, random_weights(spec.work.seed))
    rebuild_buffers(base, device)
    base = prepare_model_for_kbit_training(base, use_gradient_checkpointing=True)
    targets = list(spec.work.lora.targets)
    return get_peft_model(
        base,
        LoraConfig(
            r=spec.work.lora.rank, lora_alpha=spec.work.lora.alpha, target_modules=targets, task_type="CAUSAL_LM"
        ),
    )


def make_trainer(spec: RunSpec, num_steps: int, device: torch.device, folder: str) -> tuple[Any, list[Any]]:
    """The Trainer, and the list to which it appends a CUDA event at the end of each step."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    events: list[Any] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_arguments: Any, **_named: Any) -> None:
            events.append(mark())

    arguments = TrainingArguments(
        output_dir=folder, per_device_train_batch_size=spec.samples_per_step, max_steps=num_steps, bf16=True,
        gradient_checkpointing=True, optim="paged_adamw_8bit", max_grad_norm=1.0, learning_rate=1e-4,
        report_to=[], save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    tokens = Tokens(spec.samples_per_step * num_steps, spec)
    return Trainer(users_model(spec, device), arguments, train_dataset=tokens, callbacks=[Clock()]), events


def our_turn(step: TrainStep, num_steps: int) -> list[float]:
    events = []
    for _ in range(num_steps):
        step()
        events.append(mark())
    return seconds_between(events[WARMUP - 1 :])


def compared(spec: RunSpec, rounds: int, num_steps: int) -> dict[str, Any]:
    """Tokens/s of both, turn by turn: the Trainer, ours, the Trainer, ours..."""
    device = torch.device("cuda", 0)
    turns: dict[str, list[list[float]]] = {"hf_trainer": [], "as_users_run": []}
    with tempfile.TemporaryDirectory() as folder:
        trainer, events = make_trainer(spec, WARMUP + num_steps, device, folder)
        step = TrainStep(spec, build(spec, device), ProcessGroup(device))
        for _ in range(rounds):
            events.clear()
            trainer.train()
            turns["hf_trainer"].append(seconds_between(events[WARMUP - 1 :]))
            turns["as_users_run"].append(our_turn(step, WARMUP + num_steps))
        step.close()
    tokens = spec.samples_per_step * spec.work.seq_length
    rates = {name: [tokens / statistics.mean(turn) for turn in of] for name, of in turns.items()}
    trainers, ours = (list(itertools.chain.from_iterable(of)) for of in turns.values())
    return {
        "spec": spec.model_dump(mode="json"),
        "tokens_per_second": rates,
        "step_s": turns,
        "difference_pct": 100 * (statistics.mean(rates["as_users_run"]) / statistics.mean(rates["hf_trainer"]) - 1),
        "difference_of_medians_pct": 100 * (statistics.median(trainers) / statistics.median(ours) - 1),
        "gpu": torch.cuda.get_device_name(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mistral-7b")
    parser.add_argument("--targets", nargs="+", default=list(ALL_LINEARS), help="layers that get adapters")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20, help="counted steps of a turn")
    parser.add_argument("--output", type=output_file, required=True)
    arguments = parser.parse_args()
    spec = job_spec("qlora", arguments.targets, model=arguments.model, preset=Preset.AS_USERS_RUN)
    result = compared(spec, arguments.rounds, arguments.steps)
    arguments.output.write_text(json.dumps(result, indent=1))
    for name, rates in result["tokens_per_second"].items():
        print(f"{name}: {', '.join(f'{rate:.0f}' for rate in rates)} tokens/s")
    print(
        f"as_users_run is {result['difference_of_medians_pct']:+.2f} % against the HF Trainer by medians of steps, "
        f"{result['difference_pct']:+.2f} % by means of turns"
    )


if __name__ == "__main__":
    main()

"""One training program in a process of its own: `peer_programs.py PROGRAM JOB.json`, started by `compare_peers.py`."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peer_turns import Job, Turns, installed, report

Settings = dict[str, Any]
Training = Callable[[Turns], None]  # trains the whole job, by turns
LORA = {"r": 16, "lora_alpha": 32, "lora_dropout": 0.0, "bias": "none"}  # those of contract/work.py
LEARNING_RATE = 1e-4
ALL_LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def tuned_spec(job: Job) -> Any:
    import torch

    from bench_image.contract.spec import Identity, RunSpec
    from bench_image.contract.work import Device, Lora, Quantisation, Work

    work = Work(
        recipe=job.recipe, model=job.model, dimensions=job.dimensions, weights=job.weights, preset="tuned",
        lora=Lora(targets=ALL_LINEARS), quantisation=Quantisation() if job.recipe == "qlora" else None,
        optimizer="adamw_torch", gradient_checkpointing=False, micro_batch_size=job.micro_batch_size,
        seq_length=job.seq_length, device=Device.CUDA if torch.cuda.is_available() else Device.CPU,
    )  # fmt: skip
    return RunSpec(
        identity=Identity(campaign_id="compare", run_id="compare", group_id="compare", node="this"), work=work
    )


def limit_memory(job: Job) -> None:
    """As on a GPU with less memory: torch may take no more."""
    import torch

    if job.memory_gib:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(job.memory_gib * 2**30 / total)


def tuned(job: Job, _settings: Settings) -> Training:
    """The preset `tuned` of this project."""
    import torch

    from bench_image.model.build import build
    from bench_image.parallel.process_group import ProcessGroup
    from bench_image.training.train_step import TrainStep

    limit_memory(job)
    spec = tuned_spec(job)
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    step = TrainStep(spec, build(spec, device), ProcessGroup(device))

    def train(turns: Turns) -> None:
        for done in range(job.num_steps):
            turns.step_begins(done)
            turns.losses.append(step().detach().clone())
            turns.step_ended(done + 1)
        step.close()

    return train


def trl(job: Job, settings: Settings) -> Training:
    """TRL's SFTTrainer as its documentation shows it: 4-bit weights by bitsandbytes, adapters by PEFT."""
    import torch
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

    limit_memory(job)
    bits = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_pretrained(
        job.weights, dtype=torch.bfloat16, quantization_config=bits if job.recipe == "qlora" else None,
        device_map={"": 0} if torch.cuda.is_available() else "cpu",
    )  # fmt: skip
    adapters = LoraConfig(**LORA, target_modules=[*ALL_LINEARS], task_type="CAUSAL_LM")
    return sft_training(job, model, AutoTokenizer.from_pretrained(job.weights), settings, adapters)


def unsloth(job: Job, settings: Settings) -> Training:
    """Unsloth as its notebooks show it: its own loading, adapters and gradient checkpointing, and TRL's trainer."""
    from unsloth import FastLanguageModel  # isort: skip  # before transformers and TRL, which it changes

    limit_memory(job)
    checkpointing = settings["use_gradient_checkpointing"]
    model, tokenizer = FastLanguageModel.from_pretrained(
        model_name=job.weights, max_seq_length=job.seq_length, load_in_4bit=job.recipe == "qlora",
        use_gradient_checkpointing=checkpointing,
    )  # fmt: skip
    model = FastLanguageModel.get_peft_model(
        model, **LORA, target_modules=[*ALL_LINEARS], use_gradient_checkpointing=checkpointing, random_state=3407
    )
    trainers = {name: value for name, value in settings.items() if name != "use_gradient_checkpointing"}
    return sft_training(job, model, tokenizer, trainers)


def sft_training(job: Job, model: Any, tokenizer: Any, settings: Settings, peft_config: Any = None) -> Training:
    """SFTTrainer over the samples of the job in their order. What decides the losses is as in `tuned`."""
    import torch
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    arguments = SFTConfig(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=job.micro_batch_size, max_steps=job.num_steps,
        gradient_accumulation_steps=1, warmup_steps=0,  # Unsloth's defaults are 2 and 0.1
        max_length=job.seq_length, packing=False, bf16=torch.cuda.is_available(), learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant", weight_decay=0.01, max_grad_norm=1.0, train_sampling_strategy="sequential",
        logging_steps=job.num_steps + 1, report_to=[], save_strategy="no", disable_tqdm=True, **settings,
    )  # fmt: skip
    trainer = SFTTrainer(
        model=model, args=arguments, train_dataset=Dataset.from_dict({"input_ids": samples(job)}),
        processing_class=tokenizer, peft_config=peft_config,
    )  # fmt: skip
    give_adapters_their_values(trainer.model)

    def train(turns: Turns) -> None:
        time_steps(trainer, turns)
        trainer.train()

    return train


def time_steps(trainer: Any, turns: Turns) -> None:
    """Lets the trainer wait for its turns, and keeps the loss of each step on the GPU."""
    from transformers import TrainerCallback

    class Steps(TrainerCallback):
        def on_step_begin(self, _arguments: Any, state: Any, _control: Any, **_named: Any) -> None:
            turns.step_begins(state.global_step)

        def on_step_end(self, _arguments: Any, state: Any, _control: Any, **_named: Any) -> None:
            turns.step_ended(state.global_step)

    training_step = trainer.training_step

    def kept(model: Any, inputs: Any, *others: Any, **named: Any) -> Any:
        if inputs["input_ids"].numel() != turns.job.tokens_per_step:
            raise ValueError(
                f"a batch of {inputs['input_ids'].numel()} tokens where the job has {turns.job.tokens_per_step}: the "
                "trainer changes the batches, so the programs would not do the same work"
            )
        loss = training_step(model, inputs, *others, **named)
        turns.losses.append(loss.detach().clone())
        return loss

    trainer.training_step = kept
    trainer.add_callback(Steps())


def token_batches(job: Job) -> Any:
    """The batches on which `tuned` trains."""
    import torch

    from bench_image.data.batches import batches

    spec = tuned_spec(job)
    return batches(spec, 0, spec.work.shape.vocab_size, pinned=torch.cuda.is_available())


def samples(job: Job) -> list[list[int]]:
    """The ids of every step's samples in order."""
    pool = token_batches(job)
    return [row for step in range(job.num_steps) for row in pool.batch(step, 0).tolist()]


def give_adapters_their_values(model: Any) -> None:
    """The values that `tuned` draws for its adapters, so that all programs begin alike."""
    import torch

    from bench_image.model.init_weights import WRAPPERS, random_weights

    source = random_weights(seed=0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(source(WRAPPERS.sub("", name), parameter, parameter.device))


COMPILED = {"torch_compile": True, "optim": "adamw_torch_fused"}
# Both libraries checkpoint by default.
PROGRAMS: dict[str, tuple[Callable[[Job, Settings], Training], Settings]] = {
    "tuned": (tuned, {}),
    "trl": (trl, {**COMPILED, "use_liger_kernel": True, "gradient_checkpointing": False}),
    "trl-without-liger": (trl, {**COMPILED, "gradient_checkpointing": False}),
    "unsloth": (unsloth, {"use_gradient_checkpointing": False, "gradient_checkpointing": False, "optim": "adamw_8bit"}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("job", type=Path)
    arguments = parser.parse_args()
    job = Job(**json.loads(arguments.job.read_text()))
    make, settings = PROGRAMS[arguments.program]
    began = time.monotonic()
    try:
        train = make(job, settings)
        report(ready_s=time.monotonic() - began, settings=settings, versions=installed())
        train(Turns(job))
    except Exception as error:  # the parent writes it into the result, and the others go on
        traceback.print_exc()
        report(error=f"{type(error).__name__}: {error}"[:2000])


if __name__ == "__main__":
    main()

"""One training step: copy the batches to the device, forward, loss, backward, clip, update."""

from __future__ import annotations

import time
from collections.abc import Iterable

import torch
from torch import nn

from bench_image.contract.memory_estimate import keeps_unpacked
from bench_image.contract.preset_switches import acts_as_hf_trainer, steps_before_capture, uses_cuda_graph
from bench_image.contract.result_sections import Clock
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Device
from bench_image.data.batches import batches
from bench_image.model.build import BuiltModel
from bench_image.parallel.process_group import ProcessGroup
from bench_image.training.cuda_graph import CudaGraphStep, on_stream
from bench_image.training.stopwatch import clock_seconds, synchronize


class TrainStep:
    """One optimizer step per call; returns its mean loss over the micro-steps, a scalar tensor.

    The loss stays on the device, because reading it would wait for the GPU. Only the preset `as_users_run` reads it in
    each micro-step, as the Hugging Face Trainer does.
    """

    def __init__(self, spec: RunSpec, built: BuiltModel, group: ProcessGroup) -> None:
        self.spec, self.group, self.base = spec, group, built.base
        self.keeps_unpacked = keeps_unpacked(spec, group.memory_bytes())
        for layers in built.fused:
            layers.keep_unpacked = self.keeps_unpacked
        # DDP keeps the stream on which it was made, and the default stream cannot be captured.
        records = uses_cuda_graph(spec) and group.world_size > 1
        self._stream = torch.cuda.Stream(group.device) if records else None  # type: ignore[no-untyped-call]
        with on_stream(self._stream):
            self.optimizer_step = group.optimizer_step(spec, built)
        self.batches = batches(spec, group.rank, spec.work.shape.vocab_size, pinned=group.device.type == "cuda")
        self.steps_done = 0
        self.cuda_graph: CudaGraphStep | None = None
        self.loader_wait_s = 0.0  # since the first step; the caller takes differences

    @property
    def model(self) -> nn.Module:
        """The model as its strategy wrapped it (DDP, FSDP, DeepSpeed)."""
        return self.optimizer_step.model

    def __call__(self) -> torch.Tensor:
        self.group.steps_begun += 1
        begin = clock_seconds(self.group.device)
        if uses_cuda_graph(self.spec) and self.steps_done >= steps_before_capture(self.spec):
            loss = self._replay_graph()
        else:
            with on_stream(self._stream):
                num_batches = self.spec.work.gradient_accumulation_steps
                loss = self._launch_step(self._batch(index) for index in range(num_batches))
        self.steps_done += 1
        if self.spec.drill and self.steps_done > 1:  # the first one compiles, which is no throughput
            synchronize(self.group.device)
            step_s = clock_seconds(self.group.device) - begin
            wait_on_clock(self.group.device, drill_delay_s(step_s, self.spec.drill.slowdown_pct))
        return loss

    def close(self) -> None:
        """Ends the thread that reads batches ahead, and frees the graph; before the process group ends."""
        self.batches.close()
        if self.cuda_graph:
            self.cuda_graph.close()

    def _replay_graph(self) -> torch.Tensor:
        """The step as one CUDA graph, which the first call captures."""
        step_batches = [self._batch(index) for index in range(self.spec.work.gradient_accumulation_steps)]
        if self.cuda_graph is None:
            synchronize(self.group.device)
            self.optimizer_step.forget_launched_steps()
            optimizer, device = self.optimizer_step.optimizer, self.group.device
            self.cuda_graph = CudaGraphStep(self._launch_step, step_batches, optimizer, device, self._stream)
        return self.cuda_graph(step_batches)

    def _launch_step(self, step_batches: Iterable[torch.Tensor]) -> torch.Tensor:
        """The step kernel by kernel: one micro-step per batch, then the update."""
        last = self.spec.work.gradient_accumulation_steps - 1
        losses = [self._micro_step(batch, last=index == last) for index, batch in enumerate(step_batches)]
        self.optimizer_step.update()
        if acts_as_hf_trainer(self.spec):
            self.base.zero_grad()
        return torch.stack(losses).mean()

    def _micro_step(self, batch: torch.Tensor, *, last: bool) -> torch.Tensor:
        ids = batch.to(self.group.device, non_blocking=True)
        if not acts_as_hf_trainer(self.spec):
            return self.optimizer_step.micro_step(ids, last=last)
        # What the Trainer does around each micro-step, in its order: the two checks wait for the GPU.
        self.base.train()
        loss = self.optimizer_step.micro_step(ids, last=last)
        _ = bool(torch.isnan(loss)) or bool(torch.isinf(loss))
        self.base.num_parameters(exclude_embeddings=True)
        return loss

    def _batch(self, micro_step: int) -> torch.Tensor:
        """The next batch on the host; the seconds that it took to arrive count as loader wait."""
        begin = time.perf_counter()
        batch = self.batches.batch(self.steps_done, micro_step)
        self.loader_wait_s += time.perf_counter() - begin
        return batch


def wait_on_clock(device: torch.device, delay_s: float) -> None:
    """Lets `delay_s` seconds of the device's clock pass: sleeping takes no CPU time, so the CPU is kept busy."""
    if Clock.of(Device(device.type)) is Clock.WALL:
        time.sleep(delay_s)
        return
    end = clock_seconds(device) + delay_s
    while clock_seconds(device) < end:
        pass


def drill_delay_s(step_s: float, slowdown_pct: float) -> float:
    """Seconds to add to a step so that throughput falls by `slowdown_pct`: step / (1 - pct/100) - step."""
    return step_s * slowdown_pct / (100 - slowdown_pct)

"""Imports the training stack without the packages that no training step needs, and starts torch's compilers early."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator

from bench_image.contract.options import DEEPSPEED, Optimizer
from bench_image.contract.preset_switches import uses_compile
from bench_image.contract.spec import RunSpec

EIGHT_BIT = (Optimizer.ADAMW_8BIT, Optimizer.PAGED_ADAMW_8BIT)
# transformers and PEFT import these where they happen to be installed, for metrics, images and tables; the benchmark
# image has none of them. In an image that has all, they are 1,300 of 4,700 modules.
NOT_NEEDED = ("sklearn", "scipy", "pandas", "pyarrow", "torchvision", "torchaudio", "PIL")


def import_stack(spec: RunSpec) -> None:
    """Imports what the spec needs, and nothing else: PEFT, bitsandbytes and DeepSpeed cost seconds each."""
    with hidden(NOT_NEEDED):
        for module in modules_of(spec):
            try:
                importlib.import_module(module)
            except ModuleNotFoundError as error:
                if module != "deepspeed" or error.name != module:
                    raise
                raise ModuleNotFoundError(
                    f"strategy '{spec.placement.strategy.value}' needs the package deepspeed, which this image lacks: "
                    "install it, or choose fsdp"
                ) from error
            if module == "torch" and uses_compile(spec):
                start_compilers()


def modules_of(spec: RunSpec) -> list[str]:
    """The modules to import, in this order; torch is the first."""
    modules, family = ["torch"], spec.work.shape.family
    if family == "config":
        modules.append("transformers.models.auto.modeling_auto")
    elif family != "encoder-decoder":
        modules.append(f"transformers.models.{family}.modeling_{family}")
    if spec.work.lora:
        modules.append("peft")
    if spec.work.quantisation or spec.work.optimizer in EIGHT_BIT:
        modules.append("bitsandbytes")
    if spec.placement.strategy in DEEPSPEED:
        modules.append("deepspeed")
    return modules


def start_compilers() -> None:
    """Starts torch's pool of compiler processes, which takes seconds, while the rest is imported.

    torch starts it with the first compilation, and compiles one kernel after the other until it is ready. These names
    are no public interface: in a torch without them it starts later, and compiles the same.
    """
    with contextlib.suppress(ImportError, AttributeError):
        from torch._inductor import async_compile

        async_compile.maybe_warm_pool()
        async_compile.AsyncCompile.use_process_pool()  # type: ignore[no-untyped-call]  # it reports when it is ready


@contextlib.contextmanager
def hidden(packages: tuple[str, ...]) -> Iterator[None]:
    """Makes packages that are not imported yet look as if not installed: None in `sys.modules` blocks an import."""
    names = [name for name in packages if name not in sys.modules]
    sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)

"""The imports of a rank, those it leaves out, and its end without waiting for the libraries."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from bench_image.contract.options import Optimizer, Recipe, Strategy
from bench_image.contract.work import Preset
from bench_image.process import training_imports as imports
from bench_image.process.training_imports import NOT_NEEDED, hidden, import_stack, modules_of, start_compilers
from tests.builders.image_processes import environment, make_spec

MISTRAL = "transformers.models.mistral.modeling_mistral"


def test_a_recipe_imports_only_what_it_needs() -> None:
    full = make_spec(recipe=Recipe.FULL, model="mistral-7b")
    assert modules_of(full) == ["torch", MISTRAL]
    assert modules_of(make_spec(model="mistral-7b")) == ["torch", MISTRAL, "peft", "bitsandbytes"]
    assert modules_of(full.changed(work={"optimizer": Optimizer.ADAMW_8BIT}))[-1] == "bitsandbytes"
    assert modules_of(full.changed(placement={"strategy": Strategy.ZERO2}))[-1] == "deepspeed"


def test_hidden_packages_seem_absent_and_come_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "some_extra.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    with hidden(("some_extra", "json")):
        assert importlib.util.find_spec("some_extra") is None
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("some_extra")
        assert importlib.import_module("json").dumps(1) == "1"  # it was imported before: it stays
    assert importlib.import_module("some_extra")
    monkeypatch.delitem(sys.modules, "some_extra")


def test_compilers_start_right_after_torch_and_only_where_something_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(imports.importlib, "import_module", seen.append)
    monkeypatch.setattr(imports, "start_compilers", lambda: seen.append("compilers"))
    tuned = make_spec(recipe=Recipe.FULL, model="mistral-7b", device="cuda", preset=Preset.TUNED)

    import_stack(tuned)
    assert seen == ["torch", "compilers", MISTRAL]
    seen.clear()
    import_stack(tuned.changed(work={"preset": Preset.AS_USERS_RUN}))
    assert seen == ["torch", MISTRAL]


def test_a_torch_without_a_pool_of_compilers_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import async_compile

    monkeypatch.delattr(async_compile, "maybe_warm_pool")
    monkeypatch.setattr(
        async_compile.AsyncCompile, "use_process_pool", lambda: pytest.fail("it was started all the same")
    )
    start_compilers()


def test_a_rank_imports_nothing_that_no_step_needs_and_ends_without_waiting_for_libraries(tmp_path: Path) -> None:
    """Packages that happen to be installed fail here if anybody imports them; so would an exit handler show."""
    for name in NOT_NEEDED:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit(f'{__name__} was imported')")
    code = (
        "import atexit, runpy, sys; atexit.register(lambda: sys.stderr.write('LIBRARY')); "
        "runpy.run_module('bench_image.process.worker', run_name='__main__')"
    )
    env = environment(
        TRAINBENCH_SPEC=make_spec(repeats=1).model_dump_json(), TRAINBENCH_OUTPUT_DIR=str(tmp_path),
        HF_HUB_OFFLINE="1", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1",
    )  # fmt: skip
    env["PYTHONPATH"] += f":{tmp_path}"

    ended = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stderr
    assert "LIBRARY" not in ended.stderr
    assert '"status":"ok"' in (tmp_path / "rank-0.json").read_text()

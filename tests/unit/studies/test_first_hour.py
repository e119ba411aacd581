"""The stopwatch of README's quickstarts walks what README says."""

from __future__ import annotations

import first_hour
from tests.builders.commands import ROOT


def test_the_steps_are_readme_s_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    steps = [step.command for steps in first_hour.quickstarts("cuda").values() for step in steps]
    for command in (
        "make demo", ".venv/bin/trainbench run --set quick=true", "make setup", ".venv/bin/trainbench doctor",
        ".venv/bin/trainbench run --device cuda", "pip install '.[control]'", first_hour.LINK,
    ):  # fmt: skip
        assert command in readme
        assert any(command in step for step in steps), command


def test_medians_are_of_the_sums_and_without_set_up() -> None:
    """Set-ups of 10, 30 and 20 s, runs of 1, 2 and 9 s: sums of 11, 32 and 29 s."""

    def walk(setup_s: float, run_s: float) -> dict[str, object]:
        steps = [{"wall_s": setup_s, "is_setup": True}, {"wall_s": run_s, "is_setup": False}]
        return {"laptop": {"steps": steps, "disk_gb": 2.0}}

    rounds = [walk(10.0, 1.0), walk(30.0, 2.0), walk(20.0, 9.0)]
    assert first_hour.medians(rounds) == {"laptop": {"total_s": 29.0, "setup_s": 20.0, "rest_s": 2.0, "disk_gb": 2.0}}

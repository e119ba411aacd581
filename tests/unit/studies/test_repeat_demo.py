"""How often the demo is definite: what is read from its output, and when a run counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench_image.contract.spec import Drill
from repeat_demo import NODES, is_definite, states_of, table
from tests.builders import make_cpu_result
from trainbench.judging.peers.node_verdicts import judge_groups
from trainbench.params.campaign_params import LOCAL_DEFAULTS, parse_params

GOLDEN = Path(__file__).parents[2] / "golden" / "terminal-cpu-drill.txt"
OK = dict.fromkeys(NODES, "ok")


def test_the_states_are_those_of_the_verdict_s_table() -> None:
    states = states_of(GOLDEN.read_text())

    assert set(states) == set(NODES)
    assert states["node-3"].startswith("breach: slow, confirmed")


@pytest.mark.parametrize(
    ("states", "exit_code", "drill", "definite"),
    [
        (OK, 0, None, True),
        (OK, 1, None, False),
        (OK | {"node-1": "insufficient"}, 0, None, False),
        (OK | {"node-3": "breach: slow, confirmed (\u221270.1 %), drill"}, 1, "node-3", True),
        (OK | {"node-3": "breach: slow, confirmed (\u221270.1 %), drill"}, 1, "node-2", False),
        (OK | {"node-3": "breach: slow", "node-1": "breach: fast"}, 1, "node-3", False),
        ({}, 2, None, False),
    ],
)
def test_a_run_counts_only_when_every_node_has_its_state(
    states: dict[str, str], exit_code: int, drill: str | None, definite: bool
) -> None:
    assert is_definite(states, exit_code, drill) == definite


def test_the_table_counts_what_was_definite() -> None:
    run = {"seconds": 110.2, "load_before": 1.1, "exit_code": 0, "states": OK, "is_definite": True}
    text = table([run, run | {"states": {}, "is_definite": False, "seconds": 150.0}], None, burn=True)

    assert "1 of 2 ended as they should, in 110 to 150 s." in text
    assert "| 2 | 150.0 | 1.1 | 0 | n/a | n/a | n/a | n/a |" in text


@pytest.mark.parametrize("drill", [None, "node-3"])
@pytest.mark.parametrize("halved", [(), ("node-4",)])
def test_the_demo_s_settings_are_definite_where_windows_scatter(drill: str | None, halved: tuple[str, ...]) -> None:
    """Windows by turns at 95 and 105 % of each node's rate, sd 5.1 %, and one at half in the nodes of `halved`: sd
    16.2 %, times Student's t of 2.878: its own half-width is 37.3 %, within the limit of 40 %.
    """
    params = parse_params({"drill_node": drill} if drill else {}, LOCAL_DEFAULTS)
    results = []
    for node, rate in zip(NODES, (100.0, 104.0, 97.0, 93.0), strict=True):
        slowdown = params.drill_slowdown_pct if node == drill else 0.0
        left = rate * (1 - slowdown / 100)
        windows = [left * (0.95, 1.05)[number % 2] for number in range(params.measurement.repeats)]
        if node in halved:
            windows[3] = left / 2
        wanted = Drill(slowdown_pct=slowdown) if slowdown else None
        results.append(make_cpu_result(node, left, windows=windows, drill=wanted))
    (group,) = judge_groups(results, NODES, params.tolerances)

    assert {node.node: node.state.value for node in group.nodes} == {
        node: "breach" if node == drill else "ok" for node in NODES
    }

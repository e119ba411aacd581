"""docs/airflow-api.md: its commands and requests, sent to a real Airflow."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.dag.pages.site import login

PAGE = (Path(__file__).parents[3] / "docs" / "airflow-api.md").read_text()
COMMANDS = re.findall(r"^\$ airflow (dags trigger .*)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("number", range(len(COMMANDS)))
def test_a_command_makes_a_run(client: Any, our_dags: None, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    from airflow.cli.cli_parser import get_parser

    words = [*shlex.split(COMMANDS[number]), "--run-id", f"command-{number}", "--output", "json"]
    options = get_parser().parse_args(words)
    options.func(options)

    (made,) = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert made["dag_run_id"] == f"command-{number}"
    assert len(COMMANDS) >= 4


def test_the_requests_make_a_run_and_read_its_state(client: Any, our_dags: None) -> None:
    token, trigger, state = re.findall(r'curl -s "\$AIRFLOW([^"]*)"(.*)', PAGE)
    body = json.loads(shlex.split(token[1].partition(" | ")[0])[-1])
    made = client.post(trigger[0], json=json.loads(shlex.split(trigger[1])[-1]), headers=login(client, "ada"))
    read = client.get(state[0].replace("RUN_ID", made.json()["dag_run_id"]), headers=login(client, "ada"))

    assert client.post(token[0], json=body | {"password": "wrong"}).status_code == 401
    assert (made.status_code, made.json()["conf"]["quick"]) == (200, True)
    assert read.json()["state"] == "queued"

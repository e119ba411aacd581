"""Campaign files as DAGs: parsed beside wrong ones, serialised by the dozen, and one run for real by Airflow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.dag.conftest import ROOT, load_dags
from tests.dag.sinks import connection, http_sink
from trainbench.core.verdicts import Why
from trainbench.planning.plan import campaign_id

pytestmark = pytest.mark.slow
EXAMPLES = ROOT / "docs" / "examples" / "campaigns"
NIGHT = """\
suite: node_consistency
description: Three nodes with a channel of their own.
schedule: "30 1 * * *"
nodes: [gpu-a, gpu-bb, gpu-slow]
parameters: {device: cuda, rounds: 2, measured_steps: 50, max_measured_steps: 200}
channels: [{kind: webhook, connection: sink, path: of-the-file}]
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    folder = tmp_path / "campaigns"
    folder.mkdir()
    monkeypatch.setenv("TRAINBENCH_CAMPAIGNS", str(folder))

    def written(name: str, text: str) -> Path:
        (folder / name).write_text(text)
        return folder / name

    return written


@pytest.mark.usefixtures("airflow_db")
def test_a_wrong_file_is_an_import_error_that_takes_no_other_dag_away(
    write: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow hides all DAGs of a DAG file with an error: the errors have one of their own."""
    monkeypatch.setenv("TRAINBENCH_DAG_PREFIX", "gpu_")
    write("night.yaml", NIGHT)
    rounds = write("rounds.yaml", NIGHT.replace("rounds: 2", "rounds: 99"))
    write("housekeeping.yaml", NIGHT)
    write("twice.yaml", NIGHT)
    write("twice.yml", NIGHT)
    write("Upper.yaml", NIGHT)
    write("notes.txt", "no campaign")
    bag = load_dags()
    ours = {dag_id for dag_id, dag in bag.dags.items() if dag.relative_fileloc == "campaign_files.py"}

    assert ours == {"gpu_night"}
    (error_file,) = bag.import_errors
    assert error_file == "refused_campaign_files.py"
    lines = bag.import_errors[error_file].strip().splitlines()[-5:]
    for line, words in zip(
        lines,
        (
            "Upper.yaml: its name becomes the DAG's id: lower-case letters",
            "housekeeping.yaml: trainbench has a DAG 'housekeeping' of its own: give the file another name",
            f"{rounds}, line 5: rounds is 99: give at most 20",
            "twice.yaml: .yaml and .yml make two DAGs 'twice': remove one of the files",
            "twice.yml: .yaml and .yml make two DAGs",
        ),
        strict=True,
    ):
        assert words in line


@pytest.mark.usefixtures("airflow_db")
def test_the_examples_become_dags_as_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule of the settings comes before the file's, which the local launcher keeps: somebody chose it."""
    monkeypatch.setenv("TRAINBENCH_CAMPAIGNS", str(EXAMPLES))
    monkeypatch.setenv("TRAINBENCH_SCHEDULE_H100-BY-NIGHT", "5 5 * * *")
    bag = load_dags()

    assert bag.import_errors == {}
    form = {name: bag.dags[name].params.dump() for name in ("h100-by-night", "a100-at-weekends", "own-job-on-fridays")}
    assert [bag.dags[name].schedule for name in form] == ["5 5 * * *", "0 3 * * 6,0", "0 22 * * 5"]
    assert form["h100-by-night"]["node_labels"] == "nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3"
    assert form["own-job-on-fridays"]["command"].endswith("/app/train.py --steps 200")


@pytest.mark.usefixtures("airflow_db")
def test_its_run_takes_nodes_and_parameters_of_the_file_and_notifies_its_channel(
    write: Callable[[str, str], Path], store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("night.yaml", NIGHT)
    monkeypatch.setenv("TRAINBENCH_NOTIFY", '[{"kind": "webhook", "connection": "sink", "path": "of-all"}]')
    with http_sink() as (port, posted):
        monkeypatch.setenv("AIRFLOW_CONN_SINK", connection(conn_type="http", host=f"http://127.0.0.1:{port}"))
        dag_run = load_dags().dags["night"].test()
    campaign = store.read_campaign(campaign_id("night", dag_run.run_id))

    assert dag_run.state == "failed"
    assert {node.node: node.why for node in campaign.nodes}["gpu-slow"] is Why.SLOW
    assert (campaign.suite, campaign.params["rounds"], len(campaign.nodes)) == ("night", 2, 3)
    assert [address for address, _ in posted] == ["/of-the-file"]

    path.write_text(NIGHT.replace("rounds: 2", "rounds: 99"))  # while a run is under way
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "night")
    assert "night.yaml, line 5: rounds is 99" in load_dags().import_errors["campaign_files.py"]

"""The section [trainbench] of Airflow's configuration: read as Airflow reads it, and refused when wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trainbench.settings.environment import SettingsError, read_settings


def home(folder: Path, section: str) -> dict[str, str]:
    """The environment of an Airflow whose file has this section behind one of its own."""
    (folder / "airflow.cfg").write_text(f"[core]\nload_examples = False\n[trainbench]\n{section}\n")
    return {"AIRFLOW_HOME": str(folder)}


def test_the_file_is_read_and_variables_win(tmp_path: Path) -> None:
    """By rank: TRAINBENCH_..., AIRFLOW__TRAINBENCH__..., the file, the default."""
    given = home(tmp_path, "namespace = a\nimage = a:1\nfresh_h = 40\nschedule_metrics = none\nqueue_timeout_s =")
    given |= {"AIRFLOW__TRAINBENCH__IMAGE": "b:1", "AIRFLOW__TRAINBENCH__FRESH_H": "50", "TRAINBENCH_FRESH_H": "50"}
    settings = read_settings(given | {"TRAINBENCH_NAMESPACE": "c"})

    assert (settings.namespace, settings.image, settings.fresh_h) == ("c", "b:1", 50)
    assert settings.cron("metrics", "20 * * * *") is None
    assert settings.queue_timeout_s == 3600


def test_values_are_expanded_as_airflow_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOL", "gpu")
    given = home(tmp_path, "store = ~/$POOL\nnode_selector = pool=$POOL,a=%%b")
    with pytest.raises(SettingsError, match=r"^node_selector in \[trainbench\] of .* is 'pool=gpu,a=%b'"):
        read_settings(given)
    (tmp_path / "other.cfg").write_text("[trainbench]\nstore = ~/$POOL\n")
    assert read_settings({"AIRFLOW_CONFIG": f"{tmp_path}/other.cfg"}).store == f"{Path.home()}/gpu"


@pytest.mark.parametrize(
    ("section", "environ", "message"),
    [
        (
            "fresh_h = soon",
            {},
            r"fresh_h in \[trainbench\] of .*airflow.cfg is 'soon': give a whole number",
        ),
        ("quarantin = a", {}, r"quarantin in .* is no setting \(did you mean 'quarantine'\?\): correct its name"),
        ("anything = a", {}, r"anything in .* is no setting: correct its name, or remove it"),
        ("schedule_metric = none", {}, r"is no setting \(did you mean 'schedule_metrics'\?\)"),
        ("", {"AIRFLOW__TRAINBENCH__STOR": "/x"}, r"^AIRFLOW__TRAINBENCH__STOR is no setting \(did you mean 'store'"),
        (
            "",
            {"AIRFLOW__TRAINBENCH__FRESH_H": "5", "TRAINBENCH_FRESH_H": "6"},
            "^TRAINBENCH_FRESH_H and AIRFLOW__TRAINBENCH__FRESH_H are both set, and differ: unset one of them",
        ),
        (
            "",
            {"AIRFLOW__TRAINBENCH__NOTIFY": "[1]"},
            "^AIRFLOW__TRAINBENCH__NOTIFY: channel 1: .*; give JSON such as",
        ),
        ("store = 100%", {}, r"airflow.cfg cannot be read: '%' must be followed by .*; a % is written %%$"),
        ("store", {}, "airflow.cfg cannot be read: .*contains parsing errors"),
        ("history_url_cmd = false", {}, "history_url_cmd in .* gives no value: "),
        ("store_cmd = echo /x", {}, r"store_cmd in .* is no setting \(did you mean 'store'\?\)"),
    ],
)
def test_a_wrong_section_is_named_with_its_place(
    section: str, environ: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match=message):
        read_settings(home(tmp_path, section) | environ)


def test_a_changed_file_is_read_anew_and_one_without_the_section_is_left_alone(tmp_path: Path) -> None:
    assert read_settings(home(tmp_path, "namespace = one")).namespace == "one"
    assert read_settings(home(tmp_path, "namespace = three")).namespace == "three"
    (tmp_path / "airflow.cfg").write_text("this is [no configuration\n")
    assert read_settings({"AIRFLOW_HOME": str(tmp_path)}).namespace == "trainbench"


def test_the_section_is_read_without_airflow(tmp_path: Path) -> None:
    """Importing Airflow takes longer than most commands."""
    program = """
import sys
from trainbench.settings.environment import read_settings
print(read_settings().namespace, [name for name in sys.modules if name.partition(".")[0] == "airflow"])
"""
    environ = home(tmp_path, "namespace = of-the-file") | {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environ)

    assert done.stdout == "of-the-file []\n"

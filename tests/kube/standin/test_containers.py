"""Programs in containers: processes, users, volumes, names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.kube.shell_pods import IN_CONTAINER, container, pod
from tests.kube.standin.seen import NS, condition, state

pytestmark = pytest.mark.slow


def test_a_pod_runs_and_reports_how_it_ended(run: Any, api: Any) -> None:
    ended = run(pod("a", "echo one; echo two >&2; echo the cause > /dev/termination-log; exit 3"))

    assert ended["status"]["phase"] == "Failed"
    assert state(ended)["terminated"]["exitCode"] == 3
    assert state(ended)["terminated"]["reason"] == "Error"
    assert state(ended)["terminated"]["message"] == "the cause\n"
    assert condition(ended, "PodScheduled")["status"] == "True"
    assert api.read_namespaced_pod_log("a", NS, _preload_content=False).data == b"one\ntwo\n"
    stamped = api.read_namespaced_pod_log("a", NS, timestamps=True, tail_lines=1, _preload_content=False).data.decode()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z two\n", stamped)
    reasons = [e.reason for e in api.list_namespaced_event(NS, field_selector="involvedObject.name=a").items]
    assert reasons == ["Scheduled", "Pulled", "Created", "Started"]


def test_a_container_sees_its_own_processes_its_user_and_nothing_of_the_host(run: Any, api: Any) -> None:
    listed = "ps ax > /tmp/list; wc -l < /tmp/list"  # a header, the shell and ps itself
    script = f"echo pid $$; {listed}; id -u; hostname; ls {Path(__file__).parent} || touch /usr/x"
    ended = run(pod("isolated", script))

    lines = api.read_namespaced_pod_log("isolated", NS, _preload_content=False).data.decode().splitlines()
    assert lines[:4] == ["pid 1", "3", "10001", "isolated"]
    assert "No such file or directory" in lines[4]
    assert "Read-only file system" in lines[5]
    assert ended["status"]["phase"] == "Failed"


def test_volumes_variables_and_the_read_only_root(run: Any, api: Any) -> None:
    mounts = {
        "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "data", "mountPath": "/tmp", "subPath": "t"}]
    }
    first = container("echo staged > /data/x", "stage", **mounts)
    second = container(
        "cat /data/x; touch /tmp/y && ls /data/t; touch /here; echo $A",
        env=[
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "A", "value": "$(NAME)-$(OTHER)-$$(NAME)"},
        ],
        **mounts,
    )
    second["securityContext"] = {**IN_CONTAINER, "readOnlyRootFilesystem": True}
    ended = run(pod("v", initContainers=[first], containers=[second], volumes=[{"name": "data", "emptyDir": {}}]))

    lines = api.read_namespaced_pod_log("v", NS, _preload_content=False).data.decode().splitlines()
    assert lines[:2] == ["staged", "y"]
    assert "Read-only file system" in lines[2]
    assert lines[3] == "v-$(OTHER)-$(NAME)"
    assert ended["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


def test_a_failed_init_container_fails_the_pod_and_a_sidecar_does_not_keep_it(run: Any) -> None:
    failed = run(pod("init", initContainers=[container("exit 4", "stage")]))
    kept = run(
        pod(
            "side",
            initContainers=[container("trap 'exit 0' TERM; while :; do sleep 0.1; done", "s", restartPolicy="Always")],
        )
    )

    assert failed["status"]["phase"] == "Failed"
    assert "waiting" in state(failed)
    assert kept["status"]["phase"] == "Succeeded"

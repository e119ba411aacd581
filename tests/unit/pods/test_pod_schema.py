"""The strict check of a template agrees with the published schema of Pods, and names each fault's path."""

from __future__ import annotations

import copy
from typing import Any

import kubernetes_validate
import pytest

from trainbench.pods.pod_template import schema_faults

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"labels": {"a": "b"}},
    "spec": {
        "tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 5}],
        "nodeSelector": {"pool": "x"},
        "hostNetwork": True,
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
        "containers": [
            {
                "name": "base",
                "env": [{"name": "A", "value": "1"}],
                "ports": [{"containerPort": 80}],
                "livenessProbe": {"httpGet": {"port": "http"}},
                "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
                "resources": {"limits": {"cpu": 2, "memory": "8Gi"}},
            }
        ],
    },
}


def changed(path: str, value: Any) -> dict[str, Any]:
    pod = copy.deepcopy(POD)
    *parents, last = [int(key) if key.isdecimal() else key for key in path.split("/")]
    place: Any = pod
    for key in parents:
        place = place[key]
    place[last] = value
    return pod


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        ("spec/tolerationz", [], "spec.tolerationz: unknown field, did you mean tolerations?"),
        ("spec/tolerations/0/efect", "x", "spec.tolerations[0].efect: unknown field, did you mean effect?"),
        ("spec/containers/0/imgae", "x", "spec.containers[0].imgae: unknown field, did you mean image?"),
        ("spec/containers/0/env/0/qqqqqq", "x", "spec.containers[0].env[0].qqqqqq: unknown field"),
        ("spec/containers/0/securityContext/capabilities/ad", ["X"], "did you mean add?"),
        ("spec/containers/0/ports/0/containerPort", "80", "containerPort: '80' is not a whole number"),
        ("spec/containers/0/ports/0/containerPort", True, "containerPort: True is not a whole number"),
        ("spec/hostNetwork", "yes", "spec.hostNetwork: 'yes' is not true or false"),
        ("spec/tolerations", {"key": "a"}, "spec.tolerations: {'key': 'a'} is not a list"),
        ("spec/nodeSelector", ["a"], "spec.nodeSelector: ['a'] is not a mapping"),
        ("spec/nodeSelector/pool", True, "spec.nodeSelector.pool: True is not a text, in quotes"),
        ("metadata/labels/a", 1, "metadata.labels.a: 1 is not a text, in quotes"),
        ("spec/containers/0/env/0", {"value": "1"}, "spec.containers[0].env[0]: name is missing"),
        ("spec/containers/0", {}, "spec.containers[0]: name is missing"),
        ("spec", "x", "spec: 'x' is not a mapping of fields"),
    ],
)
def test_a_fault_of_the_schema_is_named_with_its_path(path: str, value: Any, fault: str) -> None:
    pod = changed(path, value)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pod, "1.33", strict=True)
    (actual,) = schema_faults(pod)
    assert actual.endswith(fault)


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        (
            "spec/containers/0/resources/limits/cpu",
            "lots",
            "limits.cpu: 'lots' is not a quantity such as 4, 500m or 8Gi",
        ),
        ("spec/volumes/0/emptyDir/sizeLimit", "much", "sizeLimit: 'much' is not a quantity such as 4, 500m or 8Gi"),
        ("spec/securityContext", None, "spec.securityContext: is empty, leave the field out"),
    ],
)
def test_what_the_published_schema_lets_pass_is_refused_too(path: str, value: Any, fault: str) -> None:
    (actual,) = schema_faults(changed(path, value))
    assert actual.endswith(fault)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec/containers/0/resources/limits/cpu", 0.5),
        ("spec/containers/0/resources/limits/cpu", "500m"),
        ("spec/containers/0/livenessProbe/httpGet/port", 80),
        ("spec/volumes/0/emptyDir", {}),
        ("metadata/annotations", {"a/b": "[1]"}),
        ("spec/topologySpreadConstraints", [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]),
    ],
)
def test_what_kubernetes_takes_is_taken(path: str, value: Any) -> None:
    pod = changed(path, value)
    kubernetes_validate.validate(pod, "1.33", strict=True)
    assert list(schema_faults(pod)) == []

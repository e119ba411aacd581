"""A template that Kubernetes' models do not take as it is written is refused, and each fault is named with its path."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.unit.pods.test_pod_template import base
from trainbench.pods.pod_template import PodTemplateError, read_template


def read(tmp_path: Path, pod: dict[str, object]) -> object:
    path = tmp_path / "template.yaml"
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", **pod}))
    return read_template(path)


@pytest.mark.parametrize(
    ("pod", "fault"),
    [
        ({"spec": {"tolerationz": []}}, "spec.tolerationz: unknown field"),
        ({"spec": {"tolerations": [{"efect": "x"}]}}, r"spec.tolerations\[0\].efect: unknown field"),
        ({"spec": {"securityContext": None}}, "spec.securityContext: unknown field, or no value"),
        (base(ports=[{"containerPort": "80"}]), r"spec.containers\[0\].ports\[0\].containerPort: '80' is of the wrong"),
        (base(ports=[{"containerPort": True}]), "containerPort: True is of the wrong kind"),
        ({"spec": {"hostNetwork": "false"}}, "spec.hostNetwork: 'false' is of the wrong kind"),
        ({"spec": {"tolerations": {"key": "a"}}}, "spec.tolerations: {'key': 'a'} is of the wrong kind"),
        ({"spec": {"nodeSelector": {"pool": True}}}, "spec.nodeSelector.pool: True is of the wrong kind"),
        ({"spec": {"nodeSelector": ["a"]}}, "not a Pod by Kubernetes' schema"),
        (base(env=[{"value": "1"}]), "schema: Invalid value for `name`, must not be `None`"),
        ({"spec": "x"}, "schema: Invalid value for `containers`"),
    ],
)
def test_what_the_models_drop_or_change_is_named_with_its_path(
    pod: dict[str, object], fault: str, tmp_path: Path
) -> None:
    with pytest.raises(PodTemplateError, match=f"template.yaml: .*{fault}"):
        read(tmp_path, pod)


@pytest.mark.parametrize(
    "pod",
    [
        base(resources={"limits": {"cpu": 0.5, "memory": "8Gi"}}),
        base(volumeMounts=[{"name": "v", "mountPath": "/v"}]),
        {"spec": {"volumes": [{"name": "v", "emptyDir": {}}], "terminationGracePeriodSeconds": 5}},
        {"metadata": {"labels": {"a": 1}, "annotations": {"a/b": "[1]"}}},
    ],
)
def test_what_they_keep_is_taken(pod: dict[str, object], tmp_path: Path) -> None:
    assert read(tmp_path, pod)

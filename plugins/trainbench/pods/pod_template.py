"""Merges the installation's Pod template into a pod, as Airflow's pod operator merges a template file of its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

from bench_image.contract.pod_io import NO_TEMPLATE
from trainbench.core.formats import listing
from trainbench.core.strict_yaml import YamlError, read_yaml
from trainbench.core.user_error import UserError
from trainbench.pods.pod_schema import schema_faults
from trainbench.pods.template_refusals import template_refusals

VARIABLE = "TRAINBENCH_POD_TEMPLATE"
MAX_BYTES = 1_000_000
MOST_FAULTS = 5  # in one sentence
# Defaults that a template replaces as a whole; OpenShift, for one, chooses the user id itself.
REPLACEABLE = frozenset({"securityContext", "enableServiceLinks"})
# Where a pod may run: the plan pins each one to its node, so these change no figure.
PLACEMENT = ("tolerations", "affinity", "nodeSelector", "topologySpreadConstraints")
QUEUE = "kueue.x-k8s.io/queue-name"


class PodTemplateError(UserError, ValueError):
    """The template cannot be used; the message names the file, the field and the reason."""


def with_template(pod: Mapping[str, Any], path: Path, num_pods: int = 1) -> dict[str, Any]:
    """`pod` with what the template at `path` adds. `num_pods`: of its run. Raises PodTemplateError."""
    template = read_template(path)
    if reasons := list(template_refusals(template, pod)):
        raise PodTemplateError(
            f"{VARIABLE} {path} sets what a benchmark sets itself: {listing(reasons, most=MOST_FAULTS)}"
        )
    return _merged(template, pod, num_pods)


def digest(path: Path) -> str:
    """12 hex digits, equal for templates that change pods alike; NO_TEMPLATE for one that changes only where they may
    run. Raises PodTemplateError.
    """
    template = read_template(path)
    spec = {name: value for name, value in template["spec"].items() if name not in PLACEMENT}
    if not template["metadata"] and spec == {"containers": [{"name": "base"}]}:
        return NO_TEMPLATE
    return hashlib.sha256(json.dumps({**template, "spec": spec}, sort_keys=True, default=str).encode()).hexdigest()[:12]


def read_template(path: Path) -> dict[str, Any]:
    """The template with its first container, checked against the schema of a Pod. Raises PodTemplateError."""
    try:
        stat = path.stat()
        return _read(path, stat.st_mtime_ns, stat.st_size)
    except OSError as error:
        raise PodTemplateError(f"{VARIABLE} {path} cannot be read: {error.strerror or error}") from None


@lru_cache(maxsize=4)
def _read(path: Path, mtime_ns: int, num_bytes: int) -> dict[str, Any]:
    """Cached for as long as the file is the same: a plan makes thousands of pods."""
    try:
        template = read_yaml(path, MAX_BYTES).value
    except YamlError as error:
        where = f", line {error.line}," if error.line else ""
        raise PodTemplateError(f"{VARIABLE} {path}{where} is not one YAML document: {error}") from None
    if not isinstance(template, dict) or (template.get("apiVersion"), template.get("kind")) != ("v1", "Pod"):
        raise PodTemplateError(f"{VARIABLE} {path} is not a Pod: begin it with apiVersion: v1 and kind: Pod")
    filled: dict[str, Any] = {"metadata": {}, "spec": {}} | template
    if isinstance(filled["spec"], dict):  # a template need not name the container that it leaves as it is
        filled["spec"] = {"containers": [{"name": "base"}]} | filled["spec"]
    if "status" in filled:
        raise PodTemplateError(f"{VARIABLE} {path}: status: the cluster sets it")
    if faults := list(schema_faults(filled)):
        raise PodTemplateError(f"{VARIABLE} {path}: {listing(faults, most=MOST_FAULTS)}")
    if not filled["spec"]["containers"]:
        raise PodTemplateError(f"{VARIABLE} {path}: spec.containers is empty: leave it out, or name 'base'")
    return filled


def _merged(template: Mapping[str, Any], pod: Mapping[str, Any], num_pods: int) -> dict[str, Any]:
    """By the provider's own merge: labels, annotations, environment, mounts and volumes are joined, else `pod` wins. It
    gets `pod` without the defaults that the template replaces, and with both where the provider would keep only one.
    """
    from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator  # takes two seconds to import
    from kubernetes.client import ApiClient  # type: ignore[import-untyped]

    ours = deepcopy(dict(pod))
    spec, theirs = ours["spec"], template["spec"]
    container, their_container = spec["containers"][0], theirs["containers"][0]
    for own, replacing in ((spec, theirs), (container, their_container)):
        for name in REPLACEABLE & replacing.keys():
            own.pop(name, None)
    spec["tolerations"] = [*theirs.get("tolerations", ()), *spec.get("tolerations", ())]
    spec["affinity"] = {**theirs.get("affinity", {}), **spec.get("affinity", {})}
    given, own_resources = their_container.get("resources", {}), container.get("resources", {})
    container["resources"] = dict(given) | {
        kind: {**given.get(kind, {}), **own_resources.get(kind, {})}
        for kind in ("limits", "requests")
        if kind in given or kind in own_resources
    }
    if theirs.get("hostNetwork"):
        spec["dnsPolicy"] = "ClusterFirstWithHostNet"  # else the node's own DNS, which knows no Service
    if num_pods > 1 and QUEUE in template["metadata"].get("labels", {}):
        # Kueue admits the pods of a gang together or not at all
        # (https://kueue.sigs.k8s.io/docs/tasks/run/plain_pods/#running-a-group-of-pods-to-be-admitted-together).
        ours["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = ours["metadata"]["labels"]["trainbench.io/gang"]
        ours["metadata"]["annotations"] |= {
            "kueue.x-k8s.io/pod-group-total-count": str(num_pods),
            "kueue.x-k8s.io/retriable-in-group": "false",  # a rank that failed is not made again alone
        }
    models = (PodGenerator.deserialize_model_dict(dict(each)) for each in (template, ours))
    merged: dict[str, Any] = ApiClient().sanitize_for_serialization(PodGenerator.reconcile_pods(*models))
    return merged

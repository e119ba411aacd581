"""What we ask of the Kubernetes API: few verbs in one namespace, short timeouts, errors of one sentence.

Objects are plain dicts as the API writes them: a thousand nodes are read in the time that models of them would take to
build ten.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import one_line
from trainbench.settings.environment import Settings

# Somebody waits for the answer: the provider's own client tries a dead address for 15 s, and a slow one for 60 s.
CONNECT_TIMEOUT_S = 3.0
READ_TIMEOUT_S = 10.0
RETRY_AFTER_S = 0.3
PAGE = 500  # objects in one answer


class ClusterError(RuntimeError):
    """The API did not do what was asked; the message says what that was, and what came back."""


class Unreachable(ClusterError):
    """There is no API server to talk to: not configured, not found, not answering, not trusted."""


class Refused(ClusterError):
    """The API server answered no. `told` is its own message."""

    def __init__(self, asked: str, status: int, reason: str, told: str) -> None:
        super().__init__(f"{asked}: {told} ({status} {reason})")
        self.status = status
        self.reason = reason
        self.told = told


class Permission(Frozen):
    """One verb on one resource. A missing one that is not `is_required` costs what `purpose` says, and no more."""

    verb: str
    resource: str
    subresource: str = ""
    is_cluster_wide: bool = False
    is_required: bool = True
    purpose: str

    @property
    def name(self) -> str:
        return f"{self.verb} {self.resource}{'/' if self.subresource else ''}{self.subresource}"


NEEDED = (
    Permission(verb="create", resource="pods", purpose="start a benchmark"),
    Permission(verb="get", resource="pods", purpose="follow a pod"),
    Permission(verb="list", resource="pods", purpose="find a pod again after a restart, and leaked ones"),
    Permission(verb="watch", resource="pods", purpose="be told of changes", is_required=False),
    Permission(verb="patch", resource="pods", purpose="mark a pod as read"),
    Permission(verb="delete", resource="pods", purpose="remove a pod that has ended or leaked"),
    Permission(verb="deletecollection", resource="pods", purpose="end all pods of a gang at once"),
    Permission(verb="get", resource="pods", subresource="log", purpose="show a pod's log"),
    Permission(verb="get", resource="pods", subresource="exec", purpose="read a pod's result"),
    Permission(verb="create", resource="pods", subresource="exec", purpose="read a pod's result (Kubernetes 1.35 on)"),
    Permission(verb="list", resource="events", purpose="say why a pod does not start"),
    Permission(verb="watch", resource="events", purpose="say it without polling", is_required=False),
    Permission(verb="get", resource="services", purpose="check the gangs' Service", is_required=False),
    Permission(verb="list", resource="nodes", is_cluster_wide=True, purpose="find the GPU nodes"),
)


@dataclass(frozen=True)
class Cluster:
    """Verbs over one namespace. Every one raises Unreachable or Refused, nothing else."""

    api: Any  # kubernetes.client.ApiClient, which has no types
    namespace: str

    def version(self) -> str:
        return str(self._ask("GET", "/version").get("gitVersion", "of an unknown version"))

    def identity(self) -> str | None:
        """Who we are to the API server; None where it does not tell (before Kubernetes 1.28)."""
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        try:
            answer = self._ask("POST", path, body=body)
        except Refused:
            return None
        return answer.get("status", {}).get("userInfo", {}).get("username") or None

    def is_allowed(self, permission: Permission) -> bool:
        attributes = {
            "verb": permission.verb,
            "resource": permission.resource,
            **({"subresource": permission.subresource} if permission.subresource else {}),
            **({} if permission.is_cluster_wide else {"namespace": self.namespace}),
        }
        kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        body = {**kind, "spec": {"resourceAttributes": attributes}}
        answer = self._ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=body)
        return bool(answer.get("status", {}).get("allowed"))

    def nodes(self) -> tuple[dict[str, Any], ...]:
        return self._list("/api/v1/nodes", {})

    def pods(self, labels: Mapping[str, str]) -> tuple[dict[str, Any], ...]:
        """Those that carry all of `labels`."""
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        return self._list(self._path("pods"), {"labelSelector": selector})

    def read_namespace(self) -> dict[str, Any]:
        return self._ask("GET", f"/api/v1/namespaces/{quote(self.namespace, safe='')}")

    def service(self, name: str) -> dict[str, Any]:
        return self._ask("GET", self._path("services", name))

    def dry_run(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        """The pod as the API server would have stored it; every admission check is passed, and nothing is created."""
        return self._ask("POST", self._path("pods"), {"dryRun": "All"}, pod)

    def create_pod(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        return self._ask("POST", self._path("pods"), body=pod)

    def pod(self, name: str) -> dict[str, Any]:
        return self._ask("GET", self._path("pods", name))

    def log(self, name: str, container: str, last_lines: int | None = None) -> str:
        tail = {} if last_lines is None else {"tailLines": str(last_lines)}
        return self._text("GET", f"{self._path('pods', name)}/log", {"container": container, **tail})

    def delete_pod(self, name: str, uid: str) -> None:
        """This very pod: another one that has taken its name since is left alone. One that is gone is gone."""
        try:
            self._ask("DELETE", self._path("pods", name), body={"preconditions": {"uid": uid}})
        except Refused as refused:
            if refused.status != 404:
                raise

    def _path(self, kind: str, name: str = "") -> str:
        return f"/api/v1/namespaces/{quote(self.namespace, safe='')}/{kind}{'/' if name else ''}{quote(name, safe='')}"

    def _list(self, path: str, query: Mapping[str, str]) -> tuple[dict[str, Any], ...]:
        items: list[dict[str, Any]] = []
        token = ""
        while True:
            page = self._ask("GET", path, {**query, "limit": str(PAGE), **({"continue": token} if token else {})})
            items += page.get("items") or []
            token = page.get("metadata", {}).get("continue") or ""
            if not token:
                return tuple(items)

    def _ask(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        text = self._text(method, path, query, body)
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Unreachable(f"{self.api.configuration.host} does not speak Kubernetes: {one_line(text, 80)!r}")
        return answer

    def _text(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: Mapping[str, Any] | None = None
    ) -> str:
        from kubernetes.client import ApiException  # type: ignore[import-untyped]
        from urllib3.exceptions import HTTPError

        host = self.api.configuration.host
        headers = {**self.api.default_headers, "Accept": "application/json, */*"}
        self.api.update_params_for_auth(headers, [], ["BearerToken"])
        url = f"{host}{path}{'?' if query else ''}{urlencode(query or {})}"
        timeouts = (CONNECT_TIMEOUT_S, READ_TIMEOUT_S)
        try:
            # Not `call_api`: it stumbles over an error without a body, which every TLS error is.
            send = partial(self.api.request, method, url, headers=headers, body=body, _request_timeout=timeouts)
            response = _once_more(send)
        except ApiException as error:
            if not error.status:
                raise Unreachable(f"{host} cannot be trusted: {one_line(str(error.reason))}") from None
            raise _refused(f"{method} {path}", error) from None
        except HTTPError as error:
            raise Unreachable(f"no Kubernetes API at {host}: {_cause(error)}") from None
        data: bytes = response.data
        return data.decode(errors="replace")


def open_cluster(settings: Settings, kubeconfig: str | None = None, context: str | None = None) -> Cluster:
    """By `kubeconfig` and its `context` if one of them is given, else by the Airflow connection, as the DAGs do it.
    Nothing is asked yet. Raises Unreachable.
    """
    from kubernetes.client import ApiClient

    try:
        configuration = _from_file(kubeconfig, context) if kubeconfig or context else _from_connection(settings)
    except Exception as error:  # whatever a configuration file, an exec plugin or Airflow's secrets may raise
        raise Unreachable(
            f"no Kubernetes cluster is configured: {one_line(str(error) or type(error).__name__)}"
        ) from None
    configuration.retries = False  # we do it: urllib3 would warn in the middle of what people read
    return Cluster(ApiClient(configuration), settings.namespace)


def _from_file(kubeconfig: str | None, context: str | None) -> Any:
    from kubernetes.client import Configuration
    from kubernetes.config import load_kube_config  # type: ignore[import-untyped]

    configuration = Configuration()
    load_kube_config(config_file=kubeconfig, context=context, client_configuration=configuration)
    return configuration


def _from_connection(settings: Settings) -> Any:
    from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook

    return KubernetesHook(conn_id=settings.kubernetes_connection).get_conn().configuration


def _once_more(send: Callable[[], Any]) -> Any:
    """A connection that was not made is tried again; a request that may have arrived is not."""
    from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

    try:
        return send()
    except (ConnectTimeoutError, NewConnectionError):
        time.sleep(RETRY_AFTER_S)
        return send()


def _refused(asked: str, error: Any) -> Refused:
    try:
        told = json.loads(error.body)["message"]
    except (TypeError, ValueError, KeyError):
        told = error.body.decode(errors="replace") if isinstance(error.body, bytes) else str(error.body or "no message")
    return Refused(asked, int(error.status), str(error.reason), one_line(str(told), 1000))


def _cause(error: BaseException) -> str:
    """The innermost reason without urllib3's wrapping: "[Errno 111] Connection refused"."""
    reason = getattr(error, "reason", None)
    if isinstance(reason, BaseException):
        return _cause(reason)
    return one_line(re.sub(r"^.*(\): |>: |new connection: )", "", str(error)))

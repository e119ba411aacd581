"""Kubernetes API: the verbs that trainbench needs in one namespace, with short timeouts and one-sentence errors.

The official client sends the requests. Objects stay plain dicts, as the API writes them: building the client's models
takes a hundred times as long, which matters for a thousand nodes.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import one_line
from trainbench.settings.environment import Settings

# Short, because a person waits: the provider's client tries a dead address for 15 s and a slow one for 60 s.
TIMEOUTS_S = (3.0, 10.0)  # to connect, to read
RETRY_AFTER_S = 0.3
PAGE = 500  # objects in one answer
CORE = "CoreV1Api"
PASSING = (409, 410, 429)  # statuses beside 5xx: a conflict, a page of a list expired, too many requests


class ClusterError(RuntimeError):
    """The API refused a request or could not be reached; its text names the request and the answer. `message`: the
    server's own text, where it gave one; `status`: of its answer, 503 where there was none.
    """

    def __init__(self, text: str, message: str | None = None, status: int = 503) -> None:
        super().__init__(text)
        self.message, self.status = message or text, status

    @property
    def is_outage(self) -> bool:
        """Whether the same request may be answered later."""
        return self.status >= 500 or self.status in PASSING


class Unreachable(ClusterError):
    """No API server answers: not configured, not found, not answering, or not trusted."""


class Refused(ClusterError):
    """The API server refused the request."""

    def __init__(self, action: str, status: int, reason: str, message: str) -> None:
        super().__init__(f"{action}: {message} ({status} {reason})", message, status)
        self.reason = reason


class Permission(Frozen):
    """One verb on one resource. Without one that is not `is_required`, only its `purpose` is lost."""

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
    Permission(verb="delete", resource="pods", purpose="remove a pod that has ended or leaked"),
    Permission(verb="get", resource="pods", subresource="log", purpose="read a pod's result and show its log"),
    Permission(verb="list", resource="events", purpose="say why a pod that is gone had to leave"),
    Permission(verb="get", resource="services", purpose="check the gangs' Service", is_required=False),
    Permission(verb="list", resource="nodes", is_cluster_wide=True, purpose="find the GPU nodes"),
)


@dataclass(frozen=True)
class Cluster:
    """Requests in one namespace. Each raises only Unreachable or Refused. `timeouts_s`: None: those for a person."""

    api: Any  # kubernetes.client.ApiClient, which has no types
    namespace: str
    node_selector: str | None = None
    timeouts_s: tuple[float, float] | None = None

    def version(self) -> str:
        return str(self._object("VersionApi", "get_code").get("gitVersion", "of an unknown version"))

    def identity(self) -> str | None:
        """Our user name on the API server; None where the server does not report it (before Kubernetes 1.28)."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        try:
            review = self._object("AuthenticationV1Api", "create_self_subject_review", body)
        except Refused:
            return None
        return review.get("status", {}).get("userInfo", {}).get("username") or None

    def is_allowed(self, permission: Permission) -> bool:
        attributes = {
            "verb": permission.verb,
            "resource": permission.resource,
            **({"subresource": permission.subresource} if permission.subresource else {}),
            **({} if permission.is_cluster_wide else {"namespace": self.namespace}),
        }
        kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        body = {**kind, "spec": {"resourceAttributes": attributes}}
        review = self._object("AuthorizationV1Api", "create_self_subject_access_review", body)
        return bool(review.get("status", {}).get("allowed"))

    def nodes(self, labels: Mapping[str, str] | None = None) -> tuple[dict[str, Any], ...]:
        """The nodes with all of `labels`; without, those that the installation may use: all, or by
        TRAINBENCH_NODE_SELECTOR.
        """
        selector = _selector(labels) if labels else self.node_selector
        return self._list("list_node", **({"label_selector": selector} if selector else {}))

    def node_or_none(self, name: str | None) -> Mapping[str, Any] | None:
        """The node of this host name, empty where there is none; None: it may not be read."""
        try:
            return next(iter(self.nodes({"kubernetes.io/hostname": name})), {}) if name else None
        except ClusterError:
            return None

    def node(self, name: str) -> dict[str, Any]:
        return self._object(CORE, "read_node", name)

    def patch_node(self, name: str, patch: Mapping[str, Any]) -> dict[str, Any]:
        """Patch a node. `patch`: a strategic merge; the server refuses an outdated `resourceVersion` with 409."""
        return self._object(CORE, "patch_node", name, patch)

    def pods(self, labels: Mapping[str, str]) -> tuple[dict[str, Any], ...]:
        """The pods with all of `labels`."""
        return self._list("list_namespaced_pod", self.namespace, label_selector=_selector(labels))

    def read_namespace(self) -> dict[str, Any]:
        return self._object(CORE, "read_namespace", self.namespace)

    def service(self, name: str) -> dict[str, Any]:
        return self._object(CORE, "read_namespaced_service", name, self.namespace)

    def dry_run(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        """The pod as the API server would store it after all admission checks; none is created. It refuses an unknown
        field.
        """
        return self._object(
            CORE, "create_namespaced_pod", self.namespace, pod, dry_run="All", field_validation="Strict"
        )

    def create_pod(self, pod: Any) -> dict[str, Any]:
        return self._object(CORE, "create_namespaced_pod", self.namespace, pod)

    def pod(self, name: str) -> dict[str, Any] | None:
        """None: there is none of this name."""
        named = self._list("list_namespaced_pod", self.namespace, field_selector=f"metadata.name={name}")
        return next(iter(named), None)

    def log_lines(self, name: str, container: str, **options: Any) -> Iterator[str]:
        """The container's log, line by line, however long: the node's kubelet limits that. Of a pod without a log, or
        that is gone, there is none. `options`: of the request, as `tail_lines`.
        """
        asked = self._reply(CORE, "read_namespaced_pod_log", name, self.namespace, container=container, **options)
        try:
            with asked as reply, closing(reply):
                for line in reply:
                    yield line.decode(errors="backslashreplace").removesuffix("\n")
        except Refused as error:  # any other refusal leaves open what the pod holds
            if error.status not in (400, 404):
                raise

    def events(self, pod: str) -> tuple[dict[str, Any], ...]:
        """Of the pod of this name, also where it is gone."""
        return self._list("list_namespaced_event", self.namespace, field_selector=f"involvedObject.name={pod}")

    def delete_pod(self, name: str, uid: str | None = None, version: str | None = None, **options: Any) -> None:
        """Delete the pod. With `uid` a new pod of the same name stays, with `version` (its resourceVersion) one that
        has changed, which is refused with 409; `options`: of the deletion. A missing pod is no error.
        """
        preconditions = {"uid": uid, "resourceVersion": version}
        body = {"preconditions": {key: value for key, value in preconditions.items() if value}, **options}
        try:
            self._object(CORE, "delete_namespaced_pod", name, self.namespace, body=body)
        except Refused as refused:
            if refused.status != 404:
                raise

    def _list(self, method: str, *args: str, **options: Any) -> tuple[dict[str, Any], ...]:
        """All objects of a list, read page by page."""
        objects: list[dict[str, Any]] = []
        while True:
            page = self._object(CORE, method, *args, limit=PAGE, **options)
            objects += page.get("items") or []
            token = page.get("metadata", {}).get("continue")
            if not token:
                return tuple(objects)
            options["_continue"] = token

    def _object(self, group: str, method: str, *args: Any, **options: Any) -> dict[str, Any]:
        with self._reply(group, method, *args, **options) as reply:
            text = reply.data.decode(errors="replace")
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Unreachable(f"{self.api.configuration.host} does not speak Kubernetes: {one_line(text, 80)!r}")
        return answer

    @contextmanager
    def _reply(self, group: str, method: str, *args: Any, **options: Any) -> Iterator[Any]:
        """The answer to one method of the official client, such as "list_node" of "CoreV1Api", to be read within."""
        from kubernetes import client  # type: ignore[import-untyped]
        from urllib3.exceptions import HTTPError

        host = self.api.configuration.host
        call = partial(getattr(getattr(client, group)(self.api), method), *args, **options)
        try:
            yield _once_more(partial(call, _preload_content=False, _request_timeout=self.timeouts_s or TIMEOUTS_S))
        except HTTPError as error:
            raise Unreachable(f"no Kubernetes API at {host}: {_cause(error)}") from None
        except (client.ApiException, AttributeError, UnicodeDecodeError) as error:
            # The client decodes the body of each error and fails without a text, as with TLS errors and proxies.
            failure = error if isinstance(error, client.ApiException) else error.__context__
            if not isinstance(failure, client.ApiException):
                raise
            if not failure.status:
                raise Unreachable(f"{host} cannot be trusted: {one_line(str(failure.reason))}") from None
            raise _refused(method.replace("_", " "), failure) from None


def open_cluster(settings: Settings, kubeconfig: str | None = None, context: str | None = None) -> Cluster:
    """Open the cluster by `kubeconfig` and its `context` if one is given, else by the Airflow connection, as the DAGs
    do. Sends no request. Raises Unreachable.
    """
    from kubernetes.client import ApiClient, Configuration  # type: ignore[import-untyped]
    from kubernetes.config import load_kube_config  # type: ignore[import-untyped]

    try:
        if kubeconfig or context:
            configuration = Configuration()
            load_kube_config(config_file=kubeconfig, context=context, client_configuration=configuration)
        else:  # the hook takes seconds to import
            from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook

            configuration = KubernetesHook(conn_id=settings.kubernetes_connection).get_conn().configuration
    except Exception as error:  # any error of a configuration file, an exec plugin or Airflow's secrets
        raise Unreachable(
            f"no Kubernetes cluster is configured: {one_line(str(error) or type(error).__name__)}"
        ) from None
    configuration.retries = False  # retried here: urllib3 would print warnings into the command's output
    return Cluster(ApiClient(configuration), settings.namespace, settings.node_selector)


def is_configured(settings: Settings) -> bool:
    """Whether a cluster is configured: this is a pod of one, or a kubeconfig or the Airflow connection exists."""
    from kubernetes.config import KUBE_CONFIG_DEFAULT_LOCATION

    files = KUBE_CONFIG_DEFAULT_LOCATION.split(os.pathsep)  # KUBECONFIG, else the file in the home folder
    if "KUBERNETES_SERVICE_HOST" in os.environ or any(Path(file).expanduser().exists() for file in files):
        return True

    from airflow.sdk import Connection

    try:
        Connection.get(settings.kubernetes_connection)
    except Exception:  # no such connection, or no Airflow database
        return False
    return True


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _once_more(send: Callable[[], Any]) -> Any:
    """Repeat the call once where no connection was made; never where the request may have arrived."""
    from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

    try:
        return send()
    except (ConnectTimeoutError, NewConnectionError):
        time.sleep(RETRY_AFTER_S)
        return send()


def _refused(action: str, error: Any) -> Refused:
    body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else str(error.body or "no message")
    try:
        message = str(json.loads(body)["message"])
    except (TypeError, ValueError, KeyError):
        message = body
    return Refused(action, int(error.status), str(error.reason), one_line(message, 1000))


def _cause(error: BaseException) -> str:
    """The innermost reason without urllib3's wrapping: "[Errno 111] Connection refused"."""
    reason = getattr(error, "reason", None)
    if isinstance(reason, BaseException):
        return _cause(reason)
    return one_line(re.sub(r"^.*(\): |>: |new connection: )", "", str(error)))
